from __future__ import annotations

import doctest
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from airflow_kstreams.streams import (
    EqualIds,
    FixedGroups,
    KStreamBuilder,
    PartitionGrouper,
    Topology,
    TopologyBuilder,
    serdes,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import CallSite
from airflow_kstreams.streams.partitioning import partition_groups, topic_growth
from airflow_kstreams.streams.partitioning.partition_groups import (
    GroupingRequest,
    Groups,
    equal_ids,
    group_of_partition,
    grouped,
    named,
    partitions_in,
)
from airflow_kstreams.streams.ports import TopicPartition

COUNTS = {"left": 3, "right": 3}
SITE = CallSite(file="app.py", line=7)


class Scripted:
    """A grouper whose answers are written down."""

    id = "scripted"

    def __init__(self, answer: Callable[[Mapping[str, int]], Any]) -> None:
        self.group = answer


def ask(answer: Any, *, joined: bool = True) -> Groups:
    grouper = Scripted(answer if callable(answer) else lambda _: answer)
    copartitioned = [{"left", "right"}] if joined else []
    return grouped(grouper, SITE, GroupingRequest(subtopology=1, counts=COUNTS, copartitioned=copartitioned))


def of(*partitions: str) -> set[TopicPartition]:
    """``of("left-0")``."""
    split = (name.rpartition("-") for name in partitions)
    return {TopicPartition(topic, int(number)) for topic, _, number in split}


GOOD = [of("left-0", "left-2", "right-0", "right-2"), of("left-1", "right-1")]


def test_groups_are_sorted_plain_data_when_they_are_right() -> None:
    groups = ask(GOOD)
    assert groups == ({"left": (0, 2), "right": (0, 2)}, {"left": (1,), "right": (1,)})
    assert partitions_in(groups[0]) == sorted(GOOD[0])
    assert group_of_partition(groups)[TopicPartition("left", 1)] == 1


def test_tuples_do_when_a_grouper_does_not_use_the_type() -> None:
    plain = [[tuple(partition) for partition in group] for group in GOOD]
    assert ask(plain) == ask(GOOD)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (GOOD[:1], "leaves partitions out .*: left-1, right-1$"),
        ([*GOOD, of("left-0")], "names partitions twice .*: left-0$"),
        ([[*GOOD[0], TopicPartition("left", 0)], GOOD[1]], "names partitions twice .*: left-0$"),
        ([*GOOD, of("left-3", "middle-0")], "partitions that do not exist .*: left-3, middle-0$"),
        ([*GOOD, set()], "leaves group 2 of 3 empty"),
        ([], "leaves partitions out .*: left-0, left-1, left-2, right-0, right-1 and 1 more$"),
        (None, "returned None for"),
        (["left-0"], r"returned \['left-0'\]"),
        ([{("left", "0")}], r"expected a list of sets of TopicPartition"),
        ([{("left", True)}], r"expected a list of sets of TopicPartition"),
        ([7], r"expected a list of sets of TopicPartition"),
        ({"left": 0}, r"expected a list of sets of TopicPartition"),
    ],
)
def test_what_is_wrong_is_named_when_groups_cannot_be(answer: Any, text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        ask(answer)
    assert re.search(text, caught.value.cause)
    assert "partition grouper 'scripted' (app.py:7)" in caught.value.cause
    assert "subtopology 1 with 3 partitions of 'left', 3 partitions of 'right'" in caught.value.cause
    assert caught.value.fix


def test_both_lists_are_named_when_joined_topics_are_split() -> None:
    crossed = [of("left-0", "left-2", "right-0", "right-1"), of("left-1", "right-2")]
    with pytest.raises(
        TopologyError, match=r"group 0 holds partitions 0, 2 of 'left' and 0, 1 of 'right'"
    ) as caught:
        ask(crossed)
    assert "app.py:7" in caught.value.cause
    assert ask(crossed, joined=False)[1] == {"left": (1,), "right": (2,)}


def test_missing_list_is_named_when_a_group_lacks_a_joined_topic() -> None:
    apart = [of("left-0", "left-1", "left-2"), of("right-0", "right-1", "right-2")]
    with pytest.raises(TopologyError, match=r"0, 1, 2 of 'left' and none of 'right'"):
        ask(apart)


def test_grouper_is_refused_when_it_answers_differently_every_time() -> None:
    answers = [GOOD, GOOD[::-1]]
    with pytest.raises(TopologyError, match="gave two different answers"):
        ask(lambda _: answers.pop())


def test_line_is_named_when_the_grouper_fails() -> None:
    def fails(counts: Mapping[str, int]) -> Any:
        return counts["nothing of this name"]

    with pytest.raises(TopologyError, match="KeyError: 'nothing of this name' at ") as caught:
        ask(fails)
    assert f"{__file__}:{fails.__code__.co_firstlineno + 1}" in caught.value.cause


def test_grouper_cannot_change_the_counts_when_it_tries() -> None:
    def greedy(counts: Any) -> Any:
        counts.clear()
        return GOOD

    assert ask(greedy) == ask(GOOD)


def test_equal_ids_follow_the_widest_topic_when_counts_differ() -> None:
    assert equal_ids({"a": 1, "b": 2}) == ({"a": (0,), "b": (0,)}, {"b": (1,)})


def test_first_partitions_are_named_when_there_are_many() -> None:
    many = {TopicPartition("a", number) for number in range(12)}
    assert named(many) == "a-0, a-1, a-2, a-3, a-4 and 7 more"


class Backwards:
    """A grouper as a user writes one."""

    id = "backwards"

    def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
        widest = max(partitions_per_topic.values())
        return [
            {TopicPartition(topic, n) for topic, count in partitions_per_topic.items() if n < count}
            for n in reversed(range(widest))
        ]


def counts_by_value(grouper: PartitionGrouper | None) -> Topology:
    builder = KStreamBuilder(
        default_key_serde=serdes.string(), default_value_serde=serdes.string(), partition_grouper=grouper
    )
    stream = builder.stream("in")
    stream.group_by(lambda _, value: value).count(store="c").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    return builder.build()


@pytest.mark.parametrize("module", [partition_groups, topic_growth])
def test_examples_run_when_a_docstring_has_them(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_partitions_of_one_number_are_together_when_no_grouper_is_given() -> None:
    topology = counts_by_value(None)
    assert topology.partition_groups("app", {"in": 2, "app-c-repartition": 3}) == {
        0: ({"in": (0,)}, {"in": (1,)}),
        1: (
            {"app-c-repartition": (0,)},
            {"app-c-repartition": (1,)},
            {"app-c-repartition": (2,)},
        ),
    }


def test_grouper_sees_internal_topics_without_application_id_when_asked() -> None:
    asked: list[Mapping[str, int]] = []

    class Curious(Backwards):
        def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
            asked.append(partitions_per_topic)
            return super().group(partitions_per_topic)

    groups = counts_by_value(Curious()).partition_groups("app", {"in": 2, "app-c-repartition": 2})
    assert {"in": 2} in asked
    assert {"c-repartition": 2} in asked
    assert groups[1] == ({"app-c-repartition": (1,)}, {"app-c-repartition": (0,)})


def test_groups_stay_as_many_when_topics_grow_under_fixed_groups() -> None:
    for count in range(3, 9):
        groups = FixedGroups(3).group({"in": count})
        assert [sorted(n for _, n in group) for group in groups] == [
            [n for n in range(count) if n % 3 == number] for number in range(3)
        ]


def test_fixed_groups_are_fewer_when_there_are_fewer_partitions() -> None:
    assert FixedGroups(4).group({"in": 2, "other": 1}) == EqualIds().group({"in": 2, "other": 1})


def test_topology_hash_changes_when_the_grouper_is_not_the_default() -> None:
    default = counts_by_value(None).topology_hash()
    assert counts_by_value(EqualIds()).topology_hash() == default
    hashes = {counts_by_value(g).topology_hash() for g in (Backwards(), FixedGroups(2), FixedGroups(3))}
    assert len(hashes | {default}) == 4
    assert counts_by_value(None).plan("app").partition_grouper == ""
    assert counts_by_value(Backwards()).plan("app").partition_grouper == "backwards"


class Nameless(Backwards):
    id = ""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Backwards, "is given the class Backwards, expected an instance"),
        (object(), "has no method group"),
        (Nameless(), "partition grouper Nameless at .* has the id ''"),
    ],
)
@pytest.mark.parametrize("builder", [KStreamBuilder, TopologyBuilder])
def test_users_line_is_named_when_it_is_no_grouper(builder: Any, given: Any, text: str) -> None:
    with pytest.raises(TopologyError, match=text) as caught:
        builder(partition_grouper=given)
    assert f"{__file__}:" in caught.value.cause


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_users_line_is_named_when_the_number_of_groups_cannot_be(count: Any) -> None:
    with pytest.raises(TopologyError, match="expected the number of groups") as caught:
        FixedGroups(count)
    assert f"{__file__}:" in caught.value.cause
