"""Whatever the network does, the order of the records is a function of the logs alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams.ports import Record, TopicPartition
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from tests.support.examples import examples
from tests.support.topology.records import FakeRecord

logs = st.lists(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 20)), max_size=25).map(
        lambda steps: [(sum(gap for gap, _ in steps[: n + 1]), time) for n, (_, time) in enumerate(steps)]
    ),
    min_size=1,
    max_size=4,
)


def one_by_one(log: dict[TopicPartition, list[tuple[int, int]]]) -> list[tuple[TopicPartition, int]]:
    """The rule, naively: among all heads the smallest (timestamp, partition)."""
    heads = dict.fromkeys(log, 0)
    order: list[tuple[TopicPartition, int]] = []
    while True:
        live = [(log[p][n][1], p) for p, n in heads.items() if n < len(log[p])]
        if not live:
            return order
        _, chosen = min(live)
        order.append((chosen, log[chosen][heads[chosen]][0]))
        heads[chosen] += 1


def place_of(record: Record) -> TopicPartition:
    return TopicPartition(record.topic(), record.partition())


@pytest.mark.promise("same-slice-same-output")
@settings(max_examples=examples(300), deadline=None)
@given(
    data=logs, buffered=st.integers(1, 6), seed=st.integers(0, 10_000), mixed_share=st.sampled_from([0, 0.5])
)
def test_order_is_the_rules_when_fetches_are_cut_anyhow(
    data: list[list[tuple[int, int]]], buffered: int, seed: int, mixed_share: float
) -> None:
    rng = random.Random(seed)
    log = {TopicPartition("tu"[number % 2], number): entries for number, entries in enumerate(data)}
    stops = {
        p: (entries[-1][0] + rng.randint(1, 4) if entries else rng.randint(0, 3))
        for p, entries in log.items()
    }
    group = PartitionGroup({p: (0, stop) for p, stop in stops.items()}, buffered=buffered)
    sent = dict.fromkeys(log, 0)
    order: list[tuple[TopicPartition, int]] = []
    while not group.complete:
        partition = rng.choice(list(log))
        size = rng.randint(0, 5)
        batch = log[partition][sent[partition] : sent[partition] + size]
        sent[partition] += len(batch)
        group.add(
            partition,
            [
                FakeRecord(at=at, timestamp_ms=t, in_topic=partition.topic, in_partition=partition.partition)
                for at, t in batch
            ],
        )
        if sent[partition] == len(log[partition]):
            group.reached(partition, stops[partition])
        while (chosen := group.choose(rng.randint(1, 7))) is not None:
            done = rng.randint(1, len(chosen.records))  # a commit request may end a run early
            group.advance(chosen.partition, done)
            order.extend((chosen.partition, record.offset()) for record in chosen.records[:done])
            if rng.random() < mixed_share and (mixed := group.mix(rng.randint(1, 7))) is not None:
                for each, count in mixed.counts.items():
                    group.advance(each, count)
                order.extend((place_of(record), record.offset()) for record in mixed.records)
                assert [record.timestamp()[1] for record in mixed.records] == mixed.timestamps_ms
                assert [record.topic() for record in mixed.records] == mixed.topics
    assert order == one_by_one(log)
    assert group.positions() == stops
