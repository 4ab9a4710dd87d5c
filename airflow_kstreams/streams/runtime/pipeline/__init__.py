"""Takes the records of a task with calls through its stages, releases them in order, and repeats failed
calls.

Called by ``stream_task``. Calls are made in ``streams/calls``.
"""
