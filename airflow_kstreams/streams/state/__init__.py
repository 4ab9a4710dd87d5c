"""What a task remembers: ``stores`` while it runs, ``files`` from run to run.

Nothing else lives here: which stores a topology has is said in ``graph.store_specs``, restoring from a
changelog is a step of ``batch.task``.
"""
