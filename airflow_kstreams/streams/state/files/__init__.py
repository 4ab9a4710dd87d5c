"""The files of a task's stores on an executor's disk: the claim of their folder, and the checkpoint that
vouches for them.

Called by ``batch.task`` before it restores and after its last commit. Imports ``state.stores`` and the
modules at the top of ``streams``. Each store defines the content of its files.
"""
