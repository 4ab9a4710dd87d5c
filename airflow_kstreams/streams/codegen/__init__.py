"""Functions made of lines that nodes write: a source's loop, an emission at a commit point, a node's
closure; and the loop that calls closures only, for tasks that step from record to record.

Called by ``runtime`` while it binds a task, and by the folds of ``kstream``. Imports ``graph``, ``records``
and ``state.stores``. No text of a user becomes code, and what a single operator does is written at the
operator.
"""
