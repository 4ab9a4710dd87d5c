"""Keeps the details of a finished run, per task and partition, in the ledger apart from its entry.

An entry stays for good, so it holds nothing that grows with tasks or partitions. Details do: they are kept
for a while, in slots ``__details__/<n>``, which runs use in turn; a run overwrites what the run before it
left in its slot. An entry names the offsets at which its details were written; if the record there is another
run's, or gone, the details have expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.task_report import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, partition_named
from airflow_kstreams.streams.decoders import convert
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import PartitionTimes

DETAILS_KEY = "__details__/"

#: Field -> its value in each task, or the only one if they are all equal.
Columns = dict[str, tuple[Any, ...]]


class RunDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The details of a run, compact: values of partitions or tasks are listed in their order.

    :param run_id: the run.
    :param finished_ms: of that run, which may finish again under its id.
    :param starts: start offsets by input topic, -1 where a partition was not read.
    :param stops: stop offsets by topic, inputs and intermediates, -1 where a partition was not read.
    :param topic_ids: topic id of every source topic.
    :param times: partition times by topic; absent where there are none.
    :param tasks: how many tasks reported.
    :param reports: what they reported, field by field.
    """

    run_id: str
    finished_ms: int
    starts: dict[str, tuple[int, ...]] = {}
    stops: dict[str, tuple[int, ...]] = {}
    topic_ids: dict[str, str] = {}
    times: dict[str, tuple[PartitionTimes, ...]] = {}
    tasks: int = 0
    reports: Columns = {}

    @property
    def times_by_partition(self) -> dict[str, PartitionTimes]:
        """Partition times: ``topic-partition`` -> times, where there are any."""
        return {
            f"{topic}-{number}": times
            for topic, of_topic in self.times.items()
            for number, times in enumerate(of_topic)
            if times != PartitionTimes()
        }


def details_of(summary: RunSummary) -> RunDetails:
    """Return the details of a run that has just finished."""
    return RunDetails(
        run_id=summary.run_id,
        finished_ms=summary.finished_ms,
        starts=by_topic({part.topic_partition: part.start_offset for part in summary.inputs}, -1),
        stops=by_topic(summary.stops, -1),
        topic_ids=summary.topic_ids,
        times=times_by_topic(summary),
        tasks=len(summary.tasks),
        reports=_columns(summary.tasks),
    )


def entry_of(summary: RunSummary) -> RunSummary:
    """Return what stays of a run: the entry without its details."""
    return msgspec.structs.replace(
        summary,
        inputs=(),
        intermediate_stops={},
        tasks=(),
        topic_ids={},
        partition_times={},
        read=summary.reads,
    )


def with_details(entry: RunSummary, details: RunDetails) -> RunSummary | None:
    """Return a run with its details; None if those are another run's."""
    if (details.run_id, details.finished_ms) != (entry.run_id, entry.finished_ms):
        return None
    inputs = tuple(
        FrozenPartition(
            topic=topic, partition=number, start_offset=start, stop_offset=details.stops[topic][number]
        )
        for topic, starts in details.starts.items()
        for number, start in enumerate(starts)
        if start >= 0
    )
    return msgspec.structs.replace(
        entry,
        inputs=inputs,
        intermediate_stops={
            f"{topic}-{number}": stop
            for topic, stops in details.stops.items()
            if topic not in details.starts
            for number, stop in enumerate(stops)
            if stop >= 0
        },
        tasks=_reports(details),
        topic_ids=details.topic_ids,
        partition_times=details.times_by_partition,
    )


def by_topic(values: Mapping[TopicPartition, int], absent: int) -> dict[str, tuple[int, ...]]:
    """Return the values of partitions by topic, in their order.

    :param absent: the value of partitions that are left out.
    """
    counts: dict[str, int] = {}
    for tp in sorted(values):
        counts[tp.topic] = tp.partition + 1
    return {
        topic: tuple(values.get(TopicPartition(topic, number), absent) for number in range(count))
        for topic, count in counts.items()
    }


def times_by_topic(summary: RunSummary) -> dict[str, tuple[PartitionTimes, ...]]:
    """Return partition times by topic, in the order of the partitions."""
    counts: dict[str, int] = {}
    for name in summary.partition_times:
        tp = partition_named(name)
        counts[tp.topic] = max(counts.get(tp.topic, 0), tp.partition + 1)
    return {
        topic: tuple(
            summary.partition_times.get(f"{topic}-{number}", PartitionTimes()) for number in range(count)
        )
        for topic, count in sorted(counts.items())
    }


def _columns(reports: Sequence[TaskReport]) -> Columns:
    def column(values: Iterable[Any]) -> tuple[Any, ...]:
        found = tuple(values)
        return found[:1] if found and all(value == found[0] for value in found) else found

    if not reports:
        return {}
    return {
        name: column(getattr(report, name) for report in reports) for name in TaskReport.__struct_fields__
    }


def _reports(details: RunDetails) -> tuple[TaskReport, ...]:
    """Return the tasks' reports."""
    rows: list[dict[str, Any]] = [{} for _ in range(details.tasks)]
    for name, values in details.reports.items():
        for number, row in enumerate(rows):
            row[name] = values[number] if len(values) > 1 else values[0]
    return tuple(convert(row, TaskReport) for row in rows)
