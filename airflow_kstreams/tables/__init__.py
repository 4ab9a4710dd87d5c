"""Implements the port of ``streams/tables/table_port.py`` on pyiceberg and on deltalake.

The driver, finish and the commands open tables here (``connections.py``) and hand them to ``batch``, which
knows the port alone; tasks write their files through it. It may import ``streams`` and those libraries, which
no other package imports. What a run does with a table belongs to ``batch``.
"""
