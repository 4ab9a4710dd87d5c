"""The tasks that run a topology: record choice, processing, commit points. Pure: everything outside comes
by port.

Called by ``batch.task`` and ``testing``. Imports everything of the engine but the DSL: ``codegen``,
``records``, ``topology``, ``state.stores``. Transactions, offsets and retries belong to ``batch.task``.
"""
