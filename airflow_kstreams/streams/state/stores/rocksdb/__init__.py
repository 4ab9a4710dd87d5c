"""Stores that hold their entries in RocksDB, and the files that they keep.

Made by ``making``; the only modules that import rocksdict.
"""
