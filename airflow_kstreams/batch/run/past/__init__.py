"""What earlier runs left: offsets, topics of the application, whole logs, and what was rewritten since.

Called by ``begin``, ``continuous`` and ``inspect``. Writes nothing.
"""
