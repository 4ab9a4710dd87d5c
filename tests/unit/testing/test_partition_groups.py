"""Partition groups of the user's own, in the test driver: a task, and a changelog partition, per group."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from airflow_kstreams.streams import (
    ConfigError,
    FixedGroups,
    KStreamBuilder,
    PartitionGrouper,
    TopicPartition,
    Topology,
    TopologyError,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver


class NoGroups:
    """Forgets every partition."""

    id = "no-groups"

    def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
        return []


def counts(grouper: PartitionGrouper) -> Topology:
    builder = KStreamBuilder(
        default_key_serde=serdes.string(), default_value_serde=serdes.string(), partition_grouper=grouper
    )
    builder.stream("in").group_by_key().count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    return builder.build()


def test_partitions_of_a_group_share_its_state_when_a_grouper_put_them_together() -> None:
    with TopologyTestDriver(counts(FixedGroups(2)), application_id="app", partitions={"in": 4}) as driver:
        for partition in (0, 2, 3):
            driver.pipe_input("in", key="k", value="v", timestamp_ms=partition, partition=partition)
        assert [record.value for record in driver.read_output("out")] == [1, 2, 1]
        assert [driver.store("counts", group).get("k") for group in range(2)] == [2, 1]
        changes = driver.read_output("app-counts-changelog")
        assert [(change.partition, change.value) for change in changes] == [(0, 1), (0, 2), (1, 1)]
        with pytest.raises(ConfigError, match="has 2 tasks"):
            driver.store("counts", 2)


def test_topology_is_refused_when_its_groups_cannot_be() -> None:
    with pytest.raises(TopologyError, match=r"leaves partitions out .* with 2 partitions of 'in'"):
        TopologyTestDriver(counts(NoGroups()), application_id="app", partitions={"in": 2})
