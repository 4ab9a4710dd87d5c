from __future__ import annotations

import doctest

import pytest

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.partitioning import (
    linear_hashing,
    partition_of_key,
    processor_of_partition,
    topic_growth,
)
from airflow_kstreams.streams.partitioning.topic_growth import ancestors, fitting_kinds, processor_of

pytestmark = pytest.mark.promise("new-partitions-wait-for-their-ancestors")


def test_processors_keep_their_partitions_in_the_specifications_own_story() -> None:
    # 10 partitions and processors; 15 partitions; 15 processors; 18 partitions.
    assert [processor_of_partition(p, 10, 10) for p in range(15)] == [*range(10), 0, 1, 2, 3, 4]
    assert [processor_of_partition(p, 10, 15) for p in range(15)] == [*range(15)]
    assert [processor_of_partition(p, 10, 15) for p in range(15, 18)] == [5, 6, 7]


@pytest.mark.parametrize(("initial", "now"), [(0, 3), (-1, 3), (4, 3)])
def test_counts_are_refused_when_nothing_grows_from_one_to_the_other(initial: int, now: int) -> None:
    with pytest.raises(TopologyError, match=f"{now} partitions cannot have grown from {initial}"):
        partition_of_key(b"key", initial, now)
    with pytest.raises(TopologyError, match=f"{now} processors cannot have grown from {initial}"):
        processor_of_partition(0, initial, now)


def test_partition_is_refused_when_it_is_negative() -> None:
    with pytest.raises(TopologyError, match="-1 is no partition"):
        processor_of_partition(-1, 4, 4)


def test_ancestors_take_in_every_count_that_was_passed_when_only_some_were_seen() -> None:
    assert ancestors(23, (4, 24), ["modulo"]) == {3, 7, 11}
    assert ancestors(23, (4, 8, 24), ["modulo"]) == {3, 7}
    assert ancestors(3, (4, 24), ["linear", "modulo"]) == frozenset()


def test_histories_differ_when_a_count_was_passed_and_seen() -> None:
    assert [processor_of(14, history, "modulo", 8) for history in ((4, 8, 24), (4, 24))] == [6, 2]


def test_growth_is_linear_when_a_count_is_no_multiple() -> None:
    assert fitting_kinds((4, 8, 12)) == ("linear",)


@pytest.mark.parametrize("module", [linear_hashing, topic_growth])
def test_examples_run_when_a_docstring_has_them(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted and not result.failed
