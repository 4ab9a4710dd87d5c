"""What became final in a run, in the order it did, read with nothing of the engine but the wire format."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing.in_memory_kafka import Commit
from tests.simulation.stages import APPLICATION_ID

METADATA = f"{APPLICATION_ID}-metadata"
LEDGER = f"{APPLICATION_ID}-runs"
#: A row of a table: the values of its columns.
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A final record."""

    offset: int
    key: str
    value: str | None
    headers: dict[str, str]
    commit: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A committed offset."""

    partition: TopicPartition
    offset: int
    commit: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What a task did in a run: records it took, sent to sinks, dropped, and gave up as dead letters."""

    taken: int = 0
    sent: int = 0
    dropped: int = 0
    dead_lettered: int = 0


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """What became of the records of a run: read and written by topic, left out by rule; zeros are absent."""

    read: dict[str, int]
    written: dict[str, int]
    left_out: dict[str, int]


@dataclass(slots=True)
class FinishedRun:
    """A run as its ledger entry tells it.

    :param counts: by task; those that had nothing to do may be missing.
    :param by_topic: None if the entry does not say.
    :param measured: how many records the latencies of a task are of; those that are not known are missing.
    :param parked: node -> how many records it left parked.
    :param global_spans: what it saw of each partition of a topic that every task sees whole.
    :param tables: what it tells of the last commit to each table.
    """

    run_id: str
    commit: int
    spans: dict[TopicPartition, tuple[int, int]]
    intermediate_stops: dict[TopicPartition, int]
    counts: dict[str, Counts]
    by_topic: TopicCounts | None
    measured: dict[str, int]
    parked: dict[str, int | None]
    global_spans: dict[str, list[tuple[int, int]]]
    tables: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeSnapshot:
    """A snapshot of the application's, as it was when it was made.

    :param snapshot: its id.
    :param summary: what it says of itself.
    :param mark: the application's mark in the table then.
    :param added: rows of the files that it added, which are so many.
    :param rows: the application's rows in the table then.
    :param commits: how many commits of Kafka were final.
    :param by: name of the process that made it.
    :param harmed: whether the table was one that no run may land in.
    """

    table: str
    snapshot: str
    summary: Mapping[str, str]
    mark: int
    added: Counter[Row]
    rows: Counter[Row]
    files: int
    commits: int
    by: str
    harmed: bool


@dataclass(slots=True)
class History:
    """Everything that became final.

    :ivar logs: final records of each partition, by offset.
    :ivar metadata: final records of the metadata topic, in the order of commits.
    :ivar deaths: when which processes died, epoch milliseconds of the broker, and their names.
    :ivar given: what oracles worked out, kept for the next checker.
    :ivar snapshots: those that the application made, in their order.
    :ivar table_rows: its rows in each table in the end.
    """

    commits: list[Commit] = field(default_factory=list)
    logs: dict[TopicPartition, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    metadata: list[Entry] = field(default_factory=list)
    offsets: list[OffsetCommit] = field(default_factory=list)
    finished: list[FinishedRun] = field(default_factory=list)
    deaths: list[tuple[int, str]] = field(default_factory=list)
    given: dict[Any, Any] = field(default_factory=dict)
    snapshots: list[MadeSnapshot] = field(default_factory=list)
    table_rows: dict[str, Counter[Row]] = field(default_factory=dict)

    def digest(self) -> None:
        """Sort what was observed."""
        for number, commit in enumerate(self.commits):
            for record in commit.records:
                value = record.value()
                entry = Entry(
                    record.position,
                    (record.key() or b"").decode(errors="backslashreplace"),
                    None if value is None else value.decode(errors="backslashreplace"),
                    {name: (text or b"").decode() for name, text in record.headers() or ()},
                    number,
                    record.timestamp()[1],
                )
                self.logs[TopicPartition(record.topic(), record.partition())].append(entry)
                if record.topic() == METADATA:
                    self.metadata.append(entry)
            for partition, offset in commit.offsets.get(APPLICATION_ID, {}).items():
                self.offsets.append(OffsetCommit(partition, offset.offset, number))
        for log in self.logs.values():
            log.sort(key=lambda entry: entry.offset)
        details: dict[str, Any] = {}
        for entry in self.logs.get(TopicPartition(LEDGER, 0), ()):
            if entry.value is not None and entry.key.startswith("__details__/"):
                details = json.loads(entry.value)
            elif entry.value is not None and not entry.key.startswith("__"):
                self.finished.append(_finished(json.loads(entry.value), details, entry.commit))

    def topic(self, name: str) -> dict[int, list[Entry]]:
        """Return the partitions of a topic that hold anything."""
        return {tp.partition: log for tp, log in sorted(self.logs.items()) if tp.topic == name}

    def slices(self, partition: TopicPartition) -> list[tuple[int, int]]:
        """Return what each finished run read of a partition, in order."""
        spans: list[tuple[int, int]] = []
        position = 0
        for run in self.finished:
            if partition in run.spans:
                spans.append(run.spans[partition])
            elif partition in run.intermediate_stops:
                stop = run.intermediate_stops[partition]
                spans.append((position, stop))
                position = stop
        return spans

    def per_run(self, partition: TopicPartition) -> list[list[Entry]]:
        """Return the final records that each finished run read of a partition, in order, one list per run."""
        log, position, runs = self.logs.get(partition, []), 0, []
        for run in self.finished:
            start, stop = run.spans.get(
                partition, (position, run.intermediate_stops.get(partition, position))
            )
            runs.append([entry for entry in log if start <= entry.offset < stop])
            position = stop
        return runs

    @property
    def begun(self) -> dict[str, int]:
        """The commit with which each run began."""
        begun: dict[str, int] = {}
        for entry in self.metadata:
            if entry.key == APPLICATION_ID and entry.value == "0":
                begun.setdefault(entry.headers["kstreams.run"], entry.commit)
        return begun

    def is_empty(self, run: FinishedRun) -> bool:
        """Whether there was nothing to read, so that no task ran and none notified."""
        before: dict[TopicPartition, int] = {}
        for earlier in self.finished:
            if earlier is run:
                break
            before = earlier.intermediate_stops
        stops = run.intermediate_stops
        ranges = {**run.spans, **{tp: (before.get(tp, 0), stop) for tp, stop in stops.items()}}
        return not any(
            start <= entry.offset < stop
            for partition, (start, stop) in ranges.items()
            for entry in self.logs.get(partition, ())
        )

    def committed_ms(self, partition: TopicPartition, offset: int) -> int:
        """Return when a commit covered a record for the first time, epoch milliseconds of the broker."""
        return min(
            self.commits[found.commit].at_ms
            for found in self.offsets
            if found.partition == partition and found.offset > offset
        )

    def read(self, topic: str) -> dict[int, list[list[Entry]]]:
        """Return the final records that the finished runs read of a topic: partition -> one list per run."""
        return {
            number: [
                [entry for entry in log if start <= entry.offset < stop]
                for start, stop in self.slices(TopicPartition(topic, number))
            ]
            for number, log in self.topic(topic).items()
        }


def _finished(entry: dict[str, Any], details: dict[str, Any], commit: int) -> FinishedRun:
    """Return a run as its entry tells it, and the details that were written right before that."""
    if details.get("run_id") != entry["run_id"]:
        raise ValueError(f"entry of {entry['run_id']} follows details of {details.get('run_id')}")
    starts, stops = details.get("starts", {}), details.get("stops", {})
    spans = {
        TopicPartition(topic, number): (start, stops[topic][number])
        for topic, of_topic in starts.items()
        for number, start in enumerate(of_topic)
    }
    others = {
        TopicPartition(topic, number): stop
        for topic, of_topic in stops.items()
        if topic not in starts
        for number, stop in enumerate(of_topic)
    }
    reports = details.get("reports", {})

    def column(name: str) -> list[Any]:
        values: list[Any] = reports.get(name, [])
        return values * details.get("tasks", 0) if len(values) == 1 else values

    names = ("task_id", "records_in", "records_out", "records_dropped", "records_dead_lettered")
    rows = zip(*map(column, names), strict=True)
    counts = {task_id: Counts(*numbers) for task_id, *numbers in rows}
    by_topic = _by_topic(entry.get("record_counts"))
    tables = details.get("global_tables", entry.get("global_tables", ()))
    speeds = zip(column("task_id"), column("metrics"), strict=True)
    measured = {task_id: sum(speed[0][3][1::2]) for task_id, speed in speeds if speed is not None}
    return FinishedRun(
        entry["run_id"],
        commit,
        spans,
        others,
        counts,
        by_topic,
        measured,
        entry.get("parked", {}),
        {table["topic"]: [(start, stop) for start, stop in table["spans"]] for table in tables},
        entry.get("tables", details.get("tables", {})),
    )


def _by_topic(told: dict[str, Any] | None) -> TopicCounts | None:
    if told is None:
        return None
    left_out: Counter[str] = Counter()
    for _, rule, records in told.get("left_out", ()):
        left_out[rule] += records
    read, written = Counter(told.get("read", {})), Counter(told.get("written", {}))
    written.update({name: rows for name, rows in told.get("sent", {}).items() if name.startswith("table:")})
    return TopicCounts(dict(+read), dict(+written), dict(+left_out))
