"""Partition groups over random topics: what a grouper may answer, which growth is legal, and where keys go.

The oracles build what is legal (or break it in one place) instead of checking for it.
"""

from __future__ import annotations

from math import lcm
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.batch.ledger.facts import Assignment, GroupedPartitions
from airflow_kstreams.batch.run.assignment import next_assignment, refuse_regrouping
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.partitioning.partition_groups import GroupingRequest, Groups, grouped
from airflow_kstreams.streams.partitioning.topic_growth import keys_stay
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import TopicPartition

COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 6), min_size=1)
Placement = dict[tuple[str, int], int]


class Fixed:
    """A grouper that answers what it was made with."""

    id = "fixed"

    def __init__(self, answer: list[set[TopicPartition]]) -> None:
        self.answer = answer

    def group(self, partitions_per_topic: Any) -> list[set[TopicPartition]]:
        return self.answer


def partitions_of(counts: dict[str, int]) -> list[tuple[str, int]]:
    return [(topic, number) for topic, count in counts.items() for number in range(count)]


def placed(data: st.DataObject, counts: dict[str, int], groups: int, kept: Placement) -> Placement:
    """Every partition in a group; the first groups get one each, so that none is empty."""
    placement = dict(kept)
    for partition in partitions_of(counts):
        if partition not in placement:
            empty = sorted(set(range(groups)) - set(placement.values()))
            choice = st.just(empty[0]) if empty else st.integers(0, groups - 1)
            placement[partition] = data.draw(choice)
    return placement


def plain(placement: Placement) -> Groups:
    groups: list[dict[str, tuple[int, ...]]] = [{} for _ in range(max(placement.values()) + 1)]
    for (topic, number), group in sorted(placement.items()):
        groups[group][topic] = (*groups[group].get(topic, ()), number)
    return tuple(groups)


def entry(counts: dict[str, int], placement: Placement, changelog_id: str = "id-1") -> GroupedPartitions:
    return GroupedPartitions(
        partitions=counts, groups=plain(placement), changelogs={"app-s-log": changelog_id}
    )


def plan_of(counts: dict[str, int]) -> TopologyPlan:
    sub = SubtopologyPlan(
        id=0, sources=tuple(sorted(counts)), sinks=("out",), stores=("s",), changelogs={"s": "app-s-log"}
    )
    return TopologyPlan(application_id="app", topology_hash="h", subtopologies=(sub,))


def begin(recorded: Assignment, counts: dict[str, int], now: GroupedPartitions) -> Assignment:
    refuse_regrouping(recorded, plan_of(counts), {0: now}, keys_may_move=True)
    return next_assignment(recorded, {0: now}, run_id="run")


@settings(deadline=None)
@given(counts=COUNTS, data=st.data())
def test_checked_groups_are_what_was_answered_when_every_partition_is_in_one(
    counts: dict[str, int], data: st.DataObject
) -> None:
    total = len(partitions_of(counts))
    placement = placed(data, counts, data.draw(st.integers(1, total)), {})
    answer: list[set[TopicPartition]] = [set() for _ in range(max(placement.values()) + 1)]
    for (topic, number), group in placement.items():
        answer[group].add(TopicPartition(topic, number))
    request = GroupingRequest(subtopology=0, counts=counts)
    assert grouped(Fixed(answer), None, request) == plain(placement)

    victim = TopicPartition(*data.draw(st.sampled_from(sorted(placement))))
    home = placement[victim.topic, victim.partition]
    broken = data.draw(st.sampled_from(["left out", "doubled", "invented", "empty"]))
    if broken == "left out":
        answer[home].discard(victim)
    elif broken == "doubled":
        answer.append({victim})
    elif broken == "invented":
        answer[home].add(TopicPartition(victim.topic, counts[victim.topic]))
    else:
        answer.insert(data.draw(st.integers(0, len(answer))), set())
    with pytest.raises(TopologyError):
        grouped(Fixed(answer), None, request)


@settings(deadline=None)
@given(counts=COUNTS, data=st.data())
def test_exactly_legal_growth_is_accepted_when_state_exists(
    counts: dict[str, int], data: st.DataObject
) -> None:
    number = data.draw(st.integers(1, len(partitions_of(counts))))
    before = placed(data, counts, number, {})
    first = begin(Assignment(), counts, entry(counts, before))
    assert first.version == 1

    grown = {topic: count + data.draw(st.integers(0, 3)) for topic, count in counts.items()}
    if data.draw(st.booleans()):
        grown["d"] = data.draw(st.integers(1, 3))
    after = placed(data, grown, number, before)
    second = begin(first, grown, entry(grown, after))
    assert (second is first) == (grown == counts)
    assert second.version == (1 if second is first else 2)

    # One partition elsewhere: an existing one in another group, a new one in a group of its own.
    victim = data.draw(st.sampled_from(sorted(after)))
    elsewhere = st.integers(0, number).filter(lambda group: group != after[victim])
    wrong = after | {victim: number if victim not in before else data.draw(elsewhere)}
    full = set(wrong.values()) == set(range(max(wrong.values()) + 1))
    if full:
        with pytest.raises(TopologyError):
            begin(first, grown, entry(grown, wrong))
        # Where no state depends on it, it is nobody's business.
        recreated = entry(grown, wrong, changelog_id="id-2")
        assert begin(first, grown, recreated) is not None
        stateless = msgspec.structs.replace(entry(grown, wrong), changelogs={})
        assert begin(first, grown, stateless) is not None


@given(before=st.lists(st.integers(0, 3), min_size=1, max_size=12), data=st.data())
def test_keys_stay_exactly_when_every_hash_keeps_its_group(before: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(len(before), 24))
    modulus = data.draw(st.sampled_from([1, 2, 3, 4, len(before)]))
    now = [*before, *(before[number % modulus % len(before)] for number in range(len(before), size))]
    every_hash = range(lcm(len(before), len(now)))
    expected = all(before[hashed % len(before)] == now[hashed % len(now)] for hashed in every_hash)
    assert keys_stay(before, now) == expected
