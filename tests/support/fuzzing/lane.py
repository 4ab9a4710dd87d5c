"""Feeds cases to entries, in processes with a limit of memory and a deadline for each case.

A case is named by its seed, so that ``dev/fuzz --entry NAME --case SEED`` is the same one again. A process
does a few cases of one entry; the lane goes round all entries until its time is over, and stops an entry at
its first fault.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal

from airflow_kstreams.streams.errors import KStreamsError

#: What comes of a case that does no harm: an error of ours refuses it, or it is taken, or left out.
Outcome = Literal["refused", "taken", "skipped"]
#: Draws a case and feeds it, with a folder of the process's own.
Feed = Callable[[Random, Path], Outcome]

#: Longest time of a case, in seconds; also on a machine that has more to do.
DEADLINE_SECONDS = 30.0
#: Memory that cases may take beyond what the process has at its beginning.
MORE_BYTES = 1024 * 1024 * 1024

#: Forked from a server that runs no thread: one forked from here could wait for a thread that it has not got.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.support.fuzzing.entries"])


@dataclass(slots=True)
class Fed:
    """The cases of one entry.

    :ivar outcomes: how many came to what.
    :ivar slowest_seconds: time of the slowest one.
    :ivar fault: seed of the case that did harm, and what it did; empty without one.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    fault: str = ""


def feed_all(
    entries: Mapping[str, Feed],
    seed: str,
    *,
    seconds: float,
    at_a_time_seconds: float,
    progress: Callable[[Mapping[str, Fed]], None] = lambda _: None,
) -> dict[str, Fed]:
    """Feed all entries in turns until the time is over.

    :param at_a_time_seconds: time of one process.
    """
    fed = {name: Fed() for name in entries}
    until, turn = time.monotonic() + seconds, 0
    while True:
        for name, feed in entries.items():
            if fed[name].fault:
                continue
            _in_process(name, feed, f"{seed}.{turn}", fed[name], at_a_time_seconds)
            progress(fed)
            if turn and time.monotonic() > until:
                return fed
        turn += 1
        if time.monotonic() > until or all(each.fault for each in fed.values()):
            return fed


def feed_one(feed: Feed, seed: str) -> Outcome:
    """Feed one case in this process.

    :raises Exception: it does harm.
    """
    with TemporaryDirectory(prefix="kstreams-fuzz-") as folder:
        try:
            return feed(Random(seed), Path(folder))
        except KStreamsError as error:
            if not error.fix:
                raise
            return "refused"


def _in_process(name: str, feed: Feed, seed: str, fed: Fed, seconds: float) -> None:
    reading, writing = _PROCESSES.Pipe(duplex=False)
    child = _PROCESSES.Process(target=_feed_on, args=(feed, f"{name}.{seed}", writing, seconds))
    child.start()
    writing.close()
    begun, open_case = time.monotonic(), ""
    while reading.poll(DEADLINE_SECONDS):
        try:
            case, outcome, fault = reading.recv()
        except EOFError:
            break
        if outcome == "begun":
            begun, open_case = time.monotonic(), case
            continue
        open_case = ""
        fed.slowest_seconds = max(fed.slowest_seconds, time.monotonic() - begun)
        fed.outcomes[outcome] += 1
        fed.fault = f"{case}: {fault}" if fault else ""
    else:
        fed.fault = f"{open_case}: takes more than {DEADLINE_SECONDS:.0f} s"
        child.kill()
    reading.close()
    child.join()
    if open_case and not fed.fault:
        fed.fault = f"{open_case}: its process ended with status {child.exitcode}"


def _feed_on(feed: Feed, seed: str, pipe: Connection, seconds: float) -> None:
    # What the product logs of hostile input is not what is looked at.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    held = pages * resource.getpagesize() + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (held, held))
    until, number = time.monotonic() + seconds, 0
    while number == 0 or time.monotonic() < until:
        case = f"{seed}.{number}"
        pipe.send((case, "begun", ""))
        try:
            pipe.send((case, feed_one(feed, case), ""))
        except BaseException:
            pipe.send((case, "harm", traceback.format_exc()[-6_000:]))
            return
        number += 1
