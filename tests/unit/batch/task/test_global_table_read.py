from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest

from airflow_kstreams.batch.inspect.doctor import Level, Subject, diagnose
from airflow_kstreams.batch.protocol.needed_permissions import run_permissions
from airflow_kstreams.batch.protocol.slice.stops import without_partitions
from airflow_kstreams.batch.report.lineage import lineage_of
from airflow_kstreams.batch.task.global_table_read import GlobalTables
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.work import SliceWork, TaskAssignment, TaskSetup
from airflow_kstreams.streams import KStreamBuilder, Topology, TopologyError, serdes
from airflow_kstreams.streams.errors import ConfigError, DataLossError, RecordError
from airflow_kstreams.streams.figures.record_counts import LeftOut
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.launches import lease_held, share_of
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("global-tables-stand-still-in-a-run")

PARTITIONS = 2


def _topology(storage: Storage = "memory") -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    names = builder.global_table("names", storage=storage)
    codes = builder.stream("codes")
    codes.left_join(names, lambda code, name: f"{code}:{name}", key=lambda key, code: code).send_to("out")
    return builder.build()


def _kafka(**configs: str) -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("names", partitions=3, **{"cleanup.policy": "compact", **configs})
    for topic in ("codes", "out"):
        kafka.create_topic(topic, partitions=PARTITIONS)
    return kafka


def _app(
    kafka: InMemoryKafka, topology: Topology | None = None, settings: Mapping[str, Any] | None = None
) -> Application:
    return Application(
        application_id="app",
        topology=topology or _topology(),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0, **(settings or {})},
    )


def _codes(kafka: InMemoryKafka, *codes: str) -> None:
    for number, code in enumerate(codes):
        kafka.append("codes", code.encode(), b"k", partition=number % PARTITIONS)


def _name(kafka: InMemoryKafka, code: str, name: str | None) -> None:
    data = None if name is None else name.encode()
    kafka.append("names", data, code.encode(), partition=sum(code.encode()) % 3)


def _out(kafka: InMemoryKafka) -> list[str]:
    return sorted((value or b"").decode() for value in kafka.values("out"))


@pytest.mark.parametrize("storage", get_args(Storage))
def test_every_task_and_attempt_sees_the_table_as_it_was_when_the_run_began(storage: Storage) -> None:
    kafka = _kafka()
    app = _app(kafka, _topology(storage))
    for code, name in (("a", "ant"), ("b", "bee"), ("b", "bat"), ("c", "cat"), ("c", None)):
        _name(kafka, code, name)
    _codes(kafka, "a", "b", "b", "c")
    slice_ = app.begin("run")
    app.task(slice_, 0, 0)
    _name(kafka, "a", "ape")
    _name(kafka, "c", "cow")
    # A driver that takes the run over sees the same.
    app.tasks(app.begin("run"))
    app.finish("run")
    assert _out(kafka) == ["a:ant", "b:bat", "b:bat", "c:None"]


def test_next_run_sees_what_came_since() -> None:
    kafka = _kafka()
    app = _app(kafka)
    _codes(kafka, "a")
    app.run("one", (0, 1))
    _name(kafka, "a", "ant")
    assert app.begin("two", (0, 2)).plan.empty, "what comes into a global table alone starts no task"
    app.finish("two")
    _codes(kafka, "a")
    app.run("three", (0, 3))
    assert _out(kafka) == ["a:None", "a:ant"]


class _Assignments:
    """Takes note of what readers are given to read."""

    def __init__(self) -> None:
        self.seen: list[set[str]] = []

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "reader.assign":
            self.seen.append({tp.topic for tp in arguments[0]})
        return effect()


@pytest.mark.parametrize("storage", get_args(Storage))
def test_process_reads_a_table_once_for_all_tasks_of_a_run(storage: Storage, tmp_path: Path) -> None:
    kafka, tables = _kafka(), GlobalTables()
    app = _app(kafka, _topology(storage))
    _name(kafka, "a", "ant")
    _codes(kafka, "a", "a")
    assignments = _Assignments()
    for number in (1, 2):
        slice_ = app.begin(f"run-{number}", (0, number))
        for group in range(PARTITIONS):
            with lease_held(kafka, slice_, kafka.clock):
                share = share_of(kafka, slice_, 0, group, kafka.clock)
                setup = TaskSetup(
                    topology=_topology(storage),
                    assignment=TaskAssignment(
                        task_id=TaskId(subtopology=0, group=group),
                        run_id=slice_.run_id,
                        generation=slice_.generation,
                    ),
                    cluster=FaultyCluster(kafka, assignments),
                    settings=app.checked,
                    clock=kafka.clock,
                    scratch=tmp_path,
                    global_tables=tables,
                )
                TaskRunner(setup, SliceWork(without_partitions(slice_), share)).run()
                gc.collect()  # as the host does after each task: what it was bound to refers to itself
            assert len(list(tmp_path.iterdir())) == (storage == "rocksdb"), "that of the run, and no other"
        app.finish(slice_.run_id)
        assert sum("names" in topics for topics in assignments.seen) == number
        _codes(kafka, "a", "a")
    assert _out(kafka) == ["a:ant"] * 4


def test_files_are_read_by_several_threads_at_once() -> None:
    kafka = _kafka()
    app = _app(kafka, _topology("rocksdb"))
    for number in range(50):
        _name(kafka, f"c{number}", f"n{number}")
    _codes(kafka, "c1")
    slice_ = app.begin("run")
    tables = GlobalTables()

    def look(thread: int) -> list[bytes | None]:
        found = tables.read(kafka, kafka.admin(), slice_, {"names": "rocksdb"}, clock=kafka.clock)
        return [found["names"].entries.get(f"c{number}".encode()) for number in range(51)]

    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(look, range(8)))
    assert found == [[*(f"n{number}".encode() for number in range(50)), None]] * 8


def test_records_without_key_are_counted_once_in_a_run() -> None:
    kafka = _kafka(**{"cleanup.policy": "delete"})
    app = _app(kafka)
    for partition in range(2):
        kafka.append("names", b"nobody", None, partition=partition)
    _name(kafka, "a", "ant")
    for number in (1, 2):
        _codes(kafka, "a", "a")
        slice_ = app.begin(f"run-{number}", (0, number))
        for _attempt in range(2):
            app.tasks(slice_)
        summary = app.finish(slice_.run_id)
        assert summary.counts is not None
        assert summary.counts.left_out == (LeftOut("global table names", "null", 2),)
        assert sum(task.records_dropped for task in summary.tasks) == 2
    assert _out(kafka) == ["a:ant"] * 4


def test_records_without_key_are_counted_when_the_first_task_has_nothing_to_read() -> None:
    kafka = _kafka(**{"cleanup.policy": "delete"})
    app = _app(kafka)
    kafka.append("names", b"nobody", None)
    kafka.append("codes", b"a", b"k", partition=1)
    slice_ = app.begin("run")
    for _attempt in range(2):
        app.task(slice_, 0, 1)
    summary = app.finish("run")
    assert summary.counts is not None
    assert summary.counts.left_out == (LeftOut("global table names", "null", 1),)


@pytest.mark.parametrize(("inputs", "counts"), [("a", 0), ("b", 1), ("ab", 0)])
def test_records_without_key_are_counted_once_when_several_subtopologies_use_the_table(
    inputs: str, counts: int
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    names = builder.global_table("names")
    for topic in "ab":
        joined = builder.stream(topic).left_join(names, lambda one, other: one, key=lambda key, value: value)
        joined.send_to("out")
    kafka = _kafka(**{"cleanup.policy": "delete"})
    for topic in "ab":
        kafka.create_topic(topic, partitions=PARTITIONS)
    app = _app(kafka, builder.build())
    kafka.append("names", b"nobody", None)
    for topic in inputs:
        kafka.append(topic, b"x", b"k", partition=1)
    slice_ = app.begin("run")
    for topic in inputs[::-1]:
        app.task(slice_, "ab".index(topic), 1)
    summary = app.finish("run")
    assert summary.counts is not None
    assert summary.counts.left_out == (LeftOut("global table names", "null", 1),)
    counted = [task.task_id for task in summary.tasks if task.records_dropped]
    assert counted == [f"{counts}_1"]


def test_error_names_the_table_when_an_entry_cannot_be_read() -> None:
    kafka = _kafka()
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    names = builder.global_table("names", value_serde=serdes.json())
    builder.stream("codes").join(names, lambda code, name: code, key=lambda key, code: code).send_to("out")
    app = _app(kafka, builder.build())
    _name(kafka, "a", "{")
    _codes(kafka, "a")
    with pytest.raises(RecordError, match=r"codes-0@0 .* in the global table of 'names' cannot be read: Dec"):
        app.task(app.begin("run"), 0, 0)


def test_bounds_of_the_table_stand_in_markers_ledger_and_lineage() -> None:
    kafka = _kafka()
    app = _app(kafka)
    _name(kafka, "a", "ant")
    _codes(kafka, "a")
    slice_ = app.begin("run")
    (table,) = slice_.plan.global_tables
    assert (table.topic, sorted(table.spans)) == ("names", [(0, 0), (0, 0), (0, 1)])
    used = [use for use in lineage_of(slice_, "host:1").inputs if use.topic == "names"]
    assert [sorted(use.offsets.values()) for use in used] == [[(0, 0), (0, 0), (0, 1)]]
    _name(kafka, "b", "bee")
    app.tasks(slice_)
    summary = app.finish("run")
    assert summary.global_tables == (table,)
    assert [use.topic for use in lineage_of(summary, "host:1").inputs] == ["codes", "names"]
    assert "names" not in summary.source_topics, "a reset, or the next run, has nothing to do with it"


def test_dead_letter_topic_is_refused_when_it_is_a_global_table() -> None:
    kafka = _kafka()
    settings = {
        "errors.dead.letter.queue.topic.name": "names",
        "processing.exception.handler": "dead-letter",
    }
    with pytest.raises(ConfigError, match="the dead-letter topic 'names' is also read by the topology"):
        _app(kafka, settings=settings).begin("run")


@pytest.mark.remedy("global_table_read._refuse_changed")
def test_table_is_refused_when_something_of_it_is_gone_since_the_run_began() -> None:
    kafka = _kafka()
    app = _app(kafka)
    _name(kafka, "a", "ant")
    _codes(kafka, "a")
    slice_ = app.begin("run")
    admin = kafka.admin()
    partition = TopicPartition("names", sum(b"a") % 3)
    admin.delete_records({partition: 1})
    with pytest.raises(DataLossError, match=r"global table of topic names is not what it was .* starts at 1"):
        app.task(slice_, 0, 0)
    admin.delete_topics(["names"])
    kafka.create_topic("names", partitions=3)
    with pytest.raises(DataLossError, match="it was created again") as caught:
        app.task(slice_, 0, 0)
    before = len(kafka.values("out"))
    _name(kafka, "a", "ape")
    accept_in_memory(caught.value, kafka)
    app.run("next")
    assert len(kafka.values("out")) > before


def test_run_is_refused_when_the_topic_is_missing() -> None:
    kafka = InMemoryKafka()
    for topic in ("codes", "out"):
        kafka.create_topic(topic)
    with pytest.raises(
        TopologyError, match="global table's topic 'names' of application 'app' does not exist"
    ):
        _app(kafka).begin("run")


@pytest.mark.parametrize(
    ("configs", "level", "text"),
    [
        ({"min.compaction.lag.ms": str(2 * 86_400_000)}, Level.OK, "nothing is compacted away within a run"),
        ({}, Level.WARNING, "min.compaction.lag.ms of names is not longer than a run"),
        ({"cleanup.policy": "delete"}, Level.WARNING, "are deleted when they are old"),
        ({"cleanup.policy": "compact,delete"}, Level.WARNING, "are deleted when they are old"),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, Level.OK, "nothing is compacted away"),
        (
            {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "9"},
            Level.WARNING,
            "or too many",
        ),
    ],
)
def test_doctor_looks_whether_a_run_sees_one_table_throughout(
    configs: dict[str, str], level: Level, text: str
) -> None:
    kafka = _kafka(**configs)
    app = _app(kafka)
    subject = Subject(plan=app.topology.plan("app"), settings=app.checked)
    (found,) = [f for f in diagnose(kafka, subject, clock=kafka.clock) if f.check == "global tables"]
    assert (found.level, text in found.text) == (level, True), found


def test_runs_must_be_allowed_to_read_the_topic() -> None:
    app = _app(_kafka())
    needed = {str(each) for each in run_permissions(app.topology.plan("app"), app.checked)}
    assert "Read on topic names" in needed
