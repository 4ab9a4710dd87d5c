"""What a run says of partitions that wait."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.growing.grown_groups import blocked_partitions, blocked_warnings
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.ports import TopicPartition
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("blocked-partitions-are-said")


def test_run_says_which_partitions_it_leaves_to_the_next_one() -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    first = scene.run()
    assert first.warnings == ()
    scene.send(KEYS, 1)
    scene.grow(3)
    scene.send(KEYS, 2)
    (warning,) = scene.run().warnings
    read = first.stops[TopicPartition("in", 0)]
    (boundary,) = scene.recorded.boundaries["in-2"].values()
    assert f": in-2 waits for in-0 (at {read} of {boundary}): the next run reads them" in warning
    assert scene.run().warnings == ()


def test_run_says_that_they_wait_longer_when_it_stops_before_what_they_wait_for() -> None:
    scene = Scene(1, settings={"autostop.at": "interval_end"})
    scene.send(["a"], 0, timestamp_ms=5)
    scene.app.run("run-0", interval_ms=(0, 10))
    scene.send(["a"], 1, timestamp_ms=15)
    scene.send(["a"], 2, timestamp_ms=25)
    scene.grow(2)
    scene.send([next(key for key in KEYS if partition_of_key(key.encode(), 1, 2) == 1)], 3, timestamp_ms=15)
    first, second, third = (
        scene.app.run(f"run-{number}", interval_ms=(number * 10, number * 10 + 10)) for number in (1, 2, 3)
    )
    assert len(first.warnings) == 1
    assert "in-1 waits for in-0 (at 1 of 3): this run stops before that" in first.warnings[0]
    assert "in-1 waits for in-0 (at 2 of 3): the next run reads them" in second.warnings[0]
    assert third.warnings == ()


def _entry(boundaries: dict[str, dict[int, int]], groups: Groups) -> GroupedPartitions:
    return GroupedPartitions(partitions={"in": 9}, groups=groups, boundaries=boundaries)


def test_ancestors_at_their_boundaries_are_told_from_those_ahead() -> None:
    entry = _entry({"in-8": {4: 10, 0: 7}, "in-4": {0: 5}}, ({"in": (*range(9),)},))
    positions = {TopicPartition("in", 0): 7, TopicPartition("in", 4): 4}
    waits = blocked_partitions({3: entry}, positions.get)
    assert [(str(each.partition), each.subtopology, each.group, each.ahead) for each in waits] == [
        ("in-4", 3, 0, 0),
        ("in-8", 3, 0, 6),
    ]
    assert [str(ancestor) for ancestor in waits[1].waits_for] == ["in-4 (at 4 of 10)"]
    assert [ancestor.partition.partition for ancestor in waits[1].ancestors] == [0, 4]
    unknown = blocked_partitions({3: entry}, lambda tp: None)
    assert [each.ahead for each in unknown] == [5, 17]


def test_warning_stays_short_when_many_partitions_wait() -> None:
    many = {f"in-{number}": {0: 9} for number in range(1, 9)}
    entry = _entry(many, ({"in": (*range(9),)},))
    (warning,) = blocked_warnings(blocked_partitions({0: entry}, lambda tp: 0), {})
    assert warning.count("waits for in-0") == 5
    assert "and 3 more" in warning
    assert blocked_warnings([], {}) == ()
