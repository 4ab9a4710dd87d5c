"""What is seen of a dead-letter topic, on the in-memory Kafka."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.dead_letters import DeadLetterTopic, Fate
from airflow_kstreams.batch.replay.selection import Selection
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import FaultyCluster
from tests.support.kafka.dead_letter_scene import DEAD, SETTINGS, Scene
from tests.support.kafka.interception import CrashingAt, Once

pytestmark = pytest.mark.promise("looking-at-dead-letters-changes-nothing")

ALL = Selection()


def look(scene: Scene, interceptor: Any = None) -> DeadLetterTopic:
    cluster = scene.kafka if interceptor is None else FaultyCluster(scene.kafka, interceptor)
    return DeadLetterTopic(cluster, SETTINGS, clock=scene.clock)


def test_newest_are_those_with_the_latest_times_in_whatever_order_they_died() -> None:
    scene = Scene(partitions=3)
    times = list(range(1, 61))
    random.Random(7).shuffle(times)
    for number, time_ms in enumerate(times):
        scene.kafka.append(DEAD, b"v", b"k", partition=number % 3, timestamp_ms=time_ms)

    found = look(scene).survey(ALL, newest=5)

    assert [seen.timestamp_ms for seen in found.newest] == [60, 59, 58, 57, 56]
    assert (found.letters, found.groups[0].first_ms, found.groups[0].last_ms) == (60, 1, 60)
    assert look(scene).survey(ALL, newest=0).newest == ()


def test_groups_count_what_waits_and_what_was_replayed() -> None:
    scene = Scene(partitions=2)
    for number in range(10):
        scene.letter(str(number), "mid", 0, node=f"n{number % 2}", into=number % 2)
    scene.timers_letter(node="n0")
    scene.replay("r1", where={"node": "n1"}, limit=3)

    found = look(scene).survey(ALL, newest=20)

    counts = {
        group.node: (group.letters, group.waiting, group.replayed) for group in found.groups if group.topic
    }
    assert counts == {"n0": (5, 5, 0), "n1": (5, 2, 3)}
    assert Counter(seen.fate for seen in found.newest) == {Fate.WAITING: 7, Fate.REPLAYED: 3, Fate.STAYS: 1}


def test_letters_of_open_and_aborted_transactions_are_not_seen() -> None:
    scene = Scene()
    scene.letter("a")
    for transactional_id, aborted in (("aborted", True), ("open", False)):
        writer = scene.kafka.writer(transactional_id=transactional_id)
        writer.init_transactions()
        writer.begin()
        writer.produce(DEAD, b"late", b"k", 0, 1, None)
        writer.flush()
        if aborted:
            writer.abort()

    assert look(scene).survey(ALL, newest=9).letters == 1
    for offset in (1, 3):
        with pytest.raises(ConfigError, match=f"{DEAD}-0@{offset} has no dead letter"):
            look(scene).letters_at(TopicPartition(DEAD, 0), offset)


def test_reading_ends_where_the_topic_ended_when_it_began() -> None:
    scene = Scene()
    for value in "abc":
        scene.letter(value)
    late = Once("reader.poll", 1, lambda: scene.letter("late"))

    found = look(scene, late).survey(ALL, newest=9)

    assert late.left == 0
    assert found.letters == 3


def test_looking_writes_nothing_and_commits_nothing() -> None:
    scene = Scene()
    scene.letter("a")
    scene.replay("r1")
    calls = CrashingAt()

    look(scene, calls).survey(ALL, newest=9)
    look(scene, calls).letters_at(TopicPartition(DEAD, 0), 0)

    assert {name.partition(".")[0] for name in calls.calls} == {"cluster", "admin", "reader"}
    assert not {"cluster.writer", "reader.commit", "admin.create_topics"} & {*calls.calls}


def test_nothing_is_seen_as_replayed_when_the_topic_was_created_again() -> None:
    scene = Scene()
    scene.letter("a")
    scene.replay("r1")
    scene.kafka.admin().delete_topics([DEAD])
    scene.kafka.create_topic(DEAD)
    scene.letter("b")

    assert [seen.fate for seen in look(scene).survey(ALL, newest=9).newest] == [Fate.WAITING]


def test_letter_is_found_where_it_lies_and_where_its_record_was_consumed() -> None:
    scene = Scene()
    scene.letter("a", "in", 1)
    scene.letter("b", "in", 2)
    by_itself = look(scene).letters_at(TopicPartition(DEAD, 0), 1)
    by_record = look(scene).letters_at(TopicPartition("in", 2), 0)

    assert [seen.letter.record.value() for seen in by_itself] == [b"b"]
    assert [seen.letter.place for seen in by_record] == [f"{DEAD}-0@1"]
