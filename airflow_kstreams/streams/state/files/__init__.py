"""The files of a task's stores on an executor's disk: the folder's claim, the checkpoint, and what of both
may be trusted when a task begins.

Called by ``batch.task`` before it restores and after its last commit. Imports ``state.stores`` and the
modules at the top of ``streams``. What stands in the files is the store's own matter.
"""
