from __future__ import annotations

import doctest
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from airflow_kstreams.streams import (
    EqualIds,
    FixedGroups,
    KStreamBuilder,
    PartitionGrouper,
    TopicPartition,
    Topology,
    TopologyBuilder,
    TopologyError,
    serdes,
)
from airflow_kstreams.streams.partitioning import partition_groups, topic_growth


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
