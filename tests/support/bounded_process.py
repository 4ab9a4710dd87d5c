"""Work in a process of its own that may take so much memory and processor time, and no more."""

from __future__ import annotations

import os
import resource
import traceback
from collections.abc import Callable
from pathlib import Path

#: Bytes of memory beyond what the process has when the work begins.
MORE_BYTES = 512 * 1024 * 1024
#: Seconds of processor time after which the system ends the process.
PROCESSOR_SECONDS = 120


def outcome_of(work: Callable[[], object], *, more_bytes: int = MORE_BYTES) -> str:
    """Do work in a fork with a limit, and return how it failed; empty if it did not.

    :param more_bytes: memory that it may take.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        told = "it ended without a word"
        try:
            _limit(more_bytes)
            work()
            told = ""
        except BaseException:
            told = traceback.format_exc()[-8_000:]
        finally:
            os.write(writing, told.encode(errors="replace"))
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return told or ("" if status == 0 else f"the system ended it: {status}")


def _limit(more_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    held = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (held, held))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + PROCESSOR_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
