"""Reports a finished run to Airflow: as the extra of an asset event, and as OpenLineage wants it (topics in
and out, offset ranges, counts).

Rule: a number is given only where it is exact. Topics between subtopologies are internal to the application
and left out. Global tables are inputs, too. The same run always gives the same extra, so a consumer that has
seen the run id can ignore a repeated event.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, FrozenTable, Slice

#: Largest extra in bytes of JSON: it lies in Airflow's database and travels with every event.
MAX_EXTRA_BYTES = 8_000


def event_extra(summary: RunSummary, *, backfill: bool = False) -> dict[str, Any]:
    """Return the ``extra`` of an asset event.

    :param summary: summary of a finished run.
    :param backfill: whether the run processed a past interval once more, for an application of its own.
    :return: ``application_id``, ``run_id``, ``records_in``, ``records_out``, ``finished_ms``, ``offsets``
        (topic -> partition as text -> ``[start, stop]``, half open), and ``partitions_omitted``, the number
        of partitions that did not fit. A run that has made snapshots of tables has ``tables``: name of the
        sink -> see :func:`snapshots_of`. A backfill has also ``backfill``, which is true. A run whose details
        have expired has ``details_expired``, which is true, and no offsets. A run that left records parked
        has ``parked``: node -> their number, None where that is not known.
    """
    extra: dict[str, Any] = {
        "application_id": summary.application_id,
        "run_id": summary.run_id,
        "records_in": summary.records_in,
        "records_out": summary.records_out,
        "finished_ms": summary.finished_ms,
        "offsets": {},
        "partitions_omitted": 0,
        **({"backfill": True} if backfill else {}),
        **({"parked": summary.parked} if summary.parked else {}),
        **({"tables": snapshots} if (snapshots := snapshots_of(summary)) else {}),
    }
    if summary.without_details:
        partitions = sum(read.partitions for read in summary.reads)
        return {**extra, "partitions_omitted": partitions, "details_expired": True}
    # Partitions that moved come first, so that those left out for want of room did not move.
    ordered = sorted(
        summary.inputs, key=lambda part: (part.start_offset == part.stop_offset, part.topic_partition)
    )
    room = MAX_EXTRA_BYTES - len(json.dumps(extra))
    for index, part in enumerate(ordered):
        entry = {str(part.partition): [part.start_offset, part.stop_offset]}
        room -= len(json.dumps({part.topic: entry}))
        if room < 0:
            extra["partitions_omitted"] = len(ordered) - index
            break
        extra["offsets"].setdefault(part.topic, {}).update(entry)
    return extra


def snapshots_of(summary: RunSummary) -> dict[str, dict[str, Any]]:
    """Return the snapshots that a run has made, one for each table that it writes; none if it had nothing to
    do.

    :param summary: the run's summary.
    :return: name of the table's sink -> ``table`` (its identifier or URI), ``table_id``, ``sequence``,
        ``snapshot`` (its id, or the version; empty if it is not known any more), ``rows`` and ``files``.
    """
    return {
        name: {
            "table": landed.location,
            "table_id": landed.table_id,
            "sequence": landed.sequence,
            "snapshot": landed.snapshot,
            "rows": landed.rows,
            "files": landed.files,
        }
        for name, landed in sorted(summary.tables.items())
        if landed.run_id == summary.run_id
    }


class AssetEvent(Protocol):
    """The part of an asset event that is read here."""

    @property
    def extra(self) -> Mapping[str, Any]: ...


def announced_runs(events: Mapping[Any, Collection[AssetEvent]]) -> list[dict[str, Any]]:
    """Return the finished runs that the asset events of a dag run announce, each once.

    It knows events of tasks with ``outlets`` and those of watchers, which Airflow wraps, and passes over
    events of others.

    :param events: ``triggering_asset_events`` of the task's context.
    :return: the extra of each run, see :func:`event_extra`, in the order in which the runs finished.

    >>> from types import SimpleNamespace
    >>> from airflow_kstreams.hooks.reports import announced_runs
    >>> one = {"application_id": "orders", "run_id": "r1", "finished_ms": 1}
    >>> first = SimpleNamespace(extra=one)
    >>> again = SimpleNamespace(extra={"from_trigger": True, "payload": one})
    >>> [run["run_id"] for run in announced_runs({"totals": [first, again]})]
    ['r1']
    """
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    for event in (event for of_asset in events.values() for event in of_asset):
        extra = event.extra.get("payload") if event.extra.get("from_trigger") else event.extra
        if isinstance(extra, Mapping) and {"application_id", "run_id", "finished_ms"} <= extra.keys():
            runs.setdefault((extra["application_id"], extra["run_id"]), dict(extra))
    return sorted(runs.values(), key=lambda run: int(run["finished_ms"]))


class TopicUse(NamedTuple):
    """A topic that a run read or wrote.

    :param topic: name of the topic.
    :param offsets: partition as text -> ``(start, stop)``, half open; empty for outputs, and for inputs whose
        offsets the ledger does not have any more.
    :param records: records read or written; None where they were not counted for this topic alone.
    """

    topic: str
    offsets: Mapping[str, tuple[int, int]]
    records: int | None


class TableUse(NamedTuple):
    """A table that a run writes to.

    :param namespace: OpenLineage's namespace of it: ``iceberg``, the bucket of a URI (``s3://lake``), or
        ``file``.
    :param name: its identifier, or the path in the bucket.
    :param rows: rows that the run has added; None until it is finished.
    """

    namespace: str
    name: str
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLineage:
    """The topics that a run read and wrote.

    :param namespace: name of the Kafka cluster in OpenLineage's form, such as ``kafka://broker:9092``.
    :param application_id: id of the application.
    :param run_id: id of the run.
    :param generation: number of drivers that have claimed the run.
    :param finished: whether the finished marker is written.
    :param tables: the tables that it writes to; of a finished run, those of which it has made a snapshot.
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
    tables: tuple[TableUse, ...] = ()
    records_in: int | None = None
    records_out: int | None = None


def lineage_of(run: RunSummary | Slice, bootstrap: str) -> RunLineage:
    """Return the lineage of a run.

    :param run: summary of a finished run, or slice of a run that has begun.
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
            tables=tuple(
                _table(table.format, table.location, None)
                for table in plan.tables
                if table.name in run.plan.targets
            ),
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
        tables=tuple(
            _table(landed.format, landed.location, landed.rows)
            for _, landed in sorted(run.tables.items())
            if landed.run_id == run.run_id
        ),
        records_in=run.records_in,
        records_out=run.records_out,
    )


def _table(table_format: str, location: str, rows: int | None) -> TableUse:
    if table_format != "delta":
        return TableUse(table_format, location, rows)
    scheme, found, rest = location.partition("://")
    if not found or scheme == "file":
        return TableUse("file", rest or location, rows)
    bucket, _, path = rest.partition("/")
    return TableUse(f"{scheme}://{bucket}", path, rows)


def _expired(run: RunSummary, counts: Mapping[str, int]) -> tuple[TopicUse, ...]:
    """Return the inputs of a run whose offsets the ledger does not have any more."""
    return tuple(TopicUse(read.topic, {}, counts.get(read.topic)) for read in run.reads)


def _inputs(partitions: Collection[FrozenPartition], counts: Mapping[str, int]) -> tuple[TopicUse, ...]:
    offsets: dict[str, dict[str, tuple[int, int]]] = {}
    for part in sorted(partitions, key=lambda part: part.topic_partition):
        offsets.setdefault(part.topic, {})[str(part.partition)] = (part.start_offset, part.stop_offset)
    return tuple(TopicUse(topic, ranges, counts.get(topic)) for topic, ranges in offsets.items())


def _tables(tables: Iterable[FrozenTable]) -> Iterator[TopicUse]:
    """Return global tables as inputs; no task counts their records."""
    for table in tables:
        yield TopicUse(table.topic, {str(number): span for number, span in enumerate(table.spans)}, None)
