"""Which transactional ids a begin fences: those of a run of which something may still be open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.protocol.ledger import read_ledger
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import KStreamsError, TaskFencedError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.earlier_version import forget_new_facts
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import CrashingAt

APP = "app"
TASKS = ["app-0_0", "app-0_1", "app-1_0", "app-1_1"]

T = TypeVar("T")


class Claims:
    """Notes which transactional ids are claimed."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        if name == "cluster.writer" and arguments[0] is not None:
            self.ids.append(arguments[0])
        return effect()


def topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").through("mid").send_to("out")
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in ("in", "mid"):
        kafka.create_topic(topic, partitions=2)
    kafka.create_topic("out")
    return kafka


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return Application(application_id=APP, topology=topology(), on=kafka, clock=kafka.clock)


def publish(kafka: InMemoryKafka, *values: str) -> None:
    for number, value in enumerate(values):
        kafka.append("in", value.encode(), value.encode(), partition=number % 2)


def results(kafka: InMemoryKafka) -> list[bytes]:
    return sorted(value or b"" for value in kafka.values("out"))


def fenced_by_begin(app: Application, run_id: str) -> Sequence[str]:
    claims = Claims()
    app.interceptor = claims
    app.begin(run_id)
    app.interceptor = None
    return sorted(set(claims.ids) - {f"{APP}-coordinator"})


def test_nothing_is_claimed_when_the_last_run_is_settled(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "b")
    app.run("run-1")
    publish(kafka, "c")
    assert fenced_by_begin(app, "run-2") == []
    app.run("run-2", (0, 2))
    assert results(kafka) == [b"a", b"b", b"c"]


def test_every_task_is_fenced_when_an_earlier_version_finished_the_run(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a", "b")
    app.run("run-1")
    forget_new_facts(kafka, APP)
    publish(kafka, "c")
    assert fenced_by_begin(app, "run-2") == TASKS


def test_every_task_is_fenced_when_a_person_moved_a_task_past_its_stop(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a", "b")
    slice_ = app.begin("run-1")
    app.task(slice_, 0, 0)
    publish(kafka, "c", "d")
    behind = TopicPartition("in", 1)
    reader = kafka.reader(group_id=APP)
    reader.commit({behind: CommittedOffset(2)})
    reader.close()
    app.task(slice_, 0, 1)
    app.tasks(slice_, [1])
    app.finish("run-1")
    assert fenced_by_begin(app, "run-2") == TASKS


def test_every_task_is_fenced_when_its_slice_was_dropped(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "b")
    app.run("run-1")
    publish(kafka, "c", "d")
    slice_ = app.begin("run-2")
    app.task(slice_, 0, 0)
    kafka.admin().delete_topics([f"{APP}-metadata"])
    claims = Claims()
    app.interceptor = claims
    with pytest.raises(KStreamsError):
        app.begin("run-3")
    assert set(TASKS) <= set(claims.ids), "whatever is found then, nothing moves any more"


def test_attempt_of_a_settled_run_changes_nothing_when_it_comes_after_the_next_begin(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a", "b")
    slice_ = app.begin("run-1")
    app.tasks(slice_)
    app.finish("run-1")
    publish(kafka, "c", "d")
    following = app.begin("run-2")
    with pytest.raises(TaskFencedError):
        app.task(slice_, 0, 0)
    app.tasks(following)
    app.finish("run-2")
    assert results(kafka) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("call", range(1, 40, 3))
def test_run_is_settled_only_by_commits_when_a_task_dies_anywhere(
    app: Application, kafka: InMemoryKafka, call: int
) -> None:
    publish(kafka, "a", "b")
    slice_ = app.begin("run-1")
    app.interceptor = CrashingAt(call, after=True)
    try:
        app.task(slice_, 0, 0)
    except BaseException as death:  # a process died; or the task ended before that call
        assert type(death).__name__ == "Crash", death
    app.interceptor = None
    kafka.clock.sleep(60)
    app.tasks(slice_)
    app.finish("run-1")
    last = read_ledger(kafka, APP, clock=kafka.clock).last()
    assert last is not None
    assert last.settled
    publish(kafka, "c")
    assert fenced_by_begin(app, "run-2") == []
    app.run("run-2", (0, 2))
    assert results(kafka) == [b"a", b"b", b"c"]
