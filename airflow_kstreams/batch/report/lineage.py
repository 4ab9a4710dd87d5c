"""Describes a run as OpenLineage wants it: topics in and out, offset ranges, counts.

Rule: it gives a number only where that is exact. Topics between subtopologies are internal to the application
and left out. Global tables are inputs, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, FrozenTable, Slice


class TopicUse(NamedTuple):
    """A topic that a run read or wrote.

    :param topic: its name.
    :param offsets: partition as text -> ``(start, stop)``, half open; empty for outputs, and for inputs whose
        offsets the ledger does not have any more.
    :param records: records read or written; None where they were not counted for this topic alone.
    """

    topic: str
    offsets: Mapping[str, tuple[int, int]]
    records: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLineage:
    """The topics that a run read and wrote.

    :param namespace: of the topics, as OpenLineage names Kafka clusters.
    :param application_id: the application.
    :param run_id: the run.
    :param generation: number of drivers that have taken it.
    :param finished: whether the finished marker is written.
    :param records_in: records that the tasks consumed from the inputs; None until finished, and where the
        counts are not known.
    :param records_out: records that the tasks wrote to topics that the run did not read; None as above.
    """

    namespace: str
    application_id: str
    run_id: str
    generation: int
    finished: bool
    inputs: tuple[TopicUse, ...]
    outputs: tuple[TopicUse, ...]
    records_in: int | None = None
    records_out: int | None = None


def lineage_of(run: RunSummary | Slice, bootstrap: str) -> RunLineage:
    """Return the lineage of a run.

    :param run: the summary of a finished one, or the slice of one that has begun.
    :param bootstrap: ``bootstrap.servers`` of the cluster; the first one names it.
    """
    namespace = f"kafka://{bootstrap.split(',')[0].strip()}"
    if isinstance(run, Slice):
        plan = run.plan.topology
        return RunLineage(
            namespace=namespace,
            application_id=plan.application_id,
            run_id=run.run_id,
            generation=run.generation,
            finished=False,
            inputs=(*_inputs(run.inputs, {}), *_tables(run.plan.global_tables)),
            outputs=tuple(TopicUse(topic, {}, None) for topic in plan.outputs),
        )
    read = {topic for sub in run.topics for topic in sub.sources}
    written = {topic for sub in run.topics for topic in sub.sinks}
    counts_in = {} if run.counts is None else {topic: run.counts.read.get(topic, 0) for topic in read}
    counts_out = {} if run.counts is None else {topic: run.counts.output.get(topic, 0) for topic in written}
    inputs = _expired(run, counts_in) if run.without_details else _inputs(run.inputs, counts_in)
    return RunLineage(
        namespace=namespace,
        application_id=run.application_id,
        run_id=run.run_id,
        generation=run.generation,
        finished=True,
        inputs=(*inputs, *_tables(run.global_tables)),
        outputs=tuple(TopicUse(topic, {}, counts_out.get(topic)) for topic in sorted(written - read)),
        records_in=run.records_in,
        records_out=run.records_out,
    )


def _expired(run: RunSummary, counts: Mapping[str, int]) -> tuple[TopicUse, ...]:
    """Return the inputs of a run of which the ledger does not have the offsets any more."""
    return tuple(TopicUse(read.topic, {}, counts.get(read.topic)) for read in run.reads)


def _inputs(partitions: Collection[FrozenPartition], counts: Mapping[str, int]) -> tuple[TopicUse, ...]:
    offsets: dict[str, dict[str, tuple[int, int]]] = {}
    for part in sorted(partitions, key=lambda part: part.topic_partition):
        offsets.setdefault(part.topic, {})[str(part.partition)] = (part.start_offset, part.stop_offset)
    return tuple(TopicUse(topic, ranges, counts.get(topic)) for topic, ranges in offsets.items())


def _tables(tables: Iterable[FrozenTable]) -> Iterator[TopicUse]:
    """Return global tables, of which no task counts the records."""
    for table in tables:
        yield TopicUse(table.topic, {str(number): span for number, span in enumerate(table.spans)}, None)
