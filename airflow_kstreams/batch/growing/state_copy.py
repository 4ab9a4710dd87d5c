"""Copies the state of one source to the processors that take keys from it, and tells to which processor each
entry of a changelog belongs.

Rule: one transaction holds entries and the offset behind them, under an id of the source's own. So a
catch-up, or a begin that takes over, goes on where the last copy ended; and of two copies at one time, the
writes of the one that claimed the id first fail.

Entries are copied as they are, deletions included, in the order of the log, those of moving keys only. A
deletion is there to be copied for ``delete.retention.ms``; a copy that has made no step for half of that
begins anew, and so does one that another expansion left: the entries in the changelogs of the new processors
are deleted first, key by key.

Crash argument: before a commit nothing has changed; after it, the offset says so. While the first part of a
new beginning is being copied, the old offset stands, which leads to the same beginning again. No task reads
the copied entries until a begin has recorded the new processors, and that begin holds the id when it does.

A catch-up claims the source's transactional id, then reads the ledger, then copies. So a begin that takes
over after the ledger was read has fenced this copy, and one that has taken over before is seen in the ledger.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, Self

import msgspec

from airflow_kstreams.batch.growing.expansion_rules import Expansion, live, positions_of, sources_of
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.logs.fence import await_leaders
from airflow_kstreams.batch.protocol.topics import topic_limits
from airflow_kstreams.streams.bounded_read import BoundedRead, Records
from airflow_kstreams.streams.errors import (
    KStreamsError,
    TaskFencedError,
    TopologyError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics, catch_up_group, catch_up_id
from airflow_kstreams.streams.partitioning.linear_hashing import key_hash
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.plan import EntryKeys, SubtopologyPlan
from airflow_kstreams.streams.ports import (
    Clock,
    ClusterPort,
    CommittedOffset,
    ReaderPort,
    Record,
    TopicPartition,
    WriterPort,
)
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)
_DELETE_RETENTION = "delete.retention.ms"
#: Records that one transaction reads, or entries that it deletes.
BATCH = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWork:
    """The state to copy from one source.

    :param sub: plan of the subtopology.
    :param entry: recorded partition groups of the subtopology.
    :param after: processors that the subtopology is to have.
    :param source: number of the processor to copy from.
    """

    sub: SubtopologyPlan
    entry: GroupedPartitions
    after: Processors
    source: int

    @property
    def before(self) -> int:
        """The number of processors now."""
        return len(self.entry.by_group)

    @property
    def added(self) -> list[int]:
        """The new processors that take keys from the source."""
        return sources_of(self.after, self.before)[self.source]


class StateCopy:
    """The copy of one source; a context manager that closes its clients.

    :param work: the source and the processors that take keys from it.
    :param clock: clock by which the age of a copy is measured.
    :ivar positions: changelog partition -> the offset at which its copy goes on (T2), once the copy is
        claimed.
    """

    def __init__(
        self, cluster: ClusterPort, settings: ApplicationSettings, work: CopyWork, *, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._app = settings.application_id
        self._work = work
        self._clock = clock
        self._admin = cluster.admin()
        self._closing = ExitStack()
        self._closing.callback(self._admin.close)
        self._reader: ReaderPort | None = None
        self._writer: WriterPort | None = None
        self._told: dict[TopicPartition, Expansion] = {}
        self._retention_ms: Mapping[str, int] = {}
        self._partitions = positions_of(work.sub, [work.source])
        self._id = catch_up_id(self._app, min(work.entry.grown), work.source)
        #: The processors that there were before any was added, and which of them had the source's keys.
        self._first = work.after.fewer(work.after.history[0])
        self._first_of_source = work.after.source_of(work.source, self._first.count)
        self._rate = 0.0
        self.positions: dict[TopicPartition, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop_writer()
        if self._reader is not None:
            self._reader.close()
        self._closing.close()

    def claim(self) -> dict[TopicPartition, Expansion]:
        """Claim the source's transactional id, and read how far the source is copied.

        :return: changelog partition -> the expansion that counts; a changelog that is not copied yet, or was
            copied for another expansion, is absent.
        :raises KafkaClientError: the broker did not answer, or does not let this user read how long deletions
            are kept.
        """
        topics = [tp.topic for tp in self._partitions]
        await_leaders(self._admin, topics)
        self._drop_writer()
        self._writer = self._cluster.writer(
            transactional_id=self._id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            limits=topic_limits(self._admin, topics),
        )
        self._writer.init_transactions()
        configs = self._admin.topic_configs(topics)
        for refused in configs.refused.values():
            raise refused
        self._retention_ms = {topic: int(found[_DELETE_RETENTION]) for topic, found in configs.found.items()}
        committed = self._committed()
        self._told = {
            tp: told
            for tp, at in committed.items()
            if (told := live(at, self._work.entry, tp.topic)) is not None and told.after == self._work.after
        }
        self.positions = {tp: committed[tp].offset for tp in self._told}
        return dict(self._told)

    def ends(self) -> dict[TopicPartition, int]:
        """Return T1 of each changelog: the end of the source's partition, as far as it is committed."""
        return self._admin.end_offsets(self._partitions, isolation="read_committed")

    def anew(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the changelogs whose copy must start again at their first offset.

        :param ends: changelog partition -> T1.
        """
        return [tp for tp in self._partitions if tp not in self._told or self._is_stale(tp, ends[tp])]

    def begin_anew(self, partitions: Sequence[TopicPartition]) -> None:
        """Delete all entries in the new processors' partitions of changelogs, and set the copy to the first
        offset.

        :param partitions: the source's partitions of these changelogs, as :meth:`anew` returns them.
        """
        for tp in partitions:
            self._clear(tp.topic)
        starts = self._admin.start_offsets(partitions)
        now_ms = self._clock.now_ms()
        for tp in partitions:
            self.positions[tp] = starts[tp]
            self._told[tp] = Expansion(
                before=self._work.before,
                after=self._work.after,
                topic_id=self._work.entry.changelogs[tp.topic],
                stepped_ms=now_ms,
                begun_ms=self._told[tp].begun_ms if tp in self._told else now_ms,
            )
        if partitions:
            self._commit({}, dict(self.positions))

    def copy(self, ends: Mapping[TopicPartition, int], most: int = BATCH) -> Iterator[int]:
        """Copy up to T1 in transactions, and yield after each the number of log records that it read.

        :param ends: changelog partition -> T1.
        :param most: most records that one transaction reads.
        :raises TopologyError: an entry's key cannot belong to the source: the store has other keys than the
            records.
        :raises TaskFencedError: another catch-up, or a begin, goes on with the copy.
        """
        reader = self._group_reader()
        spans = {tp: (self.positions[tp], ends[tp]) for tp in self._told}
        read = BoundedRead(reader, spans, clock=self._clock, max_records=most)
        since_ms, total = self._clock.now_ms(), 0
        for fetched in read:
            moved = dict(read.positions)
            if fetched or any(moved[tp] > self.positions[tp] for tp in moved):
                records = sum(map(len, fetched.values()))
                total += records
                took_ms = self._clock.now_ms() - since_ms
                self._rate = 1_000 * total / took_ms if took_ms > 0 else 0.0
                self._commit(fetched, {**self.positions, **moved})
                yield records

    def touch(self) -> None:
        """Commit a step that copies no entry, before the last step is too old to go on from."""
        self._commit({}, dict(self.positions))

    def void(self) -> None:
        """Void the expansion: the committed offsets carry no expansion from then on."""
        with self._transaction() as writer:
            writer.send_offsets({tp: CommittedOffset(0) for tp in self._partitions}, self._group_reader())
        self._told, self.positions = {}, {}

    def clear(self) -> None:
        """Delete all entries in the new processors' partitions of the changelogs."""
        for tp in self._partitions:
            self._clear(tp.topic)

    def _is_stale(self, tp: TopicPartition, end: int) -> bool:
        """Whether deletions that are still to be copied may be gone from the log."""
        age_ms = self._clock.now_ms() - self._told[tp].stepped_ms
        return self.positions[tp] < end and not abs(age_ms) < self._retention_ms[tp.topic] / 2

    def _commit(self, records: Records, positions: dict[TopicPartition, int]) -> None:
        now_ms = self._clock.now_ms()
        told: dict[TopicPartition, Expansion] = {}
        with self._transaction() as writer:
            for tp, before in self._told.items():
                copied, size = self._produce(writer, tp, records.get(tp, ()))
                told[tp] = msgspec.structs.replace(
                    before,
                    stepped_ms=now_ms,
                    copied=before.copied + copied,
                    copied_bytes=before.copied_bytes + size,
                    rate=self._rate or before.rate,
                )
            offsets = {tp: CommittedOffset(positions[tp], found.encode()) for tp, found in told.items()}
            writer.send_offsets(offsets, self._group_reader())
        self._told, self.positions = told, positions

    def _produce(self, writer: WriterPort, tp: TopicPartition, records: Sequence[Record]) -> tuple[int, int]:
        added, copied, size = {*self._work.added}, 0, 0
        keys, after = self._work.sub.entry_keys.get(tp.topic), self._work.after
        for record in records:
            key, value = record.key() or b"", record.value()
            hashed = placing_hash(keys, key)
            if hashed is None:
                continue
            if self._first.of_hash(hashed) != self._first_of_source:
                raise self._other_keys(tp, record)
            home = after.of_hash(hashed)
            if home in added:
                writer.produce(tp.topic, value, key, home, record.timestamp()[1], None)
                copied += 1
                size += len(key) + len(value or b"")
        return copied, size

    def _other_keys(self, tp: TopicPartition, record: Record) -> TopologyError:
        store = ProtocolTopics(self._app).store_of(tp.topic)
        return TopologyError(
            f"store {store!r} of application {self._app!r} cannot follow its keys to more processors: the "
            f"entry {tp}@{record.offset()} has a key that no record of its task can have, so the store has "
            "other keys than the records, or writes them in other bytes",
            fix="keep the store under the records' own keys, in the format that their producers write; or "
            "leave the number of processors as it is",
        )

    def _clear(self, topic: str) -> None:
        """Delete every entry of the new processors in a changelog."""
        partitions = [TopicPartition(topic, number) for number in self._work.added]
        ends = self._admin.end_offsets(partitions, isolation="read_committed")
        starts = self._admin.start_offsets(partitions)
        for tp in partitions:
            held: dict[bytes, None] = {}
            span = {tp: (starts[tp], ends[tp])}
            for fetched in BoundedRead(self._group_reader(), span, clock=self._clock):
                for record in fetched.get(tp, ()):
                    if record.value() is None:
                        held.pop(record.key() or b"", None)
                    else:
                        held[record.key() or b""] = None
            keys = [*held]
            for at in range(0, len(keys), BATCH):
                with self._transaction() as writer:
                    for key in keys[at : at + BATCH]:
                        writer.produce(topic, None, key, tp.partition, None, None)
            if keys:
                log.info("%s: deleted %s of an expansion that was given up", tp, counted(len(keys), "entry"))

    def _committed(self) -> dict[TopicPartition, CommittedOffset]:
        return self._group_reader().committed(self._partitions)

    def _group_reader(self) -> ReaderPort:
        if self._reader is None:
            self._reader = self._cluster.reader(group_id=catch_up_group(self._app))
        return self._reader

    @contextmanager
    def _transaction(self) -> Iterator[WriterPort]:
        """Commit what the block writes.

        :raises TransactionAbortedError: the source must be claimed again; the transaction may be committed.
        """
        writer = self._writer
        name = self._id
        if writer is None:
            raise TransactionAbortedError(
                f"the transactional id {name!r} is not claimed", fix="claim it first", task_id=name
            )
        writer.begin()
        try:
            yield writer
            writer.commit()
        except BaseException:
            # Records that it left open would hide what others write, until the broker times it out.
            with suppress(KStreamsError):
                writer.abort()
            self._drop_writer()
            raise
        if writer.suspect:
            self._drop_writer()
            raise TransactionAbortedError(
                f"a commit under {name!r} was slow or repeated, so its producer is not used again",
                fix="nothing: it goes on with a new producer",
                task_id=name,
            )

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None


def placing_hash(keys: EntryKeys | None, key: bytes) -> int | None:
    """Return the hash that decides to which processor an entry belongs; None for an entry that stays where it
    is.

    :param keys: format of the keys in the entry's changelog; None if it is not known.
    :param key: key of the changelog's record. A key that is not of the store's format stays, too: the store
        refuses it when it is restored.
    """
    if keys is None or keys.unfit:
        return None
    try:
        placing = keys.placing(key)
    except msgspec.MsgspecError:
        return None
    return None if placing is None else key_hash(placing)


@dataclass(frozen=True, slots=True)
class Homes:
    """Tells which entries of a changelog belong to which processor of a subtopology.

    :param processors: the processors, which give the processor of a key's hash.
    :param entry_keys: changelog topic -> format of its keys. Entries of a changelog whose keys do not tell
        stay where they are.
    """

    processors: Processors
    entry_keys: Mapping[str, EntryKeys]

    def at_home(self, changelog: str, records: Sequence[Record], processor: int) -> Sequence[Record]:
        """Return the records of a processor's changelog partition whose keys the processor still has."""
        keys = self.entry_keys.get(changelog)
        return [
            record
            for record in records
            if (hashed := placing_hash(keys, record.key() or b"")) is None
            or self.processors.of_hash(hashed) == processor
        ]


#: How the copy of a source ended: it came as far as the log or the caller let it; the subtopology has other
#: processors now; another claim of the id fenced it.
Ended = Literal["copied", "taken over", "fenced"]


class Copies(Protocol):
    """Copies state, in threads or elsewhere."""

    def copy(self, shares: Sequence[Sequence[CopyWork]], rate: float | None) -> Sequence[Ended]:
        """Copy the state of sources up to the ends of their changelogs, and return how the copy of each
        ended.

        :param shares: the work by share: shares are copied side by side, the sources of a share one after
            another.
        :param rate: changelog records per second that each share reads; None for no limit.
        :raises TopologyError: a store has other keys than the records.
        :raises KafkaClientError: the broker refuses, or does not answer.
        """
        ...

    def cancel(self) -> None:
        """Make the running copies end soon; the next copy goes on where they ended."""
        ...


class ThreadCopies:
    """Copies in threads of this process; see :class:`Copies`."""

    def __init__(self, cluster: ClusterPort, settings: ApplicationSettings, *, clock: Clock) -> None:
        self._cluster, self._settings, self._clock = cluster, settings, clock
        self._cancelled = threading.Event()

    def copy(self, shares: Sequence[Sequence[CopyWork]], rate: float | None) -> Sequence[Ended]:
        """Copy each share in a thread."""
        with ThreadPoolExecutor(max_workers=len(shares)) as pool:
            each = pool.map(partial(self._copied, rate), shares)
            return [ended for share in each for ended in share]

    def cancel(self) -> None:
        """End after the transaction that is under way."""
        self._cancelled.set()

    def _copied(self, rate: float | None, share: Sequence[CopyWork]) -> list[Ended]:
        def goes_on() -> bool:
            return not self._cancelled.is_set()

        return [
            copy_source(self._cluster, self._settings, work, rate=rate, clock=self._clock, goes_on=goes_on)
            for work in share
            if goes_on()
        ]


def copy_source(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    work: CopyWork,
    *,
    rate: float | None,
    clock: Clock,
    goes_on: Callable[[], bool] = lambda: True,
) -> Ended:
    """Copy the state of one source up to the ends of its changelogs.

    :param rate: changelog records per second; None for no limit.
    :param goes_on: returns, after each transaction, whether to make another one.
    :raises TopologyError: a store has other keys than the records.
    :raises KafkaClientError: the broker refuses, or does not answer.
    """
    with StateCopy(cluster, settings, work, clock=clock) as copy:
        try:
            copy.claim()
            if _has_other_processors(cluster, settings, work, clock):
                return "taken over"
            ends = copy.ends()
            copy.begin_anew(copy.anew(ends))
            # Each transaction reads the records of one second, so that the pauses are short.
            most = BATCH if rate is None else min(BATCH, max(1, int(rate)))
            for records in copy.copy(ends, most):
                if not goes_on():
                    return "copied"
                if rate is not None:
                    clock.sleep(records / rate)
            copy.touch()
        except TaskFencedError as error:
            log.info("the copy of the state of processor %d was fenced: %s", work.source, error)
            return "fenced"
        except TransactionAbortedError as error:
            log.info("the copy of the state of processor %d repeats its step: %s", work.source, error)
        return "copied"


def _has_other_processors(
    cluster: ClusterPort, settings: ApplicationSettings, work: CopyWork, clock: Clock
) -> bool:
    """Whether the subtopology has other processors than when the work was planned."""
    assignment = read_ledger(cluster, settings.application_id, wait_ms=0, clock=clock).assignment
    entry = assignment.groups_of(work.sub.id, work.sub.changelogs.values())
    return entry is None or len(entry.by_group) != work.before
