"""Holds tables of a lakehouse as topologies know them: their names, their columns, rows of them, and the port
to them.

An application file describes tables by ``specs.py``. ``kstream`` and ``runtime`` make rows of records by
them; ``batch`` works with their plans and the port; ``tables`` writes files and implements the port. Imports
the floor of the engine and ``serde``, and no library of tables, not even Arrow.
"""
