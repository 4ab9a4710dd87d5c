"""State that moves to processors which are added: which entries go where, and how they are copied.

Called by ``run``, ``task`` and ``expand``. Imports ``protocol`` and ``ledger``.
"""
