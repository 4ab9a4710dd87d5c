"""Python's cyclic collector while a worker runs tasks.

A task makes and drops client records by the million, none of them in a circle, and keeps thousands of them
buffered. Python counts each of them, so its collector comes after every 700, and ever so often looks through
everything that the worker has imported: a fifth of a task's time. While tasks run it leaves alone what was
there before them, and comes more rarely. Circles that user code makes are collected as ever.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Objects made and not dropped after which the collector comes: more than the records of some fetches.
_OBJECTS = 20_000


@contextmanager
def sparing_collector() -> Iterator[None]:
    """Spare the collector what existed before the body; in the end, collect what the body left.

    The interpreter's own settings hold again afterwards.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    if thresholds[0]:
        gc.set_threshold(max(_OBJECTS, thresholds[0]), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        # A bound topology refers to itself in circles: its stores must not wait for the collector's own time.
        gc.collect()
        gc.unfreeze()
