"""Where keys lie when topics grow: by linear hashing one partition at a time, and by the default partitioner.

The oracle splits: it keeps hashes in partitions and lets the next partition take what its parent gives away.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.streams.partitioning import partition_of_key, processor_of_partition
from airflow_kstreams.streams.partitioning.linear_hashing import key_hash, place
from airflow_kstreams.streams.partitioning.topic_growth import (
    GrowthKind,
    ancestors,
    fitting_kinds,
    kinds_agree,
    places,
    processor_of,
)

HASHES = st.integers(0, 2**31 - 1)
FIRST = st.integers(1, 7)


def split(initial: int, partitions: int, period: int | None = None) -> list[set[int]]:
    """Every hash below a period, in its partition; made by letting partitions come one by one: the next one
    takes the upper half of the oldest partition that was not split since all had been.
    """
    if period is None:
        period = initial
        while period < 2 * partitions:
            period *= 2
    found = [{h for h in range(period) if h % initial == number} for number in range(initial)]
    modulus, next_ = initial, 0
    while len(found) < partitions:
        upper = {h for h in found[next_] if h % (2 * modulus) != next_}
        found[next_] -= upper
        found.append(upper)
        next_ += 1
        if next_ == modulus:
            modulus, next_ = 2 * modulus, 0
    return found


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int, int]:
    """N0 <= P <= Q."""
    first = draw(FIRST)
    processors = draw(st.integers(first, 6 * first))
    return first, processors, draw(st.integers(processors, 8 * first + processors))


@st.composite
def multiples(draw: st.DrawFn) -> tuple[int, ...]:
    history = [draw(st.integers(1, 4))]
    for _ in range(draw(st.integers(1, 3))):
        history.append(history[-1] * draw(st.integers(2, 5)))
    return tuple(history)


@pytest.mark.promise("partitioners-agree")
@given(first=FIRST, more=st.integers(0, 40))
def test_keys_lie_where_splitting_puts_them_when_partitions_come_one_by_one(first: int, more: int) -> None:
    for partition, hashes in enumerate(split(first, first + more)):
        assert {place(h, first, first + more) for h in hashes} == {partition}


@given(key=st.binary(max_size=12), count=st.integers(1, 50))
def test_partition_is_the_default_one_when_a_topic_has_not_grown(key: bytes, count: int) -> None:
    assert partition_of_key(key, count, count) == key_hash(key) % count


@given(hashed=HASHES, numbers=counts())
def test_processor_of_a_key_does_not_depend_on_the_partitions(
    hashed: int, numbers: tuple[int, int, int]
) -> None:
    first, processors, partitions = numbers
    partition = place(hashed, first, partitions)
    assert processor_of_partition(partition, first, processors) == place(hashed, first, processors)
    assert processor_of(partition, (first, partitions), "linear", processors) == place(
        hashed, first, processors
    )


@given(first=FIRST, more=st.integers(0, 30))
def test_the_next_processor_takes_keys_of_one_other_and_the_computed_share(first: int, more: int) -> None:
    period = first * 64
    before, after = split(first, first + more, period), split(first, first + more + 1, period)
    moved = [(old, new) for old, new in zip(before, after, strict=False) if old != new]
    assert len(moved) == 1
    ((old, new),) = moved
    assert old - new == after[-1]
    # The parent's share of all keys, halved.
    level = first
    while 2 * level <= first + more:
        level *= 2
    assert Fraction(len(after[-1]), period) == Fraction(1, 2 * level)


@given(history=multiples(), hashed=HASHES, data=st.data())
def test_processor_of_a_key_is_its_partition_of_an_earlier_count_when_counts_are_multiples(
    history: tuple[int, ...], hashed: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(history) - 1))
    assert processor_of(hashed % history[-1], history, "modulo", history[at]) == hashed % history[at]
    # Between two counts: wherever the key lies, at any known count that has all processors.
    processors = data.draw(st.integers(history[0], history[-1]))
    found = {
        processor_of(hashed % count, history[: number + 1], "modulo", processors)
        for number, count in enumerate(history)
        if count >= processors
    }
    assert len(found) == 1


@given(hashed=HASHES, numbers=counts())
def test_a_key_lay_in_its_partition_or_an_ancestor_when_hashing_is_linear(
    hashed: int, numbers: tuple[int, int, int]
) -> None:
    first, _, last = numbers
    lain = {place(hashed, first, count) for count in range(first, last + 1)}
    now = place(hashed, first, last)
    assert (
        lain == places(hashed, (first, last), "linear") == {now, *ancestors(now, (first, last), ["linear"])}
    )


@given(history=multiples(), hashed=HASHES, data=st.data())
def test_a_key_lay_in_its_partition_or_an_ancestor_when_some_counts_were_not_seen(
    history: tuple[int, ...], hashed: int, data: st.DataObject
) -> None:
    seen = (history[0], *(c for c in history[1:-1] if data.draw(st.booleans())), history[-1])
    now = hashed % history[-1]
    lain = {hashed % count for count in history}
    assert lain <= places(hashed, seen, "modulo") <= {now, *ancestors(now, seen, ["modulo"])}


@given(first=FIRST, doublings=st.lists(st.integers(1, 3), max_size=2), hashed=HASHES)
def test_kinds_agree_when_counts_only_double(first: int, doublings: list[int], hashed: int) -> None:
    history = [first]
    for power in doublings:
        history.append(history[-1] << power)
    assert kinds_agree(tuple(history))
    kinds: tuple[GrowthKind, ...] = fitting_kinds(tuple(history))
    assert len({places(hashed, tuple(history), kind) for kind in kinds}) == 1
    assert len({ancestors(hashed % history[-1], tuple(history), [kind]) for kind in kinds}) == 1


@pytest.mark.parametrize("history", [(4, 12), (4, 8, 24), (1, 3), (2, 4, 20)])
def test_kinds_differ_for_some_key_when_a_count_is_another_multiple(history: tuple[int, ...]) -> None:
    assert not kinds_agree(history)
    period = lcm(*history) * 16
    assert any(places(h, history, "linear") != places(h, history, "modulo") for h in range(period))
