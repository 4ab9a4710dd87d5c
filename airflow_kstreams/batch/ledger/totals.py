"""How many records went in and came out, as a person would count them.

Rule: in is what was read from topics that the subtopologies in question do not write themselves, out is what
was written to topics that they do not read: what passes between them counts neither time. Where the counts by
topic are not known, because an earlier version wrote the entry, the tasks' own totals say the same for a
subtopology all of whose sources (sinks) are of one kind; else the number is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from airflow_kstreams.batch.protocol.offsets.task_report import TaskReport
from airflow_kstreams.streams.figures.record_counts import RecordCounts


class _Subtopology(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def sinks(self) -> tuple[str, ...]: ...


class _Report(Protocol):
    @property
    def task_id(self) -> str: ...
    @property
    def records_in(self) -> int: ...
    @property
    def records_out(self) -> int: ...


class Totals(NamedTuple):
    """Records in and out; None where not known."""

    records_in: int | None
    records_out: int | None


class SubtopologyTotals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the tasks of one subtopology did, added up; see ``TaskReport``.

    :param id: of the subtopology.
    :param tasks: how many there were.
    """

    id: int
    tasks: int
    records_in: int = 0
    records_out: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    records_skipped: int = 0
    records_ahead: int | None = None

    @property
    def task_id(self) -> str:
        """What the ids of its tasks begin with."""
        return f"{self.id}_"

    @classmethod
    def of(cls, subtopology_id: int, reports: Sequence[TaskReport]) -> SubtopologyTotals:
        """Add up."""
        return cls(
            id=subtopology_id,
            tasks=len(reports),
            records_in=sum(report.records_in for report in reports),
            records_out=sum(report.records_out for report in reports),
            records_dropped=sum(report.records_dropped for report in reports),
            records_dead_lettered=sum(report.records_dead_lettered for report in reports),
            records_skipped=sum(report.records_skipped for report in reports),
            records_ahead=ahead_in_all(reports),
        )


def totals(
    subtopologies: Collection[_Subtopology], counts: RecordCounts | None, reports: Iterable[_Report] = ()
) -> Totals:
    """Add up what went into some subtopologies and came out of them.

    :param counts: of their tasks; None if not known.
    :param reports: of their tasks.
    """
    read = {topic for sub in subtopologies for topic in sub.sources}
    written = {topic for sub in subtopologies for topic in sub.sinks}
    if counts is not None:
        return Totals(
            sum(count for topic, count in counts.read.items() if topic not in written),
            sum(count for topic, count in counts.output.items() if topic not in read),
        )
    tasks = list(reports)
    inward: list[int | None] = []
    outward: list[int | None] = []
    for sub in subtopologies:
        own = [task for task in tasks if task.task_id.startswith(f"{sub.id}_")]
        inward.append(_of_one_kind(sum(task.records_in for task in own), sub.sources, written))
        outward.append(_of_one_kind(sum(task.records_out for task in own), sub.sinks, read))
    return Totals(_sum(inward), _sum(outward))


def ahead_in_all(reports: Iterable[TaskReport | SubtopologyTotals]) -> int | None:
    """Add up the records dated too far ahead; None when a report does not say."""
    counts = [report.records_ahead for report in reports]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _of_one_kind(total: int, topics: Collection[str], between: Collection[str]) -> int | None:
    """Return how many of a task's records belong to topics that are not between subtopologies."""
    inner = sum(topic in between for topic in topics)
    if not inner or not total:
        return total
    return 0 if inner == len(topics) else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
