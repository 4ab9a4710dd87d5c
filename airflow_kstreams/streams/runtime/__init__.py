"""Runs the tasks of a topology: chooses records, processes them, finds commit points. Pure: it reaches Kafka,
clocks and disks through ports only.

Called by ``batch.task`` and ``testing``. Imports everything of the engine but the DSL: ``codegen``,
``records``, ``topology``, ``state.stores``. Transactions, offsets and retries belong to ``batch.task``.
"""
