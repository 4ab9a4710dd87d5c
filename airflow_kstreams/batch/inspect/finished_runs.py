"""Reads the finished runs of an application, one of them or from run to run, with a cursor that Kafka keeps.

The cursor is the committed offset of a group of the follower's own on the ledger topic, never the
application's group. It moves only when the follower says that a run is taken care of, so a process that dies
in between gets that run again. A new follower starts behind the last finished run, or before the first one if
``from_start`` is set, and commits that at once: it misses no run that finishes from then on.
While there is no ledger there is nothing to commit on; one that appears is followed from its start, and so is
one that was made anew, which the topic id beside the cursor shows.

The broker forgets the cursor of a follower that was away for longer than ``offsets.retention.minutes``, and
every cursor on a ledger that is deleted. A follower that comes back then is new: only ``from_start`` makes
sure that nothing is missed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Self

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.ledger.fold import decode_summary
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.ledger.run_search import LogSpan, details_in, read_details
from airflow_kstreams.batch.ledger.run_summary import DETAILS_KEY, RunSummary, with_details
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics, followers_group
from airflow_kstreams.streams.plan import decode_json
from airflow_kstreams.streams.ports import ClusterPort, CommittedOffset, ReaderPort, Record, TopicPartition

_POLL_SECONDS = 0.5


def finished_run(cluster: ClusterPort, application_id: str, run_id: str | None) -> RunSummary | None:
    """Return the summary of a finished run, None while it is not finished.

    What it has per task and partition is kept of the last runs only (``ledger.details.kept``): of an older
    one ``without_details`` is true.

    :param cluster: the cluster where the application runs.
    :param application_id: id of the application.
    :param run_id: id of the run; None for the run that finished last.
    """
    # A run that an open transaction hides is not finished yet: a reader that decides nothing need not wait
    # for it.
    with closing(cluster.reader(group_id=application_id)) as reader:
        ledger = read_ledger(cluster, application_id, reader=reader, wait_ms=0)
        found = ledger.last() if run_id is None else ledger.find(run_id)
        return None if found is None else ledger.detailed(found)


def last_values(cluster: ClusterPort, topic: str, *, timeout_seconds: float = 60.0) -> dict[bytes, bytes]:
    """Read a whole topic, as committed, and return the last value of every key; a null value deletes its key.

    Meant for small result topics: it reads from the log's start, without a group, and commits nothing.

    :param cluster: the cluster that has the topic.
    :param topic: name of the topic; records without a key do not count.
    :param timeout_seconds: longest time to read, in seconds.
    :raises ConfigError: there is no such topic.
    :raises KafkaClientError: the broker does not answer, or the topic's end was not reached in time.
    """
    with closing(cluster.admin()) as admin:
        description = admin.describe_topics([topic]).get(topic)
        if description is None:
            raise ConfigError(f"topic {topic!r} does not exist", fix="create it, or correct its name")
        partitions = [TopicPartition(topic, number) for number in range(description.partitions)]
        starts = admin.start_offsets(partitions)
        ends = admin.end_offsets(partitions, isolation="read_committed")

    def too_long(left: Sequence[TopicPartition], _: float) -> KafkaClientError:
        return KafkaClientError(
            f"topic {topic!r} was not read to its end within {timeout_seconds:g} s, partitions left: "
            f"{', '.join(map(str, left))}",
            fix="try again, or allow more time",
            kafka_code="_TIMED_OUT",
            retriable_code=True,
        )

    values: dict[bytes, bytes] = {}
    with closing(cluster.reader(group_id=f"{topic}-last-values")) as reader:
        read = BoundedRead(
            reader,
            {partition: (starts[partition], end) for partition, end in ends.items()},
            poll_seconds=_POLL_SECONDS,
            patience=Patience(seconds=timeout_seconds, since="start", error=too_long),
        )
        for fetched in read:
            for record in chain.from_iterable(fetched.values()):
                key, value = record.key(), record.value()
                if key is not None and value is not None:
                    values[key] = value
                elif key is not None:
                    values.pop(key, None)
    return values


#: A group's offsets expire when nothing is committed for days.
_RECOMMIT_SECONDS = 3_600.0
_MAX_RECORDS = 1_000


class _Cursor(msgspec.Struct, frozen=True):
    """The metadata of the cursor's offset.

    :param topic_id: topic id of the ledger; empty where another tool has set the cursor.
    """

    topic_id: str = ""


class RunFollower:
    """The finished runs of an application, in the order in which they finished; a context manager. One thread
    at a time.

    :param cluster: the cluster where the application runs.
    :param application_id: id of the application.
    :param name: name of the follower; each name has a cursor of its own.
    :param from_start: whether a follower without a cursor gets the runs that have finished already.
    """

    def __init__(
        self, cluster: ClusterPort, application_id: str, *, name: str, from_start: bool = False
    ) -> None:
        self._cluster = cluster
        self._partition = TopicPartition(ProtocolTopics(application_id).ledger, 0)
        self._group = followers_group(application_id, name)
        self._from_start = from_start
        self._reader: ReaderPort | None = None
        self._cursor = 0
        self._topic_id = ""
        self._read_from = 0
        self._details: list[Record] = []
        self._committed_at = 0.0

    def has_ledger(self) -> bool:
        """Return whether the application has a ledger; it has none before its first run."""
        with closing(self._cluster.admin()) as admin:
            found = self._partition.topic in admin.describe_topics([self._partition.topic])
        self._from_start |= not found
        return found

    def __enter__(self) -> Self:
        """Find the cursor.

        :raises ConfigError: the application has no ledger yet.
        """
        with closing(self._cluster.admin()) as admin:
            described = admin.describe_topics([self._partition.topic]).get(self._partition.topic)
            if described is None:
                raise ConfigError(
                    f"there is no ledger {self._partition.topic}: the application has not run yet",
                    fix="correct the application id, or run the application once",
                )
            end = admin.end_offsets([self._partition], isolation="read_committed")[self._partition]
            start = admin.start_offsets([self._partition])[self._partition]
        self._topic_id = described.topic_id
        self._reader = self._cluster.reader(group_id=self._group, follows=True)
        try:
            kept = self._reader.committed([self._partition]).get(self._partition)
            self.take(self._beginning(kept, start, end))
            self.rewind(self._cursor)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def poll(self, timeout_seconds: float) -> list[tuple[int, RunSummary]]:
        """Wait for runs that finished.

        :return: (offset, summary) of each run, in the order of the ledger. A run that a reset took back is
            left out.
        :raises KafkaClientError: the ledger holds a record that no run wrote, or another version did; it is
            never passed over, because it could be a run.
        """
        if time.monotonic() - self._committed_at > _RECOMMIT_SECONDS:
            self.take(self._cursor)
        fetched = self._open().poll(max_records=_MAX_RECORDS, timeout_seconds=timeout_seconds)
        return self._finished(fetched.records.get(self._partition, ()))

    def until_now(self) -> list[tuple[int, RunSummary]]:
        """Return the runs that have finished by now and are not taken care of; wait for no others.

        :return: (offset, summary) of each run, as :meth:`poll` returns them.
        :raises KafkaClientError: as :meth:`poll`, or the ledger's end cannot be reached.
        """
        with closing(self._cluster.admin()) as admin:
            end = admin.end_offsets([self._partition], isolation="read_committed")[self._partition]
        read = BoundedRead(self._open(), {self._partition: (self._cursor, end)})
        records = [record for fetched in read for record in chain.from_iterable(fetched.values())]
        # Records behind the end are for the next poll.
        self.rewind(max(self._cursor, end))
        self._read_from = self._cursor
        return self._finished(records)

    def _finished(self, records: Iterable[Record]) -> list[tuple[int, RunSummary]]:
        """Decode the records; stop before one that cannot be decoded."""
        found: dict[bytes, tuple[int, RunSummary]] = {}
        for record in records:
            if (record.key() or b"").startswith(DETAILS_KEY.encode()):
                self._details.append(record)
                continue
            try:
                summary = decode_summary(record)
            except KafkaClientError:
                if self._replaced(record):
                    continue
                # Runs before it are given first; the next poll meets it again.
                self.rewind(record.offset())
                if found:
                    break
                raise
            key = record.key() or b""
            # As compaction would: of several records of a run only the last one counts.
            found.pop(key, None)
            if summary is not None and not summary.taken_back_ms:
                found[key] = (record.offset(), self._detailed(record.offset(), summary))
        return list(found.values())

    def _replaced(self, record: Record) -> bool:
        """Return whether a later record has the same key, as after ``reset --repair-ledger``."""
        with closing(self._cluster.admin()) as admin:
            end = admin.end_offsets([self._partition], isolation="read_committed")[self._partition]
        later = self._span(end).records(record.offset() + 1, end)
        return any(each.key() == record.key() for each in later)

    def _detailed(self, at: int, entry: RunSummary) -> RunSummary:
        """Return a run with its details, which are right before its entry, unless they have expired."""
        seen, self._details = self._details, []
        if entry.details is None or not entry.without_details:
            return entry
        if entry.details[0] >= self._read_from:
            details = details_in(seen)
            return entry if details is None else with_details(entry, details) or entry
        # They were passed before. The reader that follows the ledger stays where it is.
        return read_details(self._span(at), entry)

    def _span(self, end: int) -> LogSpan:
        """Return the ledger up to an offset, for a reader of its own."""
        return LogSpan(
            partition=self._partition,
            start=0,
            end=end,
            reading=lambda: closing(self._cluster.reader(group_id=self._group)),
            clock=SystemClock(),
        )

    def take(self, next_offset: int) -> None:
        """Move the cursor: runs before this offset are taken care of."""
        beside = msgspec.json.encode(_Cursor(self._topic_id)).decode()
        self._open().commit({self._partition: CommittedOffset(next_offset, beside)})
        self._cursor, self._committed_at = next_offset, time.monotonic()

    def rewind(self, offset: int) -> None:
        """Give the runs from an offset on once more."""
        self._open().assign({self._partition: offset})
        self._read_from, self._details = offset, []

    def _beginning(self, kept: CommittedOffset | None, start: int, end: int) -> int:
        """Return the offset to begin at in a ledger that holds ``[start, end)``."""
        if kept is None:
            return start if self._from_start else end
        topic_id = _topic_id_in(kept.metadata)
        # A ledger that was made anew begins anew.
        if kept.offset > end or (topic_id and topic_id != self._topic_id):
            return start
        return max(start, kept.offset)

    def _open(self) -> ReaderPort:
        if self._reader is None:
            raise ValueError("the reader of finished runs is used outside its with block")
        return self._reader


@contextmanager
def new_runs(cluster: ClusterPort, application_id: str, *, name: str) -> Iterator[list[RunSummary]]:
    """Give the runs of an application that have finished since the last time; a context manager.

    They count as seen when the block ends without an error, so a process that dies in it gets them again. A
    new name begins with the first run that the ledger still has. A run that a reset took back comes once
    more when it has finished anew.

    :param cluster: the cluster where the application runs.
    :param application_id: id of the application.
    :param name: name of the follower; each name has a cursor of its own, kept in Kafka as a consumer group's
        offset (``APPLICATION-finished-runs-NAME``), for one process at a time.
    :return: the ledger's entries, in the order in which the runs finished; empty if there is nothing new.
    :raises ConfigError: the application has no ledger yet.
    :raises KafkaClientError: the broker does not answer, or the ledger holds a record that no run wrote,
        right behind the cursor.
    """
    with RunFollower(cluster, application_id, name=name, from_start=True) as runs:
        found = runs.until_now()
        yield [summary for _, summary in found]
        if found:
            runs.take(found[-1][0] + 1)


def _topic_id_in(metadata: str) -> str:
    try:
        return decode_json(metadata, _Cursor).topic_id
    except msgspec.MsgspecError:
        return ""
