"""Implements the port ``ReaderPort`` in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from airflow_kstreams.streams.bounded_read import portions
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import CommittedOffset, Fetched, Isolation, Record, TopicPartition
from airflow_kstreams.testing.in_memory_kafka.broker import Broker


class InMemoryReader:
    """Reads assigned partitions, with the behaviour of ``kafka/reader.py``.

    An end is reported once: again only after the position moved.

    :param broker: the broker to read from.
    :param group_id: the group whose committed offsets it reads and writes.
    :param isolation: ``read_committed`` or ``read_uncommitted``.
    :param timeout_seconds: bound of a wait for committed offsets.
    """

    def __init__(
        self, broker: Broker, *, group_id: str, isolation: Isolation, timeout_seconds: float
    ) -> None:
        self._broker = broker
        self._group = group_id
        self._isolation: Isolation = isolation
        self._timeout_seconds = timeout_seconds
        self._positions: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._closed = False

    def position(self, partition: TopicPartition) -> int | None:
        """Return the next offset to read, None if the partition is not assigned."""
        return self._positions.get(partition)

    def group_metadata(self) -> str:
        """Return the group for which a transaction commits this reader's offsets."""
        self._refuse_closed()
        return self._group

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, each from its offset; replaces what was assigned before."""
        self._refuse_closed()
        self._broker.catch_up()
        for partition in starts:
            self._broker.log(partition, "assigning partitions")
        self._positions = dict(starts)
        self._told = {}
        self._paused = set()

    def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched:
        """Return the records that have arrived; wait up to the timeout only if none has.

        :raises KafkaClientError: a position lies outside the log, or the topic is gone.
        """
        self._refuse_closed()
        self._broker.catch_up()
        fetched = self._fetch(max_records)
        if not fetched.records and not fetched.ends and timeout_seconds > 0:
            self._broker.pause(timeout_seconds)
            fetched = self._fetch(max_records)
        return fetched

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions; they stay assigned."""
        self._refuse_closed()
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self._refuse_closed()
        self._paused.difference_update(partitions)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets; under read_committed, wait for pending transactions."""
        self._refuse_closed()
        broker = self._broker
        broker.catch_up()
        if self._isolation == "read_committed":
            broker.until(
                lambda: not broker.transactions.is_pending(self._group, partitions),
                "reading committed offsets",
                timeout_seconds=self._timeout_seconds,
            )
        return broker.committed(self._group, partitions)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit outside any transaction."""
        self._refuse_closed()
        if offsets:
            self._broker.catch_up()
            for portion in portions(offsets):
                self._broker.commit_offsets(self._group, portion)

    def close(self) -> None:
        """Drop the assignment. Closing twice is harmless."""
        self._positions = {}
        self._closed = True

    def _refuse_closed(self) -> None:
        if self._closed:
            raise KafkaClientError("this reader is closed", fix="make a new one", kafka_code="_STATE")

    def _fetch(self, max_records: int) -> Fetched:
        records: dict[TopicPartition, list[Record]] = {}
        ends: dict[TopicPartition, int] = {}
        random = self._broker.random
        left = max_records
        order = list(self._positions)
        if random is not None and len(order) > 1:
            random.shuffle(order)
        for partition in order:
            if partition in self._paused or left <= 0:
                continue
            limit = left if random is None else min(left, random.choice((0, 1, 2, 5, 1_000, 1_000)))
            found = self._advance(partition, limit, ends)
            if found:
                records[partition] = found
                left -= len(found)
        return Fetched(records, ends)

    def _advance(
        self, partition: TopicPartition, limit: int, ends: dict[TopicPartition, int]
    ) -> list[Record]:
        log = self._broker.log(partition, "reading")
        position = self._positions[partition]
        if not log.start <= position <= log.high_watermark:
            raise KafkaClientError(
                f"reading {partition}@{position}: the position to read from is not in the log, which holds "
                f"[{log.start}, {log.high_watermark})",
                fix="assign the reader an offset that the log holds, or its end",
                kafka_code="_AUTO_OFFSET_RESET",
            )
        if limit == 0:
            return []
        found, self._positions[partition] = log.read(position, limit, self._isolation)
        position = self._positions[partition]
        if len(found) < limit and self._told.get(partition) != position:
            self._told[partition] = ends[partition] = position
        return list(found)
