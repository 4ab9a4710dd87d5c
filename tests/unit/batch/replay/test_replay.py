"""Replays of dead letters on the in-memory Kafka, killed at every port call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from airflow_kstreams.streams.errors import ConfigError, KafkaClientError, RunBusyError, TaskFencedError
from airflow_kstreams.streams.ports import Headers, TopicPartition
from airflow_kstreams.streams.records.dead_letter_format import (
    ConsumedAt,
    dead_letter_headers,
    letters_of,
    origin_of,
)
from airflow_kstreams.testing import FaultyCluster
from tests.support.crash import Crash
from tests.support.kafka.dead_letter_scene import DEAD, OWN, SETTINGS, Scene
from tests.support.kafka.interception import CrashingAt, LosesAnswers, Meanwhile

pytestmark = pytest.mark.promise("dead-letters-come-back-once")

T = TypeVar("T")


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.promise("dead-letters-are-as-consumed")
def test_record_is_as_it_was_consumed_when_it_is_brought_back(scene: Scene) -> None:
    scene.letter("a")
    scene.letter("b", "mid", 0, headers=[])

    done = scene.replay()

    record = scene.last("in")
    assert (record.key(), record.value(), record.partition()) == (b"key", b"a", 2)
    assert record.timestamp()[1] == 1_000
    assert record.headers() == OWN
    assert not scene.last("mid").headers()
    assert done.records_per_topic == {"in": 1, "mid": 1}
    assert (done.records, done.without_origin, done.expired) == (2, 0, 0)
    assert done.finished_ms
    assert scene.lag() == 0


def test_headers_of_another_applications_letter_stay_when_it_became_one_again(scene: Scene) -> None:
    theirs: Headers = [("__streams.errors.topic", b"theirs"), ("__streams.errors.node", b"n")]
    scene.letter("a", headers=[*OWN, *theirs])

    scene.replay()

    assert scene.last("in").headers() == [*OWN, *theirs]


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [("other", b"x")],
        [("__streams.errors.topic", b"")],
        [("__streams.errors.topic", b"in"), ("__streams.errors.partition", b"-1")],
        [("__streams.errors.topic", b"in"), ("__streams.errors.partition", None)],
    ],
)
def test_letter_has_no_origin_when_nothing_was_consumed(headers: Headers | None) -> None:
    assert origin_of(headers) is None


def test_letters_of_timers_are_counted_and_stay(scene: Scene) -> None:
    why = dead_letter_headers(None, ValueError("x"), "node", ConsumedAt())
    scene.kafka.append(DEAD, None, None, headers=why)
    scene.letter("a")

    done = scene.replay()

    assert (done.records, done.without_origin) == (1, 1)
    assert scene.came_back() == {("in", 2, "a"): 1}


def test_letters_without_their_records_stay_and_the_log_says_where_the_records_are(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.letter("a")
    scene.kafka.append("consumed", b"whole", b"key", partition=1, timestamp_ms=1_000)
    record: Any = next(r for r in scene.kafka.records("consumed") if r.value() == b"whole")
    smaller = list(letters_of(record, ValueError("x"), "node", ConsumedAt()))[1]
    assert smaller.value is None
    scene.kafka.append(DEAD, smaller.value, smaller.key, timestamp_ms=1_000, headers=smaller.headers)

    assert scene.tool().plan().left_out == 1
    done = scene.replay()

    assert (done.records, done.left_out) == (1, 1)
    assert scene.came_back() == {("in", 2, "a"): 1}
    assert f"{DEAD}-0@1 is not brought back: it was made without the value (5 bytes)" in caplog.text
    assert "its record is at consumed-1@0" in caplog.text


def test_letter_that_is_larger_than_the_client_takes_by_itself_is_brought_back(scene: Scene) -> None:
    value = "x" * 1_048_000
    scene.letter(value)

    scene.replay()

    assert scene.last("in").value() == value.encode()


def test_key_decides_when_the_topic_has_fewer_partitions_by_now(scene: Scene) -> None:
    scene.letter("a", "mid", 2)

    scene.replay()

    assert scene.came_back() == {("mid", 0, "a"): 1}


def test_next_replay_begins_where_the_last_one_ended(scene: Scene) -> None:
    scene.letter("a")
    scene.replay("r1")
    scene.letter("b")

    done = scene.replay("r2")

    assert done.records == 1
    assert scene.came_back() == {("in", 2, "a"): 1, ("in", 2, "b"): 1}


def test_nothing_comes_back_again_when_committed_offsets_have_expired(scene: Scene) -> None:
    scene.letter("a")
    scene.replay("r1")
    scene.kafka.expire_offsets(f"{DEAD}-replay")
    scene.kafka.compact(f"{DEAD}-replays")

    assert scene.replay("r2").records == 0
    assert scene.came_back() == {("in", 2, "a"): 1}


def test_finished_replay_changes_nothing_and_says_the_same_when_it_is_repeated(scene: Scene) -> None:
    scene.letter("a")
    first = scene.replay("r1")
    scene.letter("b")
    scene.replay("r2")
    scene.letter("c")

    assert scene.replay("r1") == first
    assert scene.lag() > 0


def test_replay_is_finished_when_there_are_no_letters(scene: Scene) -> None:
    done = scene.replay()

    assert done.finished_ms
    assert done.records == 0


def test_expired_letters_are_counted_when_nobody_replayed_them(scene: Scene) -> None:
    for value in "ab":
        scene.letter(value)
    scene.kafka.expire({TopicPartition(DEAD, 0): 1})
    assert scene.replay("r1").expired == 0, "before the first replay nobody asked for them"
    for value in "cde":
        scene.letter(value)
    scene.kafka.expire({TopicPartition(DEAD, 0): 4})

    done = scene.replay("r2")

    assert (done.expired, done.records) == (2, 1)
    assert scene.came_back() == {("in", 2, "b"): 1, ("in", 2, "e"): 1}


def test_everything_is_new_when_the_topic_was_created_again(scene: Scene) -> None:
    scene.letter("a")
    scene.letter("b")
    scene.replay("r1")
    scene.kafka.admin().delete_topics([DEAD])
    scene.kafka.create_topic(DEAD)
    scene.letter("c")

    assert scene.replay("r2").records == 1
    assert scene.came_back()["in", 2, "c"] == 1


def test_plan_counts_and_changes_nothing(scene: Scene) -> None:
    scene.letter("a")
    scene.letter("b", "mid", 0)
    topics = list(scene.kafka.topics())

    planned = scene.tool("r1").plan()

    assert planned.records_per_topic == {"in": 1, "mid": 1}
    assert not planned.finished_ms
    assert not scene.came_back()
    assert list(scene.kafka.topics()) == topics


def test_missing_dead_letter_topic_is_named(scene: Scene) -> None:
    scene.kafka.admin().delete_topics([DEAD])
    scene.kafka.create_topic("app-runs")

    for call in (scene.tool("r1").run, scene.tool("r1").plan):
        with pytest.raises(ConfigError, match="app-dead-letter' does not exist") as caught:
            call()
        assert "application id" in caught.value.fix


def test_nothing_is_half_done_when_a_topic_of_origin_is_gone(scene: Scene) -> None:
    scene.letter("a")
    scene.letter("b", "gone")

    with pytest.raises(ConfigError, match=f"{DEAD}-0@1 came from topic 'gone', which does not exist"):
        scene.replay()

    assert not scene.came_back()
    assert not scene.kafka.hanging_transactions()
    scene.kafka.create_topic("gone", partitions=3)
    assert scene.replay().records_per_topic == {"gone": 1, "in": 1}


def test_records_go_back_in_several_transactions_when_there_are_many(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 2)
    for number in range(5):
        scene.letter(str(number))

    done = scene.replay()

    assert [record.value() for record in scene.kafka.records("in")] == [b"0", b"1", b"2", b"3", b"4"]
    assert done.records == 5


# == deaths


def letters(scene: Scene) -> None:
    for value, topic, partition in (("a", "in", 0), ("b", "mid", 0), ("c", "in", 2), ("d", "in", 0)):
        scene.letter(value, topic, partition)


EXPECTED = {("in", 0, "a"): 1, ("mid", 0, "b"): 1, ("in", 2, "c"): 1, ("in", 0, "d"): 1}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The port calls of a replay that nothing happens to, in two transactions that bring records back."""
    monkeypatch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 2)
    scene, counting = Scene(), CrashingAt()
    letters(scene)
    scene.replay(cluster=counting.cluster(scene.kafka))
    made = counting.calls
    assert made.count("writer.commit") == 3
    while made[-1].endswith(".close"):
        made.pop()
    return made


def died(number: int, *, after: bool) -> Scene:
    scene = Scene()
    letters(scene)
    with pytest.raises(Crash):
        scene.replay(cluster=CrashingAt(number, after=after).cluster(scene.kafka))
    return scene


@pytest.mark.parametrize("after", [False, True])
def test_each_record_is_back_once_when_the_replay_died_anywhere(calls: list[str], after: bool) -> None:
    for number, name in enumerate(calls):
        scene = died(number, after=after)
        scene.letter("late", "mid", 0)

        done = scene.replay()

        frozen = (number, after) >= (calls.index("writer.commit"), True)
        expected = EXPECTED if frozen else {**EXPECTED, ("mid", 0, "late"): 1}
        assert scene.came_back() == expected, (number, name)
        assert done.records == len(expected), (number, name)
        assert scene.replay() == done
        assert scene.replay("r2").records == 5 - len(expected)
        assert scene.came_back() == {**EXPECTED, ("mid", 0, "late"): 1}, (number, name)


@pytest.mark.parametrize("after", [False, True])
def test_each_record_is_back_once_when_another_replay_came_between(calls: list[str], after: bool) -> None:
    for number, name in enumerate(calls):
        scene = died(number, after=after)
        scene.letter("late", "mid", 0)

        other = scene.replay("r2")
        first = scene.replay("r1")

        assert scene.came_back() == {**EXPECTED, ("mid", 0, "late"): 1}, (number, name)
        assert first.records + other.records == 5, (number, name)
        assert scene.replay("r3").records == 0, (number, name)


@pytest.mark.remedy("replay.DeadLetterReplay.run")
def test_each_record_is_back_once_when_two_replays_are_at_work(calls: list[str]) -> None:
    overtaken = 0
    for number, name in enumerate(calls):
        scene = Scene()
        letters(scene)
        meanwhile = Meanwhile(number, partial(scene.replay, "r2"))
        try:
            scene.replay("r1", FaultyCluster(scene.kafka, meanwhile))
        except RunBusyError as error:
            overtaken += 1
            assert "another replay" in error.cause
        scene.replay("r1")
        assert scene.came_back() == EXPECTED, (number, name)
    assert overtaken > 5


@pytest.mark.parametrize("number", [0, 1, 2])
def test_each_record_is_back_once_when_the_answer_of_a_commit_is_lost(calls: list[str], number: int) -> None:
    scene = Scene()
    letters(scene)

    done = scene.replay(cluster=FaultyCluster(scene.kafka, LosesAnswers(number)))

    assert scene.came_back() == EXPECTED
    assert done.records == 4


class NeverWorks:
    """An interceptor under which nothing is ever written."""

    commits = 0

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if name == "writer.commit":
            self.commits += 1
            raise KafkaClientError("no answer", kafka_code="_TIMED_OUT", retriable_code=True)
        return effect()


def test_replay_gives_up_when_nothing_can_be_written(scene: Scene) -> None:
    scene.letter("a")
    never = NeverWorks()

    with pytest.raises(KafkaClientError, match="no answer"):
        scene.replay(cluster=FaultyCluster(scene.kafka, never))

    assert never.commits == SETTINGS.task_max_attempts
    assert not scene.came_back()


def test_busy_replay_is_worth_a_retry(scene: Scene) -> None:
    class Fenced:
        def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
            if name == "writer.commit":
                raise TaskFencedError("fenced", task_id="x")
            return effect()

    with pytest.raises(RunBusyError) as caught:
        scene.replay(cluster=FaultyCluster(scene.kafka, Fenced()))
    assert caught.value.is_retriable
