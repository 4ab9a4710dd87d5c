"""Finds entries of the ledger one by one, by the offsets that the checkpoint, the index and entries give.

An offset is a hint. The record there must have the key that was looked for; another one, or none, means that
the hint is wrong (another program wrote to the ledger while a run wrote), and then everything is read. The
run that writes next builds the index anew from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from airflow_kstreams.batch.ledger.history import HISTORY_KEY, Histories
from airflow_kstreams.batch.ledger.past_runs import (
    INDEX_KEY,
    IndexPage,
    PastRuns,
    WrongHintError,
    digest_of,
    digest_of_interval,
    look_up,
)
from airflow_kstreams.batch.ledger.run_summary import DETAILS_KEY, RunDetails, RunSummary, with_details
from airflow_kstreams.batch.protocol.checked_reading import UnreadableError, read_json
from airflow_kstreams.batch.protocol.slice.metadata_records import headers_of, joined, pieces_of
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.ports import Clock, ReaderPort, Record, TopicPartition
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)
_T = TypeVar("_T")
#: Number of offsets that are read at once where entries are looked for backwards.
_PIECE = 64


class Located(NamedTuple):
    """An entry and its offset."""

    offset: int
    summary: RunSummary


#: Every entry by run id: the finished runs in the order in which they finished, those taken back anywhere.
Entries = Mapping[str, Located]


class Everything(NamedTuple):
    """The entries and details of all runs.

    :param entries: entry of each run.
    :param details: offsets at which the details that have not expired end.
    """

    entries: Entries
    details: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """The ledger's log, as far as it was complete when it was looked at.

    :param start: first offset of the log.
    :param end: offset up to which the log was complete.
    :param reading: opens a reader of committed records.
    """

    partition: TopicPartition
    start: int
    end: int
    reading: Callable[[], AbstractContextManager[ReaderPort]]
    clock: Clock

    def records(self, first: int, end: int) -> list[Record]:
        """Return the records of a span; none of one that lies outside the log."""
        if not self.start <= first < end <= self.end:
            return []
        with self.reading() as reader:
            spans = {self.partition: (first, end)}
            read = BoundedRead(reader, spans, clock=self.clock, max_records=end - first)
            return list(chain.from_iterable(chain.from_iterable(f.values()) for f in read))


class RunArchive:
    """The entries of an application's ledger, as it was read once.

    :param span: the ledger's log, in which entries are looked up; None without a log.
    :param past: facts of earlier runs from the checkpoint, which hold the index.
    :param everything: entries and details of all runs, if the whole log was read.
    :param read_all: reads the whole log.
    :param tail: records that were read already.
    """

    def __init__(
        self,
        span: LogSpan | None,
        past: PastRuns,
        *,
        everything: Everything | None = None,
        read_all: Callable[[], Everything] = lambda: Everything({}),
        tail: Sequence[Record] = (),
    ) -> None:
        self._span = span
        self._past = past
        self._everything = everything
        self._read_all = read_all
        self._found: dict[str, Located | None] = {}
        self._histories = _histories_in(tail)

    def grown(self, span: LogSpan, tail: Sequence[Record]) -> RunArchive:
        """Return the archive of the same entries, after leases and histories were written behind them.

        :param span: the log as it is now.
        :param tail: records that were read already.
        """
        archive = copy(self)
        archive._span, archive._histories = span, _histories_in(tail)
        return archive

    @property
    def indexed(self) -> bool:
        """Whether the index has served so far: if not, it must be built anew."""
        return self._everything is None

    @property
    def _entries(self) -> Entries | None:
        return None if self._everything is None else self._everything.entries

    def all(self) -> Entries:
        """Return every entry."""
        if self._everything is None:
            self._everything = self._read_all()
        return self._everything.entries

    def find(self, run_id: str) -> Located | None:
        """Return the entry of a run, finished or taken back."""
        if self._entries is None and run_id not in self._found:
            self._found[run_id] = self._by_index(digest_of(run_id), lambda run: run.run_id == run_id)
        return self._found.get(run_id) if self._entries is None else self._entries.get(run_id)

    def find_interval(self, interval_ms: tuple[int, int]) -> Located | None:
        """Return the entry of the run that finished last of those for a data interval."""
        name = digest_of_interval(interval_ms)
        if self._entries is None and name not in self._found:
            self._found[name] = self._by_index(
                name, lambda run: run.interval_ms == interval_ms and not run.taken_back_ms
            )
        if self._entries is None:
            return self._found.get(name)
        of_interval = (
            found
            for found in self._entries.values()
            if found.summary.interval_ms == interval_ms and not found.summary.taken_back_ms
        )
        return max(of_interval, key=lambda found: found.summary.finished_ms, default=None)

    def latest(self, count: int) -> list[RunSummary]:
        """Return the runs that finished last, the last one first."""
        return list(islice(self.newest_first(), count))

    def before(self, run: RunSummary) -> Iterator[RunSummary]:
        """Yield the runs that finished before one, the last one first."""
        found = self.find(run.run_id)
        try:
            while self._entries is None and found is not None and found.summary.previous >= 0:
                at = self._before(found.summary, found.offset)
                found = Located(at, self._entry(at))
                yield found.summary
        except WrongHintError:
            # As for the latest ones.
            self.all()
        if self._entries is None or found is None:
            return
        finished = [each.summary for each in self._entries.values() if not each.summary.taken_back_ms]
        ids = [each.run_id for each in finished]
        yield from reversed(finished[: ids.index(found.summary.run_id)])

    def newest_first(self, before: RunSummary | None = None) -> Iterator[RunSummary]:
        """Yield finished runs, the last one first, without ever holding more than a few records: for looks,
        whose memory and requests are bounded by the number of runs that they take.

        Each entry names the one before it. Around the entries that a reset took back that chain is broken:
        from there on the log is read backwards in pieces, and the index says which entries still count.

        :param before: a run to begin behind; None to begin with the run that finished last.
        """
        if before is None:
            found = None if self._past.last is None else Located(self._past.last_at, self._past.last)
            if found is not None and self._entries is None:
                yield found.summary
        else:
            found = self.find(before.run_id)
        if found is None:
            return
        while self._entries is None and found.summary.previous >= 0:
            try:
                at = self._before(found.summary, found.offset)
                found = Located(at, self._entry(at))
            except WrongHintError:
                yield from self._backwards(found.offset)
                return
            yield found.summary
        if self._entries is not None:
            finished = [each for each in self._entries.values() if not each.summary.taken_back_ms]
            yield from (
                each.summary for each in reversed(finished) if before is None or each.offset < found.offset
            )

    def _backwards(self, end: int) -> Iterator[RunSummary]:
        """Yield the finished runs whose entries lie before an offset, the last one first."""
        span = self._span
        for stop in range(end, 0 if span is None else span.start, -_PIECE):
            records = [] if span is None else span.records(max(span.start, stop - _PIECE), stop)
            for record in reversed(records):
                key, value = (record.key() or b"").decode(errors="replace"), record.value()
                if value is None or key.startswith("__"):
                    continue
                now = self.find(key)
                # An entry that was written again later, as one that was taken back, stands there.
                if now is not None and now.offset == record.offset() and not now.summary.taken_back_ms:
                    yield now.summary

    def detailed(self, entry: RunSummary) -> RunSummary:
        """Return a run with its details; without them if they have expired."""
        if entry.inputs or entry.details is None:
            return entry
        if self._everything is not None and entry.details[1] not in self._everything.details:
            return entry
        return entry if self._span is None else read_details(self._span, entry)

    def histories(self, at: int) -> Histories:
        """Return what the record of histories at an offset holds; one that is not there, or that cannot be
        read, counts as unreadable.
        """
        try:
            value = self._histories[at] if at in self._histories else self._value(at, HISTORY_KEY)
        except WrongHintError:
            value = None
        return Histories.decode(value)

    def page(self, digits: str, at: int) -> IndexPage:
        """Return a page of the index.

        :raises WrongHintError: the page is not at that offset.
        """
        return self._read(self._value(at, f"{INDEX_KEY}{digits}"), IndexPage)

    def _by_index(self, digest: str, is_it: Callable[[RunSummary], bool]) -> Located | None:
        try:
            found = [Located(at, self._entry(at)) for at in look_up(self._past.index, digest, self.page)]
        except WrongHintError:
            self._mistrust()
            return None
        for each in found:
            if is_it(each.summary):
                return each
        # Hashes of two runs may be equal; then each is found by its own.
        if any(digest_of(each.summary.run_id) != digest for each in found):
            self._mistrust()
        return None

    def _before(self, run: RunSummary, at: int) -> int:
        """Return the offset of the run that finished before one.

        :raises WrongHintError: the entry names no run before it.
        """
        if not 0 <= run.previous < at or at < self._past.chained_from:
            raise WrongHintError
        return run.previous

    def _entry(self, at: int) -> RunSummary:
        return self._read(self._value(at), RunSummary)

    @staticmethod
    def _read(value: bytes, kind: type[_T]) -> _T:
        try:
            return read_json(value, kind)
        except UnreadableError:
            raise WrongHintError from None

    def _value(self, at: int, key: str | None = None) -> bytes:
        """Return the value of the record at an offset, which must have the key, or any run's unless given."""
        for record in () if self._span is None else self._span.records(at, at + 1):
            found, value = (record.key() or b"").decode(errors="replace"), record.value()
            if value is not None and (found == key if key else not found.startswith("__")):
                return value
        raise WrongHintError

    def _mistrust(self) -> None:
        """Read the whole log, because the index does not fit it."""
        where = "a ledger" if self._span is None else self._span.partition.topic
        log.warning("%s: its index does not fit, so all of it is read; the next run builds it anew", where)
        self.all()


def _histories_in(records: Sequence[Record]) -> dict[int, bytes | None]:
    return {record.offset(): record.value() for record in records if record.key() == HISTORY_KEY.encode()}


def read_details(span: LogSpan, entry: RunSummary) -> RunSummary:
    """Return a run with the details that its entry points to; without them if they have expired."""
    details = None if entry.details is None else details_in(span.records(*entry.details))
    return entry if details is None else with_details(entry, details) or entry


def details_in(records: Sequence[Record]) -> RunDetails | None:
    """Return the details that records hold; None if they are not whole, or this version cannot read them."""
    values = {record.key() or b"": record.value() for record in records}
    for record in reversed(records):
        key, value = record.key() or b"", record.value()
        if b"#" in key or value is None or not key.startswith(DETAILS_KEY.encode()):
            continue
        headers = headers_of(record)
        content = joined(key, headers, values.get) if pieces_of(headers) else value
        try:
            return None if content is None else read_json(content, RunDetails)
        except UnreadableError:
            return None
    return None
