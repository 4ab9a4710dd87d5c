"""The topic that says what came back is truncated, deleted or made anew: nothing comes back twice unasked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_kstreams.batch.inspect.dead_letters import DeadLetterTopic
from airflow_kstreams.batch.replay.selection import Selection
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from tests.support.kafka.dead_letter_scene import DEAD, SETTINGS, Scene

pytestmark = pytest.mark.promise("lost-replay-records-bring-nothing-back-twice")

REPLAYS, GROUP = f"{DEAD}-replays", f"{DEAD}-replay"
AT = TopicPartition(REPLAYS, 0)


def deleted(scene: Scene) -> None:
    scene.kafka.admin().delete_topics([REPLAYS])


def made_anew(scene: Scene) -> None:
    deleted(scene)
    scene.kafka.create_topic(REPLAYS)


def emptied(scene: Scene) -> None:
    end = scene.kafka.admin().end_offsets([AT], isolation="read_committed")[AT]
    scene.kafka.expire({AT: end})


def truncated(scene: Scene) -> None:
    scene.kafka.truncate(AT, 1)


LOSSES = [deleted, made_anew, emptied, truncated]


@pytest.fixture
def scene() -> Scene:
    return Scene(partitions=2)


@pytest.mark.parametrize("lose", LOSSES)
def test_letters_that_came_back_do_not_come_back_again(
    scene: Scene, lose: Callable[[Scene], None], caplog: pytest.LogCaptureFixture
) -> None:
    scene.letter("a")
    scene.letter("b", into=1)
    assert scene.replay("r1").records == 2
    lose(scene)
    scene.letter("c")

    assert scene.tool("r2").plan().records == 1
    listed = DeadLetterTopic(scene.kafka, SETTINGS, clock=scene.clock).survey(Selection(), newest=0)
    assert sum(group.waiting for group in listed.groups) == 1
    assert scene.replay("r2").records == 1
    assert scene.values_back() == ["a", "b", "c"]
    assert f"{REPLAYS} does not say that letters of {DEAD}-0 before offset 1 came back" in caplog.text
    assert scene.replay("r3").records == 0


def test_letters_that_came_back_do_not_come_back_again_when_the_last_replay_was_lost(scene: Scene) -> None:
    scene.letter("a")
    scene.replay("r1")
    kept = scene.kafka.admin().end_offsets([AT], isolation="read_committed")[AT]
    scene.letter("b")
    scene.replay("r2")
    scene.kafka.truncate(AT, kept)

    assert scene.replay("r2").records == 0
    assert scene.values_back() == ["a", "b"]


@pytest.mark.remedy("replay_records.Replays.known")
@pytest.mark.parametrize("lose", LOSSES)
def test_replay_is_refused_when_it_is_lost_which_letters_came_back_until_that_is_accepted(
    scene: Scene, lose: Callable[[Scene], None]
) -> None:
    for value in "abcd":
        scene.letter(value, node="odd" if value in "bd" else "even")
    scene.replay("r1", where={"node": "odd"})
    lose(scene)
    for ask in (scene.tool("r2").plan, lambda: scene.replay("r2")):
        with pytest.raises(ConfigError, match=f"2 letters of {DEAD}-0 came back from offset 0") as caught:
            ask()
    assert "--accept-repeats" in caught.value.fix
    assert scene.values_back() == ["b", "d"]

    assert scene.tool("r3", accept_repeats=True).run().records == 4

    assert scene.values_back() == ["a", "b", "b", "c", "d", "d"]
    scene.letter("e")
    assert scene.replay("r4").records == 1


def test_offsets_of_an_earlier_topic_say_nothing(scene: Scene) -> None:
    scene.letter("a")
    scene.replay("r1")
    reader = scene.kafka.reader(group_id=GROUP)
    partition = TopicPartition(DEAD, 0)
    before = reader.committed([partition])
    scene.kafka.admin().delete_topics([DEAD, REPLAYS])
    scene.kafka.create_topic(DEAD)
    reader.commit(before)
    scene.letter("b")

    assert scene.replay("r2").records == 1
    assert scene.values_back() == ["a", "b"]


def test_offsets_that_another_program_committed_say_nothing(scene: Scene) -> None:
    scene.letter("a")
    scene.kafka.reader(group_id=GROUP).commit({TopicPartition(DEAD, 0): CommittedOffset(1)})

    assert scene.replay().records == 1
