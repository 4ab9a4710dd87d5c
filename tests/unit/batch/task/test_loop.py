"""Step 5 of the task protocol against ports held in memory: no broker, no waiting."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_kstreams.batch.metrics import TaskMeter
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, TaskMetrics
from airflow_kstreams.batch.task.commit import TaskClients
from airflow_kstreams.batch.task.loop import TaskLoop, next_chunk
from airflow_kstreams.batch.task.work import BoundedEnd
from airflow_kstreams.streams import StoreSpec, Topology, TopologyBuilder, serdes
from airflow_kstreams.streams.errors import (
    ConfigError,
    KStreamsError,
    StopOffsetUnreachableError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.ports import Fetched, TopicPartition
from airflow_kstreams.streams.processor.processor import Processor, ProcessorRecord
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.topology.records import FakeRecord

pytestmark = pytest.mark.promise("transactions-below-the-limit")

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
Bounds = dict[TopicPartition, tuple[int, int]]


class Pass(Processor):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)


class Greeting(Pass):
    def init(self, context: Any) -> None:
        super().init(context)
        context.forward(b"hello", b"v")


def topology(processor: type[Processor] = Pass) -> Topology:
    store = StoreSpec(name="s", key_serde=serdes.bytes(), value_serde=serdes.bytes())
    return (
        TopologyBuilder()
        .add_source("left", "a")
        .add_source("right", "b")
        .add_state_store(store)
        .add_processor("pass", processor, "left", "right", stores=("s",))
        .add_sink("sink", "out", "pass")
        .build()
    )


@dataclass
class FakeClock:
    now: float = 0.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic_seconds(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeReader:
    """Serves what the script says, one entry a poll, which takes so many seconds; then nothing, while the
    clock goes on.
    """

    clock: FakeClock
    script: list[Fetched]
    assigned: Mapping[TopicPartition, int] = field(default_factory=dict)
    calls: list[tuple[str, set[TopicPartition]]] = field(default_factory=list)
    seconds: float = 0.0

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self.assigned = dict(starts)

    def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched:
        if self.script:
            self.clock.sleep(self.seconds)
            return self.script.pop(0)
        self.clock.sleep(timeout_seconds)
        return Fetched({}, {})

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("pause", set(partitions)))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("resume", set(partitions)))


@dataclass
class FakeFailures:
    """Notes what it is asked to look for."""

    looked: list[dict[TopicPartition, tuple[int, int]]] = field(default_factory=list)
    topics: list[set[str]] = field(default_factory=list)

    def refuse_replaced(self, topics: Collection[str]) -> None:
        self.topics.append(set(topics))

    def refuse_rewritten(self, fetched: object, stops: object) -> None:
        """Every log is the one it was."""

    def refuse_loss(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.looked.append(dict(spans))

    def unreachable(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> StopOffsetUnreachableError:
        return StopOffsetUnreachableError(f"no record for {dict(spans)}", run_id="r")


@dataclass
class FakeWriter:
    suspect: bool = False


@dataclass
class FakeCommit:
    commits: list[bool] = field(default_factory=list)
    begun: int = 0
    meter: TaskMeter = field(default_factory=lambda: TaskMeter(TaskMetrics()))
    clock: FakeClock | None = None
    seconds: float = 0.0

    def begin(self) -> None:
        self.begun += 1

    def commit(self, task: StreamTask, *, now_seconds: float, last: bool) -> OffsetMetadata:
        task.flush()
        if self.clock is not None:
            self.clock.sleep(self.seconds)
        self.commits.append(last)
        return OffsetMetadata(records_in=task.progress.records_in)


def records(partition: TopicPartition, first: int, last: int, at_ms: int = 0) -> list[FakeRecord]:
    return [
        FakeRecord(at=n, key_bytes=b"k", value_bytes=b"v", timestamp_ms=at_ms, in_topic=partition.topic)
        for n in range(first, last)
    ]


@dataclass
class Rig:
    loop: TaskLoop
    reader: FakeReader
    commit: FakeCommit
    writer: FakeWriter
    failures: FakeFailures
    sent: list[Any]


@pytest.fixture
def rig() -> Callable[..., Rig]:
    def make(bounds: Bounds, script: list[Fetched], **settings: Any) -> Rig:
        clock = FakeClock()
        reader, commit, writer = FakeReader(clock, script), FakeCommit(), FakeWriter()
        sent: list[Any] = []
        seconds_per_record = float(settings.pop("seconds_per_record", 0))
        commit.clock, commit.seconds = clock, float(settings.pop("seconds_per_commit", 0))
        patient = bool(settings.pop("patient", False))
        processor = settings.pop("processor", Pass)

        def produce(*arguments: Any) -> None:
            clock.sleep(seconds_per_record)
            sent.append(arguments)

        checked = ApplicationSettings.parse("app", {k.replace("_", "."): v for k, v in settings.items()})
        task = StreamTask(
            topology(processor),
            task_id=TaskId(subtopology=0, group=0),
            bounds=bounds,
            produce=produce,
            settings=checked,
            progress=TaskProgress(),
        )
        clients: Any = TaskClients(
            admin=None,  # type: ignore[arg-type]
            reader=reader,  # type: ignore[arg-type]
            outputs=writer,  # type: ignore[arg-type]
            state=writer,  # type: ignore[arg-type]
            written=(),
        )
        failures = FakeFailures()
        loop = TaskLoop(
            task,
            clients,
            commit,  # type: ignore[arg-type]
            failures,  # type: ignore[arg-type]
            end=BoundedEnd(task),
            settings=checked,
            clock=clock,
        )
        task.restored()
        loop.open(patient=patient)
        return Rig(loop=loop, reader=reader, commit=commit, writer=writer, failures=failures, sent=sent)

    return make


def test_one_commit_ends_the_task_when_there_is_nothing_to_read(rig: Callable[..., Rig]) -> None:
    bounds: Bounds = {A: (5, 5), B: (3, 3)}
    made = rig(bounds, [])
    made.loop.run(bounds)
    assert made.commit.commits == [True]
    assert made.reader.assigned == {}


def test_partitions_at_their_stop_are_not_read_when_others_are_behind(rig: Callable[..., Rig]) -> None:
    bounds: Bounds = {A: (5, 5), B: (0, 2)}
    made = rig(bounds, [Fetched({B: records(B, 0, 2)}, {}), Fetched({}, {B: 2})])
    committed = made.loop.run(bounds)
    assert made.reader.assigned == {B: 0}
    assert committed.records_in == 2
    assert len(made.sent) == 2


@pytest.mark.promise("every-run-ends")
def test_task_looks_for_losses_while_it_waits_and_gives_up_in_the_end_when_a_partition_stalls(
    rig: Callable[..., Rig],
) -> None:
    bounds: Bounds = {A: (0, 9), B: (0, 0)}
    made = rig(bounds, [Fetched({A: records(A, 0, 5)}, {A: 6})], run_stall_timeout_ms=16_000)
    with pytest.raises(StopOffsetUnreachableError, match="no record for"):
        made.loop.run(bounds)
    assert made.failures.looked == [{A: (6, 9)}] * 3, "every five seconds, at the position to read next"
    assert True not in made.commit.commits, "a task that did not reach its stop never makes its last commit"


def test_partition_is_paused_when_it_is_far_ahead_or_at_its_stop(rig: Callable[..., Rig]) -> None:
    bounds: Bounds = {A: (0, 21), B: (0, 1)}
    script = [
        Fetched({A: records(A, 0, 20)}, {}),
        Fetched({B: records(B, 0, 1, 9)}, {B: 1}),
        Fetched({}, {A: 21}),
    ]
    made = rig(bounds, script, buffered_records_per_partition=2)
    made.loop.run(bounds)
    assert made.reader.calls == [("pause", {A}), ("pause", {B}), ("resume", {A}), ("pause", {A})]
    assert [topic for topic, *_ in made.sent] == ["out"] * 21


def test_attempt_ends_when_its_writer_became_suspect_in_a_commit(rig: Callable[..., Rig]) -> None:
    bounds: Bounds = {A: (0, 2), B: (0, 0)}
    made = rig(bounds, [Fetched({A: records(A, 0, 2)}, {})], commit_every_records=1)
    made.writer.suspect = True
    with pytest.raises(TransactionAbortedError, match="not used again"):
        made.loop.run(bounds)
    assert made.commit.commits == [False]


def test_no_commit_but_the_last_covers_the_stop_offsets_when_a_commit_point_lies_there(
    rig: Callable[..., Rig],
) -> None:
    bounds: Bounds = {A: (0, 4), B: (0, 0)}
    made = rig(bounds, [Fetched({A: records(A, 0, 4)}, {})], commit_every_records=2)
    made.loop.run(bounds)
    assert made.commit.commits == [False, True], "or a crash in between would leave close undone"


def test_commits_come_in_time_when_functions_are_slow(rig: Callable[..., Rig]) -> None:
    bounds: Bounds = {A: (0, 100), B: (0, 0)}
    made = rig(
        bounds,
        [Fetched({A: records(A, 0, 100)}, {A: 100})],
        seconds_per_record=0.9,
        processing_guarantee="exactly_once",
        transaction_timeout_ms=10_000,
    )
    made.loop.run(bounds)
    assert len(made.sent) == 100
    assert len(made.commit.commits) > 100 * 0.9 / 10, "no transaction was open for as long as its timeout"


def test_records_and_commits_are_measured_when_they_take_time(rig: Callable[..., Rig]) -> None:
    bounds: Bounds = {A: (0, 40), B: (0, 0)}
    made = rig(
        bounds,
        [Fetched({A: records(A, 0, 40)}, {A: 40})],
        seconds_per_record=0.01,
        seconds_per_commit=0.5,
        commit_every_records=20,
    )
    found = made.loop.run(bounds).metrics
    assert found is not None
    assert found.process.count == 40
    assert found.process.average_ns == pytest.approx(10_000_000)
    assert made.commit.commits == [False, True]
    assert (found.commit.count, found.commit.total_ns) == (2, 1_000_000_000), "the last commit counts, too"
    assert found.active_ns == pytest.approx(1_400_000_000)
    assert found.lag == 0


@pytest.mark.parametrize(("patient", "error"), [(True, TransactionAbortedError), (False, ConfigError)])
def test_setting_is_named_when_no_commit_point_comes_before_the_transaction_times_out(
    rig: Callable[..., Rig], patient: bool, error: type[KStreamsError]
) -> None:
    bounds: Bounds = {A: (0, 100), B: (0, 0)}
    made = rig(
        bounds,
        [Fetched({A: records(A, 0, 100)}, {A: 100})],
        seconds_per_record=2.0,
        patient=patient,
        processing_guarantee="exactly_once",
        transaction_timeout_ms=10_000,
        commit_interval_ms=10**9,
    )
    with pytest.raises(error, match=r"no commit point for .* after 10 s") as caught:
        made.loop.run(bounds)
    assert "commit.every.records" in caught.value.fix
    assert made.commit.commits == []


def test_task_waits_on_when_records_are_long_in_coming_and_nothing_is_written_yet(
    rig: Callable[..., Rig],
) -> None:
    bounds: Bounds = {A: (0, 2), B: (0, 0)}
    made = rig(
        bounds,
        [],
        processing_guarantee="exactly_once",
        transaction_timeout_ms=10_000,
        commit_interval_ms=10**9,
        run_stall_timeout_ms=60_000,
    )
    with pytest.raises(StopOffsetUnreachableError, match="no record for"):
        made.loop.run(bounds)


def kept_and_left_out(rig: Callable[..., Rig], **settings: Any) -> tuple[Rig, Bounds]:
    """Three records of an interval, then 200 fetches, ten seconds each, of records outside it."""
    script = [Fetched({A: records(A, 0, 3, at_ms=5)}, {})]
    script += [Fetched({A: records(A, n * 10 + 3, n * 10 + 13, at_ms=99)}, {}) for n in range(200)]
    bounds: Bounds = {A: (0, 2003), B: (0, 0)}
    made = rig(bounds, script, processing_guarantee="exactly_once", commit_interval_ms=10**9, **settings)
    made.reader.seconds = 10.0
    return made, bounds


@pytest.mark.promise("skipped-records-hold-no-commit")
def test_commit_comes_in_time_when_nothing_but_records_to_leave_out_follows(rig: Callable[..., Rig]) -> None:
    made, bounds = kept_and_left_out(rig, buffered_records_per_partition=1)
    made.loop.run(bounds, {A: (0, 10)})
    assert len(made.sent) == 3
    assert made.commit.commits == [False, True]


def test_task_waits_on_when_a_held_record_is_followed_by_records_to_leave_out(
    rig: Callable[..., Rig],
) -> None:
    made, bounds = kept_and_left_out(rig, buffered_records_per_partition=100, run_stall_timeout_ms=60_000)
    made.loop.run(bounds, {A: (0, 10)})
    assert len(made.sent) == 3
    assert made.commit.commits == [True]


def test_commit_comes_in_time_when_processors_forward_in_init_and_only_records_to_leave_out_follow(
    rig: Callable[..., Rig],
) -> None:
    bounds: Bounds = {A: (0, 2000), B: (0, 0)}
    script = [Fetched({A: records(A, n * 10, n * 10 + 10, at_ms=99)}, {}) for n in range(200)]
    made = rig(
        bounds, script, processor=Greeting, processing_guarantee="exactly_once", commit_interval_ms=10**9
    )
    made.reader.seconds = 10.0
    made.loop.run(bounds, {A: (0, 10)})
    assert [topic for topic, *_ in made.sent] == ["out"]
    assert made.commit.commits == [False, True], "the transaction was open from init on"


def test_setting_is_named_when_what_init_forwarded_waits_for_a_record_for_too_long(
    rig: Callable[..., Rig],
) -> None:
    bounds: Bounds = {A: (0, 2), B: (0, 0)}
    made = rig(
        bounds,
        [],
        processor=Greeting,
        processing_guarantee="exactly_once",
        transaction_timeout_ms=10_000,
        commit_interval_ms=10**9,
        commit_every_records=1000,
        run_stall_timeout_ms=60_000,
    )
    with pytest.raises(ConfigError, match=r"no commit point for .* after 10 s"):
        made.loop.run(bounds)


@pytest.mark.parametrize(
    ("chunk", "seconds", "expected"),
    [(250, 0.01, 500), (1500, 0.01, 2000), (500, 0.1, 500), (500, 1.0, 125), (2, 1.0, 1), (1, 9.0, 1)],
)
def test_chunk_follows_the_speed_of_user_functions(chunk: int, seconds: float, expected: int) -> None:
    assert next_chunk(chunk, seconds) == expected
