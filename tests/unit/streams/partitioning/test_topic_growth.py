from __future__ import annotations

import pytest

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.partitioning.topic_growth import partition_counts
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan


def plan(*subs: SubtopologyPlan, **repartition: int | None) -> TopologyPlan:
    return TopologyPlan(
        application_id="app", topology_hash="h", subtopologies=subs, repartition_topics=repartition
    )


def writing(*sources: str, sink: str) -> SubtopologyPlan:
    return SubtopologyPlan(id=0, sources=sources, sinks=(sink,))


def reading(*sources: str) -> SubtopologyPlan:
    return SubtopologyPlan(id=1, sources=sources, sinks=("out",), copartitioned=(sources,))


def test_repartition_topic_is_as_wide_as_its_writers_largest_source_when_nothing_else_is_said() -> None:
    counts = partition_counts(
        plan(writing("a", "b", sink="r"), reading("r"), r=None), {"a": 2, "b": 5, "out": 9}
    )
    assert counts == {"a": 2, "b": 5, "r": 5}


def test_repartition_topic_follows_what_it_is_joined_with_when_that_exists() -> None:
    assert (
        partition_counts(plan(writing("a", sink="r"), reading("r", "t"), r=None), {"a": 2, "t": 3})["r"] == 3
    )


def test_repartition_topic_keeps_the_count_it_has_when_it_exists() -> None:
    assert partition_counts(plan(writing("a", sink="r"), reading("r"), r=None), {"a": 2, "r": 4})["r"] == 4


def test_repartition_topic_takes_its_own_count_when_it_was_given_one() -> None:
    assert partition_counts(plan(writing("a", sink="r"), reading("r"), r=6), {"a": 2})["r"] == 6


def test_both_counts_are_named_when_a_repartition_topic_has_another_than_asked_for() -> None:
    with pytest.raises(TopologyError, match="r has 4 partitions, the topology asks for 6"):
        partition_counts(plan(writing("a", sink="r"), reading("r"), r=6), {"a": 2, "r": 4})


def test_both_counts_are_named_when_topics_that_meet_are_unequal() -> None:
    with pytest.raises(TopologyError, match="'s' has 2 and 't' has 3"):
        partition_counts(plan(reading("s", "t")), {"s": 2, "t": 3})
