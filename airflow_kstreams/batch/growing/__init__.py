"""Keeps state with its keys when topics gain partitions and subtopologies gain processors.

A topic *grows*: ``grown_groups`` keeps each new partition with the state of its keys, and finds those that
wait for their ancestors. A subtopology is *expanded*: ``expansion_rules`` tells whether it can be, and how
far it is, ``state_copy`` finds the keys that move and copies their state, and ``takeover`` lets a begin go on
with the new processors.

Called by ``run``, ``task`` and ``expand``. Imports ``protocol`` and ``ledger``. The commands that grow an
application stand in ``expand``, above ``run``: they ask begin's own code what a run would make of it.
"""
