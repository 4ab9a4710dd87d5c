from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.doctor import Level, Subject, diagnose
from airflow_kstreams.batch.protocol.permissions import run_permissions
from airflow_kstreams.batch.protocol.task_share import without_partitions
from airflow_kstreams.batch.task.global_tables import GlobalTables
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.work import SliceWork, TaskAssignment, TaskSetup
from airflow_kstreams.streams import KStreamBuilder, Topology, TopologyError, serdes
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.launches import lease_held, share_of

PARTITIONS = 2


def _topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    names = builder.global_table("names")
    codes = builder.stream("codes")
    codes.left_join(names, lambda code, name: f"{code}:{name}", key=lambda key, code: code).send_to("out")
    return builder.build()


def _kafka(**configs: str) -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("names", partitions=3, **{"cleanup.policy": "compact", **configs})
    for topic in ("codes", "out"):
        kafka.create_topic(topic, partitions=PARTITIONS)
    return kafka


def _app(kafka: InMemoryKafka, **options: Any) -> Application:
    return Application(
        application_id="app",
        topology=_topology(),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0},
        **options,
    )


def _codes(kafka: InMemoryKafka, *codes: str) -> None:
    for number, code in enumerate(codes):
        kafka.append("codes", code.encode(), b"k", partition=number % PARTITIONS)


def _name(kafka: InMemoryKafka, code: str, name: str | None) -> None:
    data = None if name is None else name.encode()
    kafka.append("names", data, code.encode(), partition=sum(code.encode()) % 3)


def _out(kafka: InMemoryKafka) -> list[str]:
    return sorted((value or b"").decode() for value in kafka.values("out"))


def test_every_task_and_attempt_sees_the_table_as_it_was_when_the_run_began() -> None:
    kafka = _kafka()
    app = _app(kafka)
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


def test_process_reads_a_table_once_for_all_tasks_of_a_run() -> None:
    kafka, tables = _kafka(), GlobalTables()
    app = _app(kafka)
    _name(kafka, "a", "ant")
    _codes(kafka, "a", "a")
    assignments = _Assignments()
    for number in (1, 2):
        slice_ = app.begin(f"run-{number}", (0, number))
        for group in range(PARTITIONS):
            with lease_held(kafka, slice_, kafka.clock):
                share = share_of(kafka, slice_, 0, group, kafka.clock)
                setup = TaskSetup(
                    topology=_topology(),
                    assignment=TaskAssignment(
                        task_id=TaskId(subtopology=0, group=group),
                        run_id=slice_.run_id,
                        generation=slice_.generation,
                    ),
                    cluster=FaultyCluster(kafka, assignments),
                    settings=app.checked,
                    clock=kafka.clock,
                    global_tables=tables,
                )
                TaskRunner(setup, SliceWork(without_partitions(slice_), share)).run()
        app.finish(slice_.run_id)
        assert sum("names" in topics for topics in assignments.seen) == number
        _codes(kafka, "a", "a")
    assert _out(kafka) == ["a:ant"] * 4


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
    with pytest.raises(DataLossError, match="it was created again"):
        app.task(slice_, 0, 0)


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
