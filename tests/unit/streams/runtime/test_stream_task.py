from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Topology,
    serdes,
)
from airflow_kstreams.streams.errors import KafkaClientError, RecordError, TaskStateError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.partition_group import PartitionGroup, RecordRun
from airflow_kstreams.streams.runtime import stream_task
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import Lifecycle, StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.topology.records import FakeRecord

IN = TopicPartition("in", 0)
Sent = list[tuple[str, bytes | None, bytes | None, int, Any]]


def topology(shape: Callable[[Any], None]) -> Topology:
    builder = KStreamBuilder()
    shape(builder.stream("in", key_serde=serdes.string(), value_serde=serdes.json(int)))
    return builder.build()


def counting(stream: Any) -> None:
    counts = stream.group_by_key().count(store="counts")
    counts.to_stream().send_to("out", key_serde=serdes.string(), value_serde=serdes.int64())


def task_of(
    topology: Topology, *, stop: int, progress: TaskProgress | None = None, **settings: str
) -> tuple[StreamTask, Sent]:
    sent: Sent = []

    def produce(topic: str, value: Any, key: Any, partition: int, timestamp_ms: int, headers: Any) -> None:
        sent.append((topic, key, value, timestamp_ms, headers))

    task = StreamTask(
        topology,
        task_id=TaskId(subtopology=0, group=0),
        bounds={IN: (0, stop)},
        produce=produce,
        settings=ApplicationSettings.parse("app", {k.replace("_", "."): v for k, v in settings.items()}),
        progress=progress or TaskProgress(),
    )
    task.restored()
    task.open()
    return task, sent


def records(*values: bytes, key: bytes | None = b"k") -> list[FakeRecord]:
    return [
        FakeRecord(at=n, key_bytes=key, value_bytes=value, timestamp_ms=100 + n, header_list=[("h", b"1")])
        for n, value in enumerate(values)
    ]


def run_to_end(task: StreamTask) -> list[int]:
    """Process everything; returns how many records lay between commits."""
    sizes, since = [], 0
    while count := task.process(1000):
        since += count
        if task.commit_due(interval_elapsed=False):
            task.flush()
            sizes.append(since)
            since = 0
    task.flush()
    return [*sizes, since]


def test_results_keep_timestamp_and_headers_when_a_record_passes_through() -> None:
    task, sent = task_of(topology(lambda s: s.filter(lambda k, v: v > 1).send_to("out")), stop=2)
    task.add(IN, records(b"1", b"2"))
    run_to_end(task)
    assert sent == [("out", b"k", b"2", 101, [("h", b"1")])]
    assert (task.progress.records_in, task.progress.records_out) == (2, 1)


def test_cached_result_is_sent_once_when_no_commit_point_lies_between() -> None:
    task, sent = task_of(topology(counting), stop=5)
    task.add(IN, records(*[b"1"] * 5))
    assert run_to_end(task) == [5]
    assert [(topic, key, value, time) for topic, key, value, time, _ in sent] == [
        ("out", b"k", (5).to_bytes(8, "big"), 104)
    ]
    ((changelog, _, _, changes),) = task.changes()
    assert (changelog, list(changes)) == ("app-counts-changelog", [(b"k", (5).to_bytes(8, "big"), 104)])
    assert [list(changes) for _, _, _, changes in task.changes()] == [[]]


def test_commit_points_are_counted_in_records_when_the_batch_is_larger() -> None:
    task, sent = task_of(topology(counting), stop=5, commit_every_records="2")
    task.add(IN, records(*[b"1"] * 5))
    assert run_to_end(task) == [2, 2, 1]
    assert [int.from_bytes(value or b"", "big") for _, _, value, _, _ in sent] == [2, 4, 5]


def test_commit_points_keep_their_count_when_an_earlier_attempt_got_part_of_the_way() -> None:
    task, _ = task_of(
        topology(counting), stop=5, commit_every_records="2", progress=TaskProgress(records_in=1)
    )
    task.add(IN, records(*[b"1"] * 5))
    assert run_to_end(task) == [1, 2, 2, 0]


def test_every_record_is_a_commit_point_when_one_is_asked_for() -> None:
    task, _ = task_of(topology(lambda s: s.send_to("out")), stop=3, commit_every_records="1")
    task.add(IN, records(b"1", b"2", b"3"))
    assert run_to_end(task) == [1, 1, 1, 0]


def test_clock_decides_when_nothing_is_cached() -> None:
    task, _ = task_of(topology(lambda s: s.send_to("out")), stop=3)
    task.add(IN, records(b"1"))
    task.process(10)
    assert not task.commit_due(interval_elapsed=False)
    assert task.commit_due(interval_elapsed=True)


def test_clock_decides_at_commit_points_alone_when_results_are_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_task, "CACHED_COMMIT_EVERY_RECORDS", 2)
    task, _ = task_of(topology(counting), stop=9)
    task.add(IN, records(b"1", b"2", b"3"))
    task.process(10)
    assert not task.commit_due(interval_elapsed=False)
    assert task.commit_due(interval_elapsed=True)
    task.process(10)
    assert not task.commit_due(interval_elapsed=True), "there is one more record than to the last point"


def test_results_are_emitted_at_every_commit_point_when_few_are_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_task, "CACHED_COMMIT_EVERY_RECORDS", 2)
    task, sent = task_of(topology(counting), stop=9)
    task.add(IN, records(*[b"1"] * 5))
    for _ in range(3):
        task.process(10)
    assert [int.from_bytes(value or b"", "big") for _, _, value, _, _ in sent] == [2, 4]
    (changes,) = (list(changes) for _, _, _, changes in task.changes())
    assert len(changes) == 1, "the key is logged once for all of them"


def test_point_is_committed_before_its_time_when_many_changes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_task, "CACHED_COMMIT_EVERY_RECORDS", 1)
    monkeypatch.setattr(stream_task, "UNDRAINED_CHANGES", 2)
    task, _ = task_of(topology(counting), stop=9)
    due = []
    for at, key in enumerate((b"a", b"a", b"b", b"b")):
        task.add(IN, [FakeRecord(at=at, key_bytes=key, value_bytes=b"1")])
        task.process(10)
        due.append(task.commit_due(interval_elapsed=False))
    assert due == [False, False, True, True]
    task.flush()
    for _, _, _, changes in task.changes():
        assert len(list(changes)) == 2
    assert not task.commit_due(interval_elapsed=False)


@pytest.mark.parametrize(
    ("shape", "bad", "node", "text"),
    [
        (lambda s: s.send_to("out"), b"{", "KSTREAM-SOURCE", "cannot decode in-0@1"),
        (
            lambda s: s.map_values(lambda v: 1 // v).send_to("out", value_serde=serdes.json()),
            b"0",
            "MAP",
            "processing failed for in-0@1",
        ),
        (
            lambda s: s.map_values(lambda v: "x" if v == 7 else v).send_to("out", value_serde=serdes.int64()),
            b"7",
            "SINK",
            "cannot encode the result for topic 'out' of in-0@1",
        ),
    ],
    ids=["decode", "function", "encode"],
)
def test_error_names_record_and_node_when_a_record_fails(
    shape: Callable[[Any], None], bad: bytes, node: str, text: str
) -> None:
    task, _ = task_of(topology(shape), stop=3)
    task.add(IN, records(b"1", bad, b"3"))
    with pytest.raises(RecordError) as caught:
        run_to_end(task)
    error = caught.value
    assert (error.topic, error.partition, error.offset) == ("in", 0, 1)
    assert node in error.node
    assert text in error.cause
    assert error.node in error.cause
    assert error.fix


def test_error_names_the_node_when_it_happens_at_a_commit_point() -> None:
    def shape(stream: Any) -> None:
        counts = stream.group_by_key().count(store="counts").to_stream()
        counts.map_values(lambda n: 1 // (n - 1)).send_to("out", value_serde=serdes.json())

    task, _ = task_of(topology(shape), stop=1)
    task.add(IN, records(b"1"))
    with pytest.raises(RecordError, match="a cached entry of store 'counts' at node"):
        run_to_end(task)


def test_client_errors_pass_unchanged_when_producing_fails() -> None:
    def produce(*_: Any) -> None:
        raise KafkaClientError("gone", kafka_code="_TRANSPORT", retriable_code=True)

    task = StreamTask(
        topology(lambda s: s.send_to("out")),
        task_id=TaskId(subtopology=0, group=0),
        bounds={IN: (0, 1)},
        produce=produce,
        settings=ApplicationSettings.parse("app"),
        progress=TaskProgress(),
    )
    task.restored()
    task.open()
    task.add(IN, records(b"1"))
    with pytest.raises(KafkaClientError):
        task.process(10)


def test_null_keys_are_dropped_and_counted_when_a_group_operator_meets_them() -> None:
    task, sent = task_of(topology(counting), stop=2)
    task.add(IN, records(b"1", b"2", key=None))
    run_to_end(task)
    assert sent == []
    assert task.progress.records_dropped == 2


def test_largest_timestamp_is_kept_when_records_come_out_of_order() -> None:
    task, _ = task_of(topology(lambda s: s.send_to("out")), stop=3)
    times = enumerate((100, 300, 200))
    task.add(IN, [FakeRecord(at=n, key_bytes=b"k", value_bytes=b"1", timestamp_ms=t) for n, t in times])
    run_to_end(task)
    assert task.progress.partition_times[IN].latest_ms == 300


def test_what_close_forwards_is_sent_when_the_task_ends() -> None:
    class Counting(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context, self.seen = context, 0
            context.forward("first", 0)

        def process(self, record: ProcessorRecord) -> None:
            self.seen += 1

        def close(self) -> None:
            self.context.forward("last", self.seen)

    task, sent = task_of(
        topology(
            lambda s: s.process(Counting).send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
        ),
        stop=2,
    )
    task.add(IN, records(b"1", b"2"))
    run_to_end(task)
    task.stop()
    task.close_processors()
    assert [(key, value) for _, key, value, _, _ in sent] == [(b"first", b"0"), (b"last", b"2")]


def test_partition_is_chosen_few_times_when_records_of_two_topics_alternate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # To choose a partition for every record costs a task more than most records.
    chosen = 0
    choose = PartitionGroup.choose

    def counted(group: PartitionGroup, limit: int) -> RecordRun | None:
        nonlocal chosen
        chosen += 1
        return choose(group, limit)

    monkeypatch.setattr(PartitionGroup, "choose", counted)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    builder.stream("in").merge(builder.stream("other")).send_to("out")
    sent: list[int] = []
    task = StreamTask(
        builder.build(),
        task_id=TaskId(subtopology=0, group=0),
        bounds={IN: (0, 1_000), TopicPartition("other", 0): (0, 1_000)},
        produce=lambda *record: sent.append(record[4]),
        settings=ApplicationSettings.parse("app", {}),
        progress=TaskProgress(),
    )
    task.restored()
    task.open()
    for number, partition in enumerate(task.group.positions()):
        task.add(
            partition,
            [
                FakeRecord(
                    at=at,
                    key_bytes=b"k",
                    value_bytes=b"1",
                    timestamp_ms=2 * at + number,
                    in_topic=partition.topic,
                )
                for at in range(1_000)
            ],
        )
    while task.process(1_000):
        pass
    assert sent == list(range(2_000))
    assert task.progress.records_in == 2_000
    assert task.group.positions() == task.group.stops()
    assert chosen < 10


def at(state: Lifecycle) -> StreamTask:
    """Return a task in a state."""
    task = StreamTask(
        topology(lambda s: s.send_to("out")),
        task_id=TaskId(subtopology=0, group=0),
        bounds={IN: (0, 1)},
        produce=lambda *_: None,
        settings=ApplicationSettings.parse("app"),
        progress=TaskProgress(),
    )
    steps: dict[Lifecycle, list[Callable[[], object]]] = {
        Lifecycle.CREATED: [],
        Lifecycle.RESTORED: [task.restored],
        Lifecycle.OPEN: [task.restored, task.open],
        Lifecycle.AT_STOP: [task.restored, task.open, task.stop],
        Lifecycle.CLOSED: [task.close],
    }
    for step in steps[state]:
        step()
    assert task.state is state
    return task


#: Each step of a task, and the states in which it may come.
STEPS: dict[str, tuple[Callable[[StreamTask], Any], set[Lifecycle]]] = {
    "restored": (StreamTask.restored, {Lifecycle.CREATED}),
    "open": (StreamTask.open, {Lifecycle.RESTORED}),
    "process": (lambda task: task.process(1), {Lifecycle.OPEN}),
    "punctuate": (StreamTask.punctuate, {Lifecycle.OPEN}),
    "flush": (StreamTask.flush, {Lifecycle.OPEN, Lifecycle.AT_STOP}),
    "stop": (StreamTask.stop, {Lifecycle.OPEN}),
    "end_of_run": (lambda task: list(task.end_of_run(1)), {Lifecycle.AT_STOP}),
    "close_processors": (StreamTask.close_processors, {Lifecycle.AT_STOP}),
    "close": (StreamTask.close, {*Lifecycle}),
}


@pytest.mark.error_example("KS-TASK-005")
def test_record_is_refused_when_the_task_is_closed() -> None:
    with pytest.raises(TaskStateError):
        at(Lifecycle.CLOSED).process(1)


@pytest.mark.parametrize("state", Lifecycle)
@pytest.mark.parametrize("step", STEPS)
def test_step_is_refused_when_the_state_of_the_task_does_not_allow_it(step: str, state: Lifecycle) -> None:
    task, (take, allowed) = at(state), STEPS[step]
    if state in allowed:
        take(task)
        return
    with pytest.raises(TaskStateError, match=f"task 0_0 is {state.value}") as refused:
        take(task)
    assert refused.value.task_id == "0_0"
    assert task.state is state
