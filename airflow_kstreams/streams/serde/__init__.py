"""Serdes turn Python objects into the bytes of keys and values, and back.

Called by everything that reads or writes records or entries of stores. Imports the modules at the top of
``streams`` only. Serdes that need a client, such as a schema registry's, are in ``kafka``.
"""
