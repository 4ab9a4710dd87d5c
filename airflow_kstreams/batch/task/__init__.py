"""One task of a run: attempt, restore, loop, commit (KIP-129).

Called by what ``spark`` runs on executors. Imports ``protocol`` and ``streams``. It decides nothing
about runs: it asks the fold of the metadata topic what its slice is.
"""
