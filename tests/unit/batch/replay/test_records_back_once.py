"""A record of which several letters were made comes back once, whichever of them brings it back, and when."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.streams import KStreamBuilder, RetryPolicy, Topology, serdes
from airflow_kstreams.streams.ports import Headers, TopicPartition
from airflow_kstreams.streams.records.dead_letter_format import ConsumedAt, dead_letter_headers
from tests.support.crash import Crash
from tests.support.kafka.dead_letter_scene import DEAD, Scene
from tests.support.kafka.interception import CrashingAt
from tests.support.kafka.parking_scene import ParkingScene

pytestmark = pytest.mark.promise("records-come-back-once")


def twice(scene: Scene, value: str, *nodes: str, into: int = 0) -> None:
    """One consumed record becomes a letter at each of some nodes."""
    for node in nodes:
        scene.letter(value, node=node, into=into)


@pytest.fixture
def scene() -> Scene:
    return Scene(partitions=2)


class Fanned:
    """A record becomes three, each of which is called at a service, which may be away."""

    def __init__(self) -> None:
        self.down = True
        self.calls: Counter[str] = Counter()

    async def ask(self, value: str) -> str:
        self.calls[value] += 1
        if self.down:
            raise ConnectionError("away")
        return f"{value}!"

    def topology(self, attempts: int) -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        parts = builder.stream("in").flat_map_values(lambda value: [f"{value}{n}" for n in range(3)])
        retry = RetryPolicy(attempts=attempts, backoff_ms=1_000, jitter=0)
        parts.map_values_async(self.ask, order="key", retry=retry, name="ask").send_to("out")
        return builder.build()


@pytest.mark.parametrize("attempts", [2, 3])
def test_record_that_fans_out_before_calls_comes_back_once_when_all_of_them_were_given_up(
    attempts: int,
) -> None:
    scene, service = ParkingScene(settings={"retry.run.budget.ms": 500}), Fanned()
    scene.send("a")
    for number in range(3 * attempts):
        scene.kafka.clock.sleep(60.0)
        scene.run(f"r{number}", service.topology(attempts))
    assert len(scene.kafka.records(DEAD)) == 3

    service.down = False
    tool = DeadLetterReplay(
        scene.kafka, scene.application().checked, replay_id="back", clock=scene.kafka.clock
    )
    planned, done = tool.plan(), tool.run()

    assert (planned.records, planned.repeated) == (done.records, done.repeated) == (1, 2)
    scene.run("last", service.topology(attempts))
    assert sorted(scene.out) == ["a0!", "a1!", "a2!"]


def test_record_comes_back_from_each_topic_that_had_it_at_one_place_when_the_topic_was_made_anew(
    scene: Scene,
) -> None:
    for topic_id in ("before", "after-a-reset"):
        scene.letter("a", topic_id=topic_id)
        assert scene.replay(topic_id).records == 1
    assert scene.values_back() == ["a", "a"]


def test_letter_of_a_record_that_came_back_before_is_passed_by(scene: Scene) -> None:
    twice(scene, "a", "first")
    assert scene.replay("r1").records == 1
    twice(scene, "a", "second", into=1)
    twice(scene, "b", "second")

    done = scene.replay("r2")

    assert (done.records, done.repeated) == (1, 1)
    assert scene.values_back() == ["a", "b"]
    assert not scene.replay("r3").repeated


def test_letter_of_a_record_that_came_back_before_is_passed_by_when_selections_found_both(
    scene: Scene,
) -> None:
    twice(scene, "a", "first", "second")
    twice(scene, "b", "second")
    assert scene.replay("r1", where={"node": "first"}).records == 1

    done = scene.replay("r2", where={"node": "second"}, limit=1)

    assert (done.records, done.repeated) == (1, 1)
    assert scene.values_back() == ["a", "b"]


def test_record_comes_back_once_and_with_its_time_when_letters_have_the_brokers(scene: Scene) -> None:
    scene.kafka.alter_topic(DEAD, message_timestamp_type="LogAppendTime")
    for node in ("first", "second"):
        scene.clock.sleep(1.0)
        twice(scene, "a", node)

    done = scene.replay()

    assert (done.records, done.repeated) == (1, 1)
    assert scene.last("in").timestamp()[1] == 1_000


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 5)


@pytest.mark.usefixtures("small_batches")
def test_interrupted_replay_still_knows_what_came_back(scene: Scene) -> None:
    for number in range(12):
        twice(scene, f"v{number}", "first")
    for number in range(12):
        twice(scene, f"v{number}", "second", into=1)
    dying = CrashingAt(1, after=True, name="writer.commit")
    with pytest.raises(Crash):
        scene.replay("r1", dying.cluster(scene.kafka), limit=12)
    assert 0 < len(scene.values_back()) < 12

    done = scene.replay("r1", limit=12)

    assert done.records == 12
    assert len({*scene.values_back()}) == len(scene.values_back()) == 12
    assert scene.replay("r2").records == 0


@pytest.mark.usefixtures("small_batches")
def test_interrupted_replay_brings_back_what_its_selection_left_in_other_letters(scene: Scene) -> None:
    for node in ("first", "second"):
        for number in range(12):
            twice(scene, f"v{number}", node)
    dying = CrashingAt(2, name="writer.commit")
    with pytest.raises(Crash):
        scene.replay("r1", dying.cluster(scene.kafka), where={"node": "second"})

    done = scene.replay("r1", where={"node": "second"})

    assert (done.records, done.repeated, done.unselected) == (12, 0, 12)
    assert len({*scene.values_back()}) == len(scene.values_back()) == 12


def test_letters_that_hold_less_than_their_records_bring_none_back_and_hide_none(scene: Scene) -> None:
    scene.kafka.append("consumed", b"a", b"key", partition=2, timestamp_ms=1_000)
    (record,) = scene.kafka.records("consumed")
    facts = dead_letter_headers(record, ValueError("x"), "node", ConsumedAt())
    less = [*facts, ("__streams.errors.left.out", b"the value")]
    scene.kafka.append(DEAD, None, b"key", timestamp_ms=1_000, headers=less)
    scene.kafka.append(DEAD, b"a", b"key", timestamp_ms=1_000, headers=facts)

    done = scene.replay()

    assert (done.left_out, done.records, done.repeated) == (1, 1, 0)
    assert scene.kafka.values("consumed") == [b"a", b"a"]


@pytest.mark.parametrize("change", ["value", "time", "partition"])
def test_another_record_comes_back_though_it_lies_at_the_same_offset(scene: Scene, change: str) -> None:
    scene.letter("a")
    assert scene.replay("r1").records == 1
    (letter,) = scene.kafka.records(DEAD)
    other = {f".{change}": b"1", ".timestamp": b"2000" if change == "time" else b"1000"}
    headers = [
        (name, next((text for end, text in other.items() if name.endswith(end)), data))
        for name, data in letter.headers() or []
    ]
    scene.kafka.append(
        DEAD,
        b"b" if change == "value" else b"a",
        b"key",
        timestamp_ms=2_000 if change == "time" else 1_000,
        headers=headers,
    )
    assert scene.replay("r2").records == 1


def test_letters_that_do_not_say_where_their_records_were_are_brought_back_each(scene: Scene) -> None:
    headers: Headers = [("__streams.errors.topic", b"in"), ("__streams.errors.partition", b"0")]
    for _ in range(2):
        scene.kafka.append(DEAD, b"a", b"key", timestamp_ms=1_000, headers=headers)
    assert scene.replay().records == 2


def test_letters_that_were_deleted_are_not_looked_for(scene: Scene) -> None:
    twice(scene, "a", "first")
    scene.replay("r1")
    scene.kafka.expire({TopicPartition(DEAD, 0): 1})
    twice(scene, "b", "first", "second")

    done = scene.replay("r2")

    assert (done.records, done.repeated, done.expired) == (1, 1, 0)
