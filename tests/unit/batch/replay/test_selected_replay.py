"""Replays of some letters only, on the in-memory Kafka, killed at every port call: the rest stays for later,
and no letter is lost or comes back twice.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.replay_records import Replay, decode_replays
from airflow_kstreams.streams.errors import ConfigError, RunBusyError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import FaultyCluster
from tests.support.crash import Crash
from tests.support.kafka.dead_letter_scene import DEAD, Scene
from tests.support.kafka.interception import CrashingAt, LosesAnswers, Meanwhile

pytestmark = pytest.mark.promise("dead-letters-come-back-once", "unselected-letters-stay")

REPLAYS = f"{DEAD}-replays"
MID = {"topic": "mid"}
IN = {"topic": "in"}


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def mixed(scene: Scene) -> Scene:
    fill(scene)
    return scene


def fill(scene: Scene) -> None:
    """Letters of two topics in turns."""
    for value, topic, partition in (
        ("a", "in", 0),
        ("b", "mid", 0),
        ("c", "in", 2),
        ("d", "mid", 0),
        ("e", "in", 0),
        ("f", "mid", 0),
    ):
        scene.letter(value, topic, partition)


def marks(scene: Scene) -> set[bytes]:
    """Keys of the blocks of marks that the topic of replays holds."""
    newest = {record.key() or b"": record.value() for record in scene.kafka.records(REPLAYS)}
    return {key for key, value in newest.items() if key.startswith(b"__done/") and value is not None}


def test_only_letters_that_fit_come_back_and_the_rest_stays(mixed: Scene) -> None:
    done = mixed.replay("r1", where=MID)

    assert mixed.values_back() == ["b", "d", "f"]
    assert (done.records_per_topic, done.unselected) == ({"mid": 3}, 3)
    assert done.finished_ms
    assert mixed.lag() == 6, "the lag begins at the first letter that stayed"


def test_next_replay_brings_back_the_rest_when_some_came_back_before(mixed: Scene) -> None:
    mixed.replay("r1", where=MID)
    mixed.letter("late", "mid", 0)

    done = mixed.replay("r2")

    assert mixed.values_back() == ["a", "b", "c", "d", "e", "f", "late"]
    assert (done.records, done.unselected, done.expired) == (4, 0, 0)
    assert mixed.lag() == 0
    assert mixed.replay("r3").records == 0


def test_letter_comes_back_once_when_several_selections_fit_it(scene: Scene) -> None:
    scene.letter("a", node="one")
    scene.letter("b", node="two", error=KeyError("b"))
    scene.letter("c", node="two")

    counts = [
        scene.replay("r1", where={"node": "two"}).records,
        scene.replay("r2", where={"exception": "ValueError"}).records,
        scene.replay("r3", where={"node": "two"}).records,
        scene.replay("r4").records,
    ]

    assert counts == [2, 1, 0, 0]
    assert scene.values_back() == ["a", "b", "c"]


def test_fields_of_json_values_select(scene: Scene) -> None:
    for number, airline in enumerate(["UA", "AA", "UA", "DL"]):
        scene.letter(json.dumps({"airline": airline, "number": number}))

    done = scene.replay("r1", where={"value.airline": "UA"})

    assert done.records == 2
    assert [json.loads(value)["number"] for value in scene.values_back()] == [0, 2]


def test_no_more_come_back_than_the_limit_says_and_the_rest_comes_later(mixed: Scene) -> None:
    first = mixed.replay("r1", limit=4)

    assert mixed.values_back() == ["a", "b", "c", "d"]
    assert (first.records, first.at_limit) == (4, True)
    assert first.finished_ms
    assert mixed.lag() == 2
    assert mixed.replay("r1", limit=4) == first
    second = mixed.replay("r2", limit=4)
    assert (second.records, second.at_limit) == (2, False)
    assert mixed.values_back() == ["a", "b", "c", "d", "e", "f"]


def test_limit_counts_what_comes_back_when_conditions_leave_letters_out(mixed: Scene) -> None:
    mixed.replay("r1", where=MID, limit=2)
    assert mixed.values_back() == ["b", "d"]

    mixed.replay("r2", where=MID, limit=2)
    assert mixed.values_back() == ["b", "d", "f"]

    assert mixed.replay("r3").records == 3
    assert mixed.values_back() == ["a", "b", "c", "d", "e", "f"]


def test_letters_of_several_partitions_come_back_once_when_a_limit_cuts_them() -> None:
    scene = Scene(partitions=3)
    values = [str(number) for number in range(30)]
    for number, value in enumerate(values):
        scene.letter(value, "in", number % 3, into=number % 3)
    back = Counter[str]()
    for number in range(6):
        where = {"partition": number % 3} if number % 2 else None
        done = scene.replay(f"r{number}", where=where, limit=7)
        assert done.records <= 7
        now = Counter(scene.values_back())
        assert (now - back).total() == done.records
        back = now

    scene.replay("rest")

    assert scene.values_back() == sorted(values)


def test_letters_that_cannot_come_back_are_counted_once_by_the_replay_that_selects_them(scene: Scene) -> None:
    scene.letter("a")
    scene.timers_letter(node="timer")
    scene.letter("b")

    assert scene.replay("r1", where={"node": "timer"}).without_origin == 1
    assert scene.tool("r2", where={"node": "timer"}).plan().without_origin == 0
    last = scene.replay("r3")
    assert (last.records, last.without_origin) == (2, 0)


def test_marks_go_when_positions_have_passed_them(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_kstreams.batch.protocol.replay_records.BLOCK_OFFSETS", 8)
    for number in range(40):
        scene.letter(str(number), "mid" if number % 4 else "in", 0)
    scene.replay("r1", where=MID)
    assert len(marks(scene)) == 5

    scene.replay("r2", where=IN, limit=6)

    assert marks(scene) == {b"__done/0/2", b"__done/0/3", b"__done/0/4"}
    assert scene.replay("r3").records == 4
    assert not marks(scene)
    written: Any = scene.kafka.records(REPLAYS)
    assert not decode_replays(written).blocks
    assert scene.values_back() == sorted(str(number) for number in range(40))


def test_replay_of_all_letters_leaves_no_marks(mixed: Scene) -> None:
    mixed.replay("r1")
    assert not marks(mixed)


def test_nothing_comes_back_again_when_the_topic_of_replays_was_compacted(mixed: Scene) -> None:
    mixed.replay("r1", where=MID)
    mixed.kafka.expire_offsets(f"{DEAD}-replay")
    mixed.kafka.compact(REPLAYS, drop_tombstones=True)

    assert mixed.replay("r2").records == 3
    mixed.kafka.compact(REPLAYS, drop_tombstones=True)
    assert mixed.replay("r3").records == 0
    assert mixed.values_back() == ["a", "b", "c", "d", "e", "f"]


def test_expired_letters_that_came_back_before_are_not_missed(mixed: Scene) -> None:
    mixed.replay("r1", where=MID)
    mixed.kafka.expire({TopicPartition(DEAD, 0): 4})

    done = mixed.replay("r2")

    assert (done.expired, done.records) == (2, 1), "a and c are gone, b and d had come back"
    assert mixed.values_back() == ["b", "d", "e", "f"]


def test_marks_go_when_their_letters_have_expired(mixed: Scene) -> None:
    mixed.replay("r1", where=MID)
    mixed.kafka.expire({TopicPartition(DEAD, 0): 6})

    assert mixed.replay("r2").expired == 3
    assert not marks(mixed)


def test_marks_do_not_count_when_the_topic_was_created_again(mixed: Scene) -> None:
    mixed.replay("r1", where=MID)
    mixed.kafka.admin().delete_topics([DEAD])
    mixed.kafka.create_topic(DEAD)
    for value in "ghi":
        mixed.letter(value, "mid", 0)

    assert mixed.replay("r2", where=MID).records == 3
    assert not marks(mixed)


@pytest.mark.promise("dry-runs-change-nothing")
def test_plan_counts_what_fits_and_changes_nothing(mixed: Scene) -> None:
    mixed.replay("r1", where=MID, limit=1)
    before = [record.value() for record in mixed.kafka.records(REPLAYS)]

    planned = mixed.tool("r2", where=MID).plan()

    assert (planned.records_per_topic, planned.unselected) == ({"mid": 2}, 3)
    assert not planned.finished_ms
    assert mixed.values_back() == ["b"]
    assert [record.value() for record in mixed.kafka.records(REPLAYS)] == before


@pytest.mark.remedy("replay.DeadLetterReplay._mine")
def test_replay_is_refused_when_it_is_asked_for_other_letters_than_before(mixed: Scene) -> None:
    mixed.replay("r1", where=MID, limit=1)

    for where, limit in ((MID, None), (MID, 2), (IN, 1), (None, None)):
        for call in (mixed.tool("r1", None, where, limit).run, mixed.tool("r1", None, where, limit).plan):
            with pytest.raises(
                ConfigError, match="was begun for letters with topic=mid, at most 1"
            ) as caught:
                call()
            assert "begin another replay" in caught.value.fix
    assert mixed.values_back() == ["b"]
    mixed.replay("r1", where=MID, limit=1)
    assert mixed.values_back() == ["b"], "the same letters again"
    mixed.replay("r2", where=MID)
    assert len(mixed.values_back()) > 1, "another replay brings the rest"


def test_replay_that_a_version_without_selections_began_goes_on(mixed: Scene) -> None:
    topic_id = mixed.kafka.admin().describe_topics([DEAD])[DEAD].topic_id
    mixed.kafka.create_topic(REPLAYS)
    begun = {
        "replay_id": "r1",
        "dead_letter_topic": DEAD,
        "topic_id": topic_id,
        "begun_ms": 1,
        "stops": {"0": 4},
        "positions": {"0": 2},
        "records_per_topic": {"in": 1, "mid": 1},
    }
    mixed.kafka.append(REPLAYS, json.dumps(begun).encode(), b"r1")

    done = mixed.replay("r1")

    assert done.records_per_topic == {"in": 2, "mid": 2}
    assert mixed.values_back() == ["c", "d"]
    assert mixed.replay("r2", where=MID).records == 1
    assert mixed.values_back() == ["c", "d", "f"]


def test_nothing_is_written_between_when_many_letters_do_not_fit(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 2)
    for number in range(20):
        scene.letter(str(number))
    scene.letter("last", "mid", 0)
    counting = CrashingAt()

    scene.replay(cluster=counting.cluster(scene.kafka), where=MID)

    assert counting.calls.count("writer.commit") == 2, "the freeze, and the one letter"
    assert scene.values_back() == ["last"]


def test_no_more_is_read_when_the_limit_is_reached(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 2)
    for number in range(40):
        scene.letter(str(number))
    counting = CrashingAt()

    scene.replay(cluster=counting.cluster(scene.kafka), limit=2)

    assert counting.calls.count("reader.poll") == 1


# == deaths

SELECTED = [
    pytest.param(MID, None, ["b", "d", "f"], id="where"),
    pytest.param(None, 4, ["a", "b", "c", "d"], id="limit"),
    pytest.param(MID, 2, ["b", "d"], id="both"),
]
ALL = ["a", "b", "c", "d", "e", "f"]
Where = dict[str, object] | None


@pytest.fixture(autouse=True)
def small_transactions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "where" in request.fixturenames:
        monkeypatch.setattr("airflow_kstreams.batch.replay.replay._BATCH_RECORDS", 2)
        monkeypatch.setattr("airflow_kstreams.batch.protocol.replay_records.BLOCK_OFFSETS", 2)


def calls_of(where: Where, limit: int | None) -> list[str]:
    """The port calls of a replay that nothing happens to, in several transactions."""
    scene, counting = Scene(), CrashingAt()
    fill(scene)
    scene.replay("r1", counting.cluster(scene.kafka), where, limit)
    made = counting.calls
    assert made.count("writer.commit") >= 3
    while made[-1].endswith(".close"):
        made.pop()
    return made


def died(number: int, where: Where, limit: int | None, *, after: bool) -> Scene:
    scene = Scene()
    fill(scene)
    with pytest.raises(Crash):
        scene.replay("r1", CrashingAt(number, after=after).cluster(scene.kafka), where, limit)
    return scene


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("where", "limit", "expected"), SELECTED)
def test_selected_letters_are_back_once_when_the_replay_died_anywhere(
    where: Where, limit: int | None, expected: list[str], after: bool
) -> None:
    undisturbed = Scene()
    fill(undisturbed)
    unselected = undisturbed.replay("r1", None, where, limit).unselected
    for number, name in enumerate(calls_of(where, limit)):
        scene = died(number, where, limit, after=after)

        done = scene.replay("r1", None, where, limit)

        assert scene.values_back() == expected, (number, name)
        assert done.unselected == unselected, (number, name)
        assert done.records == len(expected), (number, name)
        assert scene.replay("r1", None, where, limit) == done
        assert scene.replay("rest").records == len(ALL) - len(expected), (number, name)
        assert scene.values_back() == ALL, (number, name)
        assert not marks(scene), (number, name)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("between", [None, IN, MID])
@pytest.mark.parametrize(("where", "limit", "expected"), SELECTED)
def test_letters_are_back_once_when_another_selection_came_between(
    where: Where, limit: int | None, expected: list[str], between: Where, after: bool
) -> None:
    for number, name in enumerate(calls_of(where, limit)):
        scene = died(number, where, limit, after=after)

        other = scene.replay("r2", None, between)
        first = scene.replay("r1", None, where, limit)

        back = scene.values_back()
        assert len(back) == len({*back}) == first.records + other.records, (number, name)
        assert {*back} <= {*ALL}
        if between == IN and limit is None:
            assert first.records == len(expected), (number, name)
        assert scene.replay("rest").records == len(ALL) - len(back), (number, name)
        assert scene.values_back() == ALL, (number, name)


@pytest.mark.parametrize("between", [None, IN, MID])
@pytest.mark.parametrize(("where", "limit", "expected"), SELECTED)
def test_letters_are_back_once_when_two_selections_are_at_work(
    where: Where, limit: int | None, expected: list[str], between: Where
) -> None:
    overtaken = 0
    for number, name in enumerate(calls_of(where, limit)):
        scene = Scene()
        fill(scene)
        meanwhile = Meanwhile(number, partial(scene.replay, "r2", None, between))
        try:
            scene.replay("r1", FaultyCluster(scene.kafka, meanwhile), where, limit)
        except RunBusyError:
            overtaken += 1
        first = scene.replay("r1", None, where, limit)
        assert first.records <= len(expected)
        scene.replay("rest")
        assert scene.values_back() == ALL, (number, name)
    assert overtaken > 5


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(("where", "limit", "expected"), SELECTED)
def test_selected_letters_are_back_once_when_the_answer_of_a_commit_is_lost(
    where: Where, limit: int | None, expected: list[str], number: int
) -> None:
    scene = Scene()
    fill(scene)

    done: Replay = scene.replay("r1", FaultyCluster(scene.kafka, LosesAnswers(number)), where, limit)

    assert scene.values_back() == expected
    assert done.records == len(expected)
    assert scene.replay("rest").records == len(ALL) - len(expected)
    assert scene.values_back() == ALL
