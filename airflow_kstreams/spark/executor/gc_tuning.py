"""Spares Python's cyclic garbage collector work while a worker runs tasks.

A task makes and drops client records by the million, none of them in a reference cycle, and keeps thousands
of them buffered. Python counts each of them, so its collector runs after every 700, and often scans all that
the worker has imported: a fifth of a task's time. While tasks run, the collector ignores older objects and
runs less often; cycles of user code wait that much longer.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Objects made and not dropped after which the collector comes: more than the records of a fetch, and than
#: what thousands of records consist of whose calls are under way.
_OBJECTS = 50_000


@contextmanager
def sparing_gc() -> Iterator[None]:
    """Let the collector ignore the objects that exist before the block; collect those of the block in the
    end.

    Nothing is changed if the collector is off, or if other code has frozen objects, which could not be
    distinguished from these in the end. Thresholds that the block sets stay.
    """
    before = gc.get_threshold()
    sparing = (max(_OBJECTS, before[0]), *before[1:])
    alone = gc.get_freeze_count() == 0 and before[0] > 0
    if alone:
        gc.freeze()
        gc.set_threshold(*sparing)
    try:
        yield
    finally:
        # A bound topology refers to itself: its stores must not wait for the collector's own time.
        gc.collect()
        if alone:
            gc.unfreeze()
            if gc.get_threshold() == sparing:
                gc.set_threshold(*before)
