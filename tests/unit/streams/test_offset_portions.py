from __future__ import annotations

import pytest

from airflow_kstreams.streams.bounded_read import (
    PORTION_BYTES,
    PORTION_OFFSETS,
    partition_portions,
    portions,
)
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import InMemoryKafka

pytestmark = pytest.mark.promise("offset-commits-fit")


def offsets(count: int, metadata: str) -> dict[TopicPartition, CommittedOffset]:
    return {TopicPartition("in", number): CommittedOffset(number, metadata) for number in range(count)}


@pytest.mark.parametrize(
    ("count", "metadata"), [(0, ""), (1, "x" * 4096), (3_400, "x" * 298), (999, "é" * 2000)]
)
def test_portions_are_small_and_hold_everything_when_many_offsets_are_committed(
    count: int, metadata: str
) -> None:
    wanted = offsets(count, metadata)
    found = list(portions(wanted))
    assert [tp for portion in found for tp in portion] == list(wanted)
    assert {tp: at for portion in found for tp, at in portion.items()} == wanted
    assert all(0 < len(portion) <= PORTION_OFFSETS for portion in found)
    sizes = [sum(len(at.metadata.encode()) for at in portion.values()) for portion in found]
    assert max(sizes, default=0) <= PORTION_BYTES


def test_partitions_are_asked_for_in_portions() -> None:
    wanted = list(offsets(2 * PORTION_OFFSETS + 1, ""))
    found = list(partition_portions(wanted))
    assert [len(portion) for portion in found] == [PORTION_OFFSETS, PORTION_OFFSETS, 1]
    assert [tp for portion in found for tp in portion] == wanted


def test_offsets_in_portions_are_seen_together_when_one_transaction_commits_them() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=3_400)
    wanted = offsets(3_400, "x" * 298)
    writer = kafka.writer(transactional_id="app-0_0")
    reader = kafka.reader(group_id="app", isolation="read_uncommitted")
    writer.init_transactions()
    writer.begin()
    writer.send_offsets(wanted, reader)
    assert reader.committed(wanted) == {}
    writer.commit()
    assert reader.committed(wanted) == wanted


def test_offsets_are_committed_in_portions_outside_transactions_too() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=3_400)
    reader = kafka.reader(group_id="g" * 200)
    reader.commit(offsets(3_400, "x" * 298))
    assert reader.committed(offsets(3_400, "")) == offsets(3_400, "x" * 298)
