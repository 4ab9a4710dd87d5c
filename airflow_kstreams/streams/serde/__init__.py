"""Serdes: between Python objects and the bytes of keys and values."""
