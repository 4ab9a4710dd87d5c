"""A task aborts, drops its state and resumes from its committed offsets on errors that are not final: so
often in a row, and no oftener."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from airflow_kstreams.streams.errors import (
    KafkaClientError,
    KStreamsError,
    RecordError,
    TaskFencedError,
    TransactionAbortedError,
)
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.word_counts import EXACT, counting, counts, kafka_with_words

pytestmark = pytest.mark.promise("failed-attempts-leave-nothing", "no-transaction-stays-open")

T = TypeVar("T")
ABORTABLE = TransactionAbortedError("must be aborted", task_id="0_0")
PASSING = KafkaClientError("no answer", kafka_code="_TIMED_OUT", retriable_code=True)
FORBIDDEN = KafkaClientError("not authorized", kafka_code="TOPIC_AUTHORIZATION_FAILED")
REFUSED = RecordError("too large", topic="out", partition=0, offset=-1, node="")


class Failing:
    """Fails some commits of the task; counts its attempts and aborts.

    :param error: raised instead of the commit.
    :param fails: says by number, from 1, which commits fail.
    """

    def __init__(self, error: KStreamsError, fails: Callable[[int], bool]) -> None:
        self.error, self.fails = error, fails
        self.attempts = self.commits = self.aborts = 0

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if name == "writer.init_transactions":
            self.attempts += 1
        if name == "writer.abort":
            self.aborts += 1
        if name == "writer.commit":
            self.commits += 1
            if self.fails(self.commits):
                raise self.error
        return effect()


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_words()


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return counting(kafka, task_max_attempts=4)


@pytest.mark.parametrize("error", [ABORTABLE, PASSING], ids=["abortable", "passing"])
def test_task_gives_up_after_so_many_attempts_in_a_row_and_keeps_its_slice(
    app: Application, kafka: InMemoryKafka, error: KStreamsError, caplog: pytest.LogCaptureFixture
) -> None:
    slice_ = app.begin("run")
    failing = app.interceptor = Failing(error, lambda number: True)
    with pytest.raises(type(error)):
        app.task(slice_, 0, 0)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line for line in warned if "attempt" in line] == [
        f"task 0_0: attempt {number} follows, after {type(error).__name__}" for number in (2, 3, 4)
    ]
    assert error.cause not in "".join(warned), "the error that is raised says it"
    assert failing.attempts == 4
    assert failing.aborts == 4
    assert counts(kafka) == []
    app.interceptor = None
    app.tasks(slice_)
    app.finish("run")
    assert counts(kafka) == EXACT


@pytest.mark.parametrize(
    ("guarantee", "most", "bulk"),
    [
        ("exactly_once", 3, [True, True, False]),
        ("exactly_once", 1, [False]),
        ("at_least_once", 2, [False, False]),
    ],
)
def test_last_attempt_names_the_record_that_it_fails_for(
    kafka: InMemoryKafka,
    monkeypatch: pytest.MonkeyPatch,
    guarantee: str,
    most: int,
    bulk: list[bool],
) -> None:
    """A writer for many records need not."""
    asked: list[bool] = []
    make = kafka.writer

    def writer(**given: Any) -> Any:
        if given["transactional_id"] == f"{counted.application_id}-0_0":
            asked.append(given.get("bulk", False))
        return make(**given)

    counted = dataclasses.replace(
        counting(kafka), settings={"task.max.attempts": most, "processing.guarantee": guarantee}
    )
    slice_ = counted.begin("r")
    monkeypatch.setattr(kafka, "writer", writer)
    counted.interceptor = Failing(ABORTABLE, lambda number: True)
    with pytest.raises(TransactionAbortedError):
        counted.task(slice_, 0, 0)
    assert asked == bulk


def test_attempts_are_counted_anew_after_each_commit_and_state_is_exact(
    app: Application, kafka: InMemoryKafka
) -> None:
    slice_ = app.begin("run")
    # Three failures before each commit that succeeds: more in all than are allowed in a row.
    failing = app.interceptor = Failing(ABORTABLE, lambda number: number % 4 != 0)
    app.task(slice_, 0, 0)
    assert failing.attempts == 3 * len(EXACT) + 1
    app.interceptor = None
    app.finish("run")
    assert counts(kafka) == EXACT, "what an aborted attempt had counted is forgotten with it"


@pytest.mark.parametrize("error", [FORBIDDEN, REFUSED], ids=["forbidden", "refused record"])
def test_no_other_attempt_is_made_when_it_could_not_help(app: Application, error: KStreamsError) -> None:
    slice_ = app.begin("run")
    failing = app.interceptor = Failing(error, lambda number: True)
    with pytest.raises(type(error)):
        app.task(slice_, 0, 0)
    assert failing.attempts == 1


def test_attempt_that_was_fenced_is_no_success_while_the_stops_are_not_committed(
    app: Application, kafka: InMemoryKafka
) -> None:
    slice_ = app.begin("run")

    def fence() -> None:
        writer = kafka.writer(transactional_id=f"{app.application_id}-0_0")
        writer.init_transactions()
        writer.close()

    app.interceptor = Once("writer.commit", 1, fence)
    with pytest.raises(TaskFencedError):
        app.task(slice_, 0, 0)
    app.interceptor = None
    app.tasks(slice_)
    app.finish("run")
    assert counts(kafka) == EXACT


@pytest.mark.parametrize(("call", "number"), [("admin.end_offsets", 2), ("admin.start_offsets", 1)])
def test_attempt_does_not_take_for_lost_what_another_one_does_that_has_fenced_it(
    app: Application, kafka: InMemoryKafka, call: str, number: int
) -> None:
    """A process that was taken for dead claims the task's id behind its successor, and goes on."""
    slice_ = app.begin("run")
    changelog = f"{app.application_id}-counts-changelog"
    zombie = dataclasses.replace(app, interceptor=None)
    passed: list[str] = []

    def go_on() -> None:
        passed.append(zombie.task(slice_, 0, 0).outcome)

    # The first look at the ends is before the claim.
    app.interceptor = Once(call, number, go_on, about=changelog)
    report = app.task(slice_, 0, 0)
    assert passed == ["done"], "else the test looks at nothing"
    assert report.outcome == "already_done"
    app.interceptor = None
    app.finish("run")
    assert counts(kafka) == EXACT


@pytest.mark.promise("zombies-change-nothing")
def test_task_of_an_older_driver_writes_nothing_when_a_newer_one_has_taken_the_run_over(
    app: Application, kafka: InMemoryKafka
) -> None:
    older = app.begin("run")
    newer = app.begin("run", order=(0, 2))
    assert newer.generation > older.generation
    with pytest.raises(TaskFencedError, match="a newer driver owns the run"):
        app.task(older, 0, 0)
    assert counts(kafka) == []
    app.tasks(newer)
    app.finish("run")
    assert counts(kafka) == EXACT
