"""Divides offsets into requests that the group's coordinator can take.

The coordinator writes what is committed at once as one batch of its own topic, and refuses what does not fit
there (about 1 MB): 3,400 offsets with 298 bytes beside each do not. Several requests of one transaction are
seen together, because the transaction commits them together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition

#: Offsets of one request; committed ones are asked for in such portions, too.
PORTION_OFFSETS = 1_000
#: Bytes of one request, half of what the smallest coordinator takes.
PORTION_BYTES = 500_000
#: Of an offset beside topic and metadata, as the coordinator keeps it.
_OVERHEAD_BYTES = 64


def portions(
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> Iterator[dict[TopicPartition, CommittedOffset]]:
    """Cut offsets into what a request may carry, in their order; none of them is empty."""
    portion: dict[TopicPartition, CommittedOffset] = {}
    size = 0
    for partition, offset in offsets.items():
        more = len(partition.topic) + len(offset.metadata.encode()) + _OVERHEAD_BYTES
        if portion and (len(portion) >= PORTION_OFFSETS or size + more > PORTION_BYTES):
            yield portion
            portion, size = {}, 0
        portion[partition] = offset
        size += more
    if portion:
        yield portion


def partition_portions(partitions: Collection[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Cut partitions into what a request for committed offsets may name."""
    wanted = list(partitions)
    for at in range(0, len(wanted), PORTION_OFFSETS):
        yield wanted[at : at + PORTION_OFFSETS]
