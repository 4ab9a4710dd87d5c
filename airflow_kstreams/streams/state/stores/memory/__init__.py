"""Stores that hold their entries in memory.

Made by ``making``.
"""
