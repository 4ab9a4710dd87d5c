"""Takes the records of a task with calls through its stages, releases them in order, and calls again what
failed.

Called by ``stream_task``. What makes a call is in ``streams/calls``.
"""
