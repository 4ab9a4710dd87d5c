"""Commits that would break an invariant, each by a mistake planted in the engine: the run ends loudly,
nothing is committed, and no attempt follows.
"""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.retry_budget import RetryBudget
from airflow_kstreams.batch.run import coordinator, finish, run_finish
from airflow_kstreams.batch.run.begin import new_slice
from airflow_kstreams.batch.task import work
from airflow_kstreams.batch.task.commit import TaskCommit
from airflow_kstreams.batch.task.work import task_slice
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import DataLossError, InvariantError, KStreamsError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.state.stores.memory.in_memory import InMemoryKeyValueStore
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.copies import APP, TEXT, kafka_with_topics, publish
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once

pytestmark = pytest.mark.promise("commits-are-checked")

IN = TopicPartition("in", 0)
CHANGELOG = f"{APP}-counts-changelog"
OUTSIDE = "nothing is committed outside the slice"
FROZEN = "stop offsets are those frozen"
LOGGED = "every change of a logged store has its changelog entry"


def counted() -> Topology:
    """Count the records of each key, in one subtopology."""
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    counts = builder.stream("in").group_by_key().count(store="counts").to_stream()
    counts.send_to("out", value_serde=serdes.int64())
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = kafka_with_topics()
    publish(kafka, *range(10))
    return kafka


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    settings = {"commit.every.records": 4}
    return Application(application_id=APP, topology=counted(), on=kafka, clock=kafka.clock, settings=settings)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[RetryBudget]:
    """Collect the attempts that tasks begin."""
    attempts: list[RetryBudget] = []
    begin = RetryBudget.begin

    def count(self: RetryBudget) -> None:
        attempts.append(self)
        begin(self)

    monkeypatch.setattr(RetryBudget, "begin", count)
    return attempts


def committed(kafka: InMemoryKafka) -> int:
    return kafka.reader(group_id=APP).committed([IN])[IN].offset


def broken(act: Callable[[], object], where: str = "task 0_0 of run 'run-1'") -> InvariantError:
    with pytest.raises(InvariantError) as caught:
        act()
    error = caught.value
    assert error.where == where
    assert error.cause.startswith(f"{where}: broken invariant: {error.invariant}: ")
    assert error.cause.endswith("; nothing of this was committed")
    assert not error.is_retriable
    return error


def plant_offsets(monkeypatch: pytest.MonkeyPatch, change: Callable[[int, int], int]) -> None:
    """Change the offset of each partition in each commit.

    :param change: number of the commit and offset -> offset to commit.
    """
    offsets_of, commits = TaskCommit._offsets, itertools.count()

    def other(self: TaskCommit, *args: Any) -> Mapping[TopicPartition, CommittedOffset]:
        commit = next(commits)
        return {
            partition: offset._replace(offset=change(commit, offset.offset))
            for partition, offset in offsets_of(self, *args).items()
        }

    monkeypatch.setattr(TaskCommit, "_offsets", other)


@pytest.mark.remedy("errors.InvariantError.__init__")
def test_task_ends_when_a_commit_would_pass_the_slice(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch, attempts: list[RetryBudget]
) -> None:
    slice_ = app.begin("run-1")
    publish(kafka, *range(10))
    plant_offsets(monkeypatch, lambda commit, offset: offset + (offset == 10))
    error = broken(lambda: app.task(slice_, 0, 0))
    assert error.invariant == OUTSIDE
    assert "offset 11 of in-0 does not lie in [0, 10]" in error.cause
    assert (committed(kafka), len(attempts)) == (8, 1)
    monkeypatch.undo()
    app.tasks(app.begin("run-1"))
    app.finish("run-1")
    counted_last = {record.key(): record.value() for record in kafka.records("out")}
    assert sum(serdes.int64().deserialize(value or b"") for value in counted_last.values()) == 10


def test_task_ends_when_a_partition_of_another_task_would_be_committed(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice_ = app.begin("run-1")
    offsets_of = TaskCommit._offsets

    def more(self: TaskCommit, *args: Any) -> Mapping[TopicPartition, CommittedOffset]:
        return {**offsets_of(self, *args), TopicPartition("in", 1): CommittedOffset(0)}

    monkeypatch.setattr(TaskCommit, "_offsets", more)
    error = broken(lambda: app.task(slice_, 0, 0))
    assert error.invariant == OUTSIDE
    assert "in-1 is no part of it" in error.cause
    assert committed(kafka) == 0


@pytest.mark.error_example("KS-RUN-008")
def test_task_ends_when_offsets_would_go_back(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch, attempts: list[RetryBudget]
) -> None:
    slice_ = app.begin("run-1")
    plant_offsets(monkeypatch, lambda commit, offset: 3 if commit == 1 else offset)
    error = broken(lambda: app.task(slice_, 0, 0))
    assert error.invariant == "offsets do not go back within an attempt"
    assert "offset 3 of in-0 would follow 4" in error.cause
    assert (committed(kafka), len(attempts)) == (4, 1)


def test_task_ends_when_it_would_say_before_its_stop_that_it_is_done(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice_ = app.begin("run-1")
    plant_offsets(monkeypatch, lambda commit, offset: min(offset, 9))
    error = broken(lambda: app.task(slice_, 0, 0))
    assert error.invariant == "the last commit stands at the stop offsets"
    assert "offset 9 of in-0 lies before its stop 10" in error.cause
    assert committed(kafka) == 8


def test_task_ends_when_it_reads_to_another_stop_than_the_frozen_one(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice_ = app.begin("run-1")
    monkeypatch.setattr(PartitionGroup, "stops", lambda self: dict.fromkeys(self._queues, 12))
    error = broken(lambda: app.task(slice_, 0, 0))
    assert error.invariant == FROZEN
    assert "the task reads in-0 to 12, and 10 was frozen" in error.cause
    assert committed(kafka) == 0


def test_task_ends_when_its_driver_ships_another_stop_than_the_frozen_one(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice_ = app.begin("run-1")

    def shorter(*args: Any) -> Any:
        share = task_slice(*args)
        return dataclasses.replace(
            share, bounds={p: (at, stop - 1) for p, (at, stop) in share.bounds.items()}
        )

    monkeypatch.setattr(work, "task_slice", shorter)
    error = broken(lambda: app.task(slice_, 0, 0))
    assert error.invariant == FROZEN
    assert "the task reads in-0 to 9, and 10 was frozen" in error.cause
    assert committed(kafka) == 0


def test_task_ends_when_a_store_holds_a_change_back(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch, attempts: list[RetryBudget]
) -> None:
    slice_ = app.begin("run-1")
    drain = InMemoryKeyValueStore.drain_changes
    monkeypatch.setattr(
        InMemoryKeyValueStore, "drain_changes", lambda self: itertools.islice(drain(self), 1, None)
    )
    error = broken(lambda: app.task(slice_, 0, 0))
    assert error.invariant == LOGGED
    assert f"the store of {CHANGELOG}-0 counted 4 changes, and 3 were written" in error.cause
    assert (committed(kafka), kafka.values(CHANGELOG), kafka.values("out"), len(attempts)) == (0, [], [], 1)


class Losing:
    """A client that loses the first change it is given, and says nothing."""

    def __init__(self) -> None:
        self.lost = False

    def call(self, name: str, port: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "writer.produce" and arguments[0] == CHANGELOG and not self.lost:
            self.lost = True
            return None
        return effect()


def test_task_ends_when_a_client_loses_a_change(
    app: Application, kafka: InMemoryKafka, attempts: list[RetryBudget]
) -> None:
    slice_ = app.begin("run-1")
    app.interceptor = Losing()
    error = broken(lambda: app.task(slice_, 0, 0))
    assert error.invariant == LOGGED
    assert f"4 changes were written to {CHANGELOG}-0 behind 0, and it ends at 3" in error.cause
    assert (committed(kafka), kafka.values(CHANGELOG), len(attempts)) == (0, [], 1)


def test_task_ends_when_a_commit_would_pass_a_call_that_runs(
    kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch, attempts: list[RetryBudget]
) -> None:
    answers = threading.Event()

    def ask(value: str) -> str:
        if value == "3":
            answers.wait()
        return value

    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").map_values_async(ask, threads=True).send_to("out")
    settings = {"commit.interval.ms": 1}
    app = Application(
        application_id=APP, topology=builder.build(), on=kafka, clock=SystemClock(), settings=settings
    )
    slice_ = app.begin("run-1")
    # What is committed is as of the last record chosen, not as of the last one released.
    monkeypatch.setattr(PartitionGroup, "_committable", lambda self: [*self._queues.items()])
    try:
        error = broken(lambda: app.task(slice_, 0, 0))
    finally:
        answers.set()
    assert error.invariant == "the commit does not pass an unfinished call"
    assert "offset 10 of in-0 covers a record under way, which ends at " in error.cause
    assert len(attempts) == 1


def test_begin_ends_when_it_would_commit_another_start(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = new_slice.build_slice

    def further(*args: Any, **named: Any) -> Any:
        new = build(*args, **named)
        return dataclasses.replace(
            new, offsets={p: at._replace(offset=at.offset + 1) for p, at in new.offsets.items()}
        )

    monkeypatch.setattr(coordinator, "build_slice", further)
    error = broken(lambda: app.begin("run-1"), "begin of run 'run-1'")
    assert error.invariant == "a slice starts where begin commits"
    assert "in-0 starts at 0, and 1 would be committed" in error.cause
    assert kafka.reader(group_id=APP).committed([IN]) == {}


def test_begin_ends_when_it_would_leave_a_partition_out(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = new_slice.build_slice

    def fewer(*args: Any, **named: Any) -> Any:
        new = build(*args, **named)
        return dataclasses.replace(new, offsets={IN: new.offsets[IN]})

    monkeypatch.setattr(coordinator, "build_slice", fewer)
    error = broken(lambda: app.begin("run-1"), "begin of run 'run-1'")
    assert "in-1 stand on one side only" in error.cause
    assert kafka.reader(group_id=APP).committed([IN]) == {}


def test_finish_ends_when_it_would_take_an_offset_back(
    app: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.tasks(app.begin("run-1"))
    close = finish.close_slice

    def back(*args: Any, **named: Any) -> Any:
        closed = close(*args, **named)
        offsets = {p: at._replace(offset=max(0, at.offset - 1)) for p, at in closed.offsets.items()}
        return dataclasses.replace(closed, offsets=offsets)

    monkeypatch.setattr(run_finish, "close_slice", back)
    error = broken(lambda: app.finish("run-1"), "finish of run 'run-1'")
    assert error.invariant == "a finished run stands at the stop offsets that were frozen"
    assert "in-0 stops at 10, and 9 would be committed" in error.cause
    assert committed(kafka) == 10


def test_empty_run_finishes_when_an_offset_between_subtopologies_was_set_back() -> None:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").send_to("mid")
    builder.stream("mid").send_to("out")
    kafka = kafka_with_topics()
    kafka.create_topic("mid")
    publish(kafka, *range(3))
    app = Application(application_id=APP, topology=builder.build(), on=kafka, clock=kafka.clock)
    app.run("run-1")
    app.begin("run-2")
    middle = TopicPartition("mid", 0)
    with closing(kafka.reader(group_id=APP)) as reader:
        at = reader.committed([middle])[middle]
        assert at is not None
        reader.commit({middle: CommittedOffset(at.offset - 2, "")})

    assert app.finish("run-2").empty
    app.run("run-3")
    assert len(kafka.values("out")) == 4, "the next run processes again what another program asked for"


def test_changelog_is_named_when_it_was_created_again_under_a_commit(
    app: Application, kafka: InMemoryKafka
) -> None:
    app.run("run-0")
    publish(kafka, *range(10))

    def create_again() -> None:
        kafka.admin().delete_topics([CHANGELOG])
        kafka.create_topic(CHANGELOG, partitions=1, **{"cleanup.policy": "compact"})

    app.interceptor = Once("writer.flush", 3, create_again)
    with pytest.raises(DataLossError, match=CHANGELOG):
        app.tasks(app.begin("run-1"))


def test_error_keeps_its_fields_between_processes() -> None:
    error = InvariantError("it holds", "it does not", where="task 0_0")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.invariant, copy.where, str(copy)) == (error.invariant, error.where, str(error))
    assert isinstance(copy, KStreamsError)
