"""Measures what needs no Spark: a run of one line, in a process that is fresh, or in one that goes on."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import msgspec

from dev.benchmarks.hosts import Answer, Host
from dev.benchmarks.publish import Message, create_topics, publish
from dev.benchmarks.systems import (
    BARE_DELTA,
    BARE_ICEBERG,
    FEW_DAYS,
    FEW_FILES,
    FEW_FILES_DELTA,
    FEW_SNAPSHOTS,
    KEPT_SNAPSHOTS,
    OURS,
    OURS_TO_DELTA,
    System,
)
from dev.benchmarks.tables import long_history, many_files, one_task
from dev.benchmarks.tables.places import Format, Place
from dev.benchmarks.workloads import Workload

#: Runs a line once.
Measure = Callable[[System], Answer]
#: What files and records are compared with is so many times less.
_LESS_FILES, _LESS_RECORDS = 100, 16
_DAYS, _FEW_DAYS = 3_650, 24


@contextmanager
def measuring(workload: Workload, bootstrap: str, folder: Path) -> Iterator[Measure]:
    """Yield what runs the lines of a workload; its processes end after the block.

    :param folder: for all that is written.
    """
    with ExitStack() as stack:
        yield _KINDS[workload.kind](workload, bootstrap, folder, stack)


def _finishing(workload: Workload, bootstrap: str, folder: Path, _stack: ExitStack) -> Measure:
    """Measure a finish, or a bare commit, each in a fresh process, of a run that another one has prepared."""
    source_of = cache(lambda files: _published(bootstrap, f"bench-{files}-files", files, _pieces))

    def measure(system: System) -> Answer:
        doing, format_, less = _FINISHES[system]
        name = f"bench-{uuid.uuid4().hex[:8]}"
        files = max(1, workload.records // less)
        work = many_files.Work(
            bootstrap=bootstrap,
            application_id=name,
            source=source_of(files),
            files=files,
            place=_place(folder, format_, name),
        )
        try:
            _asked(folder, "write-files", work)
            return _asked(folder, doing, work)
        finally:
            shutil.rmtree(work.place.folder, ignore_errors=True)

    return measure


#: What a line does, in which format, and of which part of the files.
_FINISHES: Mapping[System, tuple[str, Format, int]] = {
    OURS: ("finish", "iceberg", 1),
    OURS_TO_DELTA: ("finish", "delta", 1),
    FEW_FILES: ("finish", "iceberg", _LESS_FILES),
    FEW_FILES_DELTA: ("finish", "delta", _LESS_FILES),
    BARE_ICEBERG: ("bare-commit", "iceberg", 1),
    BARE_DELTA: ("bare-commit", "delta", 1),
}


def _committing(workload: Workload, _bootstrap: str, folder: Path, stack: ExitStack) -> Measure:
    """Measure commits to tables that one process keeps, and that grow by a snapshot each time."""
    host = stack.enter_context(Host("tables", folder))

    def measure(system: System) -> Answer:
        few = min(long_history.KEPT, workload.records)
        return host.run(
            {
                "system": "commit",
                "snapshots": few if system == FEW_SNAPSHOTS else workload.records,
                "expiring": system != KEPT_SNAPSHOTS,
            }
        )

    return measure


def _working(workload: Workload, bootstrap: str, folder: Path, _stack: ExitStack) -> Measure:
    """Measure the memory of a task in a fresh process."""
    source_of = cache(
        lambda records, days: _published(
            bootstrap,
            f"bench-{days}-days",
            records,
            lambda topic, count: one_task.messages(topic, count, days),
        )
    )

    def measure(system: System) -> Answer:
        few = system == FEW_DAYS
        records = max(1, workload.records // _LESS_RECORDS) if few else workload.records
        days, name = _FEW_DAYS if few else _DAYS, f"bench-{uuid.uuid4().hex[:8]}"
        work = one_task.Work(
            bootstrap=bootstrap,
            application_id=name,
            source=source_of(records, days),
            records=records,
            place=_place(folder, "iceberg", name),
        )
        try:
            return _asked(folder, "task", work)
        finally:
            shutil.rmtree(work.place.folder, ignore_errors=True)

    return measure


_KINDS: Mapping[str, Callable[[Workload, str, Path, ExitStack], Measure]] = {
    "files": _finishing,
    "snapshots": _committing,
    "days": _working,
}


def _place(folder: Path, format_: Format, name: str) -> Place:
    """Return the place of a table in a folder of its own, which is made."""
    own = folder / name
    own.mkdir()
    return Place(format=format_, folder=str(own), name="rows")


def _asked(folder: Path, doing: str, work: many_files.Work | one_task.Work) -> Answer:
    """Let a fresh process do something."""
    with Host("tables", folder) as host:
        return host.run({"system": doing, **msgspec.to_builtins(work)})


def _pieces(topic: str, count: int) -> Iterator[Message]:
    return (Message(topic, many_files.record_of(number), b"k") for number in range(count))


def _published(
    bootstrap: str, topic: str, count: int, messages: Callable[[str, int], Iterator[Message]]
) -> str:
    """Publish records to a topic with one partition, and return its name."""
    create_topics(bootstrap, {topic: 1})
    publish(bootstrap, messages(topic, count), count=count, progress=lambda _done: None)
    return topic
