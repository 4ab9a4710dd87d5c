"""Makes the ledger's records of one transaction: details and entry of a run that has finished, entries of
runs that are taken back, pages of the index, and the checkpoint, which holds everything as it is after it.

Rule: a transaction that changes more than the lease ends with a checkpoint, so that nothing but leases can
come after the last one. Offsets are counted from the log's end: only the holder of the coordinator's id may
move it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.ledger.fold import CHECKPOINT_KEY, LEASE_KEY, LeaseSeen, LedgerCheckpoint, Span
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.past_runs import (
    INDEX_KEY,
    IndexChange,
    IndexPage,
    PastRuns,
    WrongHintError,
    digest_of,
    digest_of_interval,
    last_new_ms,
    left_without,
    shown,
    updated,
)
from airflow_kstreams.batch.ledger.run_search import Located
from airflow_kstreams.batch.ledger.run_summary import DETAILS_KEY, RunSummary, details_of, entry_of
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord, piece_key, split
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerChange:
    """The changes that a transaction makes in the ledger.

    :param ledger: the ledger as it was read after the claim, with all changes of the transaction except those
        of runs.
    :param finished: summary of the run that has finished, with its details.
    :param taken_back: ids of finished runs that are not finished any more.
    :param taken_back_ms: time at which they are taken back, epoch milliseconds.
    :param details_kept: number of runs whose details are kept.
    """

    ledger: Ledger
    finished: RunSummary | None = None
    taken_back: tuple[str, ...] = ()
    taken_back_ms: int = 0
    details_kept: int = 1


class LedgerRecords(NamedTuple):
    """The records to write, in order, the place of the checkpoint among them, and the run that has finished
    as it is found from then on, with its details.
    """

    records: list[MetadataRecord]
    checkpoint: Span
    finished: RunSummary | None


def ledger_records(application_id: str, change: LedgerChange, first_offset: int) -> LedgerRecords:
    """Return the records that make a change; a lease may follow them.

    :param first_offset: offset that the first of the records gets.
    """
    return _Writing(ProtocolTopics(application_id).ledger, change, first_offset).done()


class _Writing:
    def __init__(self, topic: str, change: LedgerChange, first_offset: int) -> None:
        self._topic = topic
        self._change = change
        self._ledger = change.ledger
        self._first = first_offset
        self._records: list[MetadataRecord] = []
        self._entries: dict[str, Located] = {}
        self._finished: RunSummary | None = None

    @property
    def _at(self) -> int:
        """The offset of the next record."""
        return self._first + len(self._records)

    def done(self) -> LedgerRecords:
        ledger, past = self._ledger, self._ledger.past
        if ledger.lease is None and ledger.lease_offset >= 0:
            # The checkpoint holds it, too; this is for people who read the topic.
            self._add(LEASE_KEY, None)
        if self._change.taken_back:
            past = self._take_back(past)
        if self._change.finished is not None:
            past = self._finish(past, self._change.finished)
        if self._entries or not ledger.archive.indexed:
            past = msgspec.structs.replace(past, index=self._index(past.index))
        lease = None
        if ledger.lease is not None:
            lease = LeaseSeen(
                lease=ledger.lease, offset=ledger.lease_offset, written_ms=ledger.lease_written_ms
            )
        checkpoint = LedgerCheckpoint(
            past=past,
            at=self._at,
            lease=lease,
            assignment=ledger.assignment,
            reset=ledger.reset,
            continuous=ledger.continuous,
            own_topics=ledger.own_topics,
            changelog_ends=ledger.changelog_ends,
            accepted={str(tp): each for tp, each in sorted(ledger.accepted.items())},
            history=ledger.history_at,
            tables=dict(sorted(ledger.tables.items())),
            dropped=ledger.dropped,
        )
        return LedgerRecords(self._records, self._add_checkpoint(checkpoint), self._finished)

    def _add_checkpoint(self, checkpoint: LedgerCheckpoint) -> Span:
        """Write the checkpoint, which holds its own offset, and return where it is."""
        span = self._ledger.checkpoint
        before = 0 if span is None else span[1] - span[0] - 1
        known = len(self._records)
        while True:
            del self._records[known:]
            span, _ = self._add_large(CHECKPOINT_KEY, msgspec.json.encode(checkpoint), before)
            if checkpoint.at == self._at - 1:
                return span
            # Further back, because there are pieces before it; a longer number moves it no other way.
            checkpoint = msgspec.structs.replace(checkpoint, at=self._at - 1)

    def _finish(self, past: PastRuns, summary: RunSummary) -> PastRuns:
        """Write the details and the entry of a run."""
        slot = past.details_written % self._change.details_kept
        details = msgspec.json.encode(details_of(summary))
        span, pieces = self._add_large(f"{DETAILS_KEY}{slot}", details, past.details_pieces)
        entry = msgspec.structs.replace(entry_of(summary), previous=past.last_at, details=span)
        self._finished = msgspec.structs.replace(
            summary, read=entry.read, previous=entry.previous, details=entry.details
        )
        at = self._write_entry(entry)
        return msgspec.structs.replace(
            past.with_finished(summary, entry, at),
            details_written=past.details_written + 1,
            details_pieces=max(past.details_pieces, pieces),
        )

    def _take_back(self, past: PastRuns) -> PastRuns:
        """Write the entries of runs that are not finished any more."""
        ledger, now_ms = self._ledger, self._change.taken_back_ms
        gone = {*self._change.taken_back}
        finished = [each for each in ledger.archive.all().values() if not each.summary.taken_back_ms]
        stay = [each for each in finished if each.summary.run_id not in gone]
        taken = [each for each in finished if each.summary.run_id in gone]
        entries = [msgspec.structs.replace(each.summary, taken_back_ms=now_ms) for each in taken]
        for entry in entries:
            self._write_entry(entry)
        last = stay[-1] if stay else None
        chained_from = past.chained_from
        if last is not None and taken and last.offset > taken[0].offset:
            chained_from = last.offset + 1
        return msgspec.structs.replace(
            past,
            finished=len(stay),
            last=None if last is None else entry_of(last.summary),
            last_at=-1 if last is None else last.offset,
            chained_from=chained_from,
            taken_back=shown([*past.taken_back, *map(entry_of, entries)]),
            left=left_without(past.left, gone, (ledger.detailed(each.summary) for each in reversed(stay))),
            new_ms=last_new_ms(each.summary for each in reversed(stay)),
        )

    def _write_entry(self, entry: RunSummary) -> int:
        at = self._at
        self._entries[entry.run_id] = Located(at, entry)
        self._add(entry.run_id, msgspec.json.encode(entry))
        return at

    def _index(self, root: IndexPage) -> IndexPage:
        """Write the changed pages of the index: a path for each entry, or all pages if the index has not
        served.
        """
        archive = self._ledger.archive
        found: tuple[IndexPage, list[tuple[str, IndexPage]]] | None = None
        if archive.indexed:
            changes = [change for each in self._entries.values() for change in self._changes(each)]
            try:
                found = updated(root, changes, archive.page, first_offset=self._at)
            except WrongHintError:
                archive.all()
        if not archive.indexed or found is None:
            entries = {**archive.all(), **self._entries}.values()
            found = updated(IndexPage(), _all_changes(entries), archive.page, first_offset=self._at)
        for digits, page in found[1]:
            self._add(f"{INDEX_KEY}{digits}", msgspec.json.encode(page))
        return found[0]

    def _changes(self, entry: Located) -> Iterable[IndexChange]:
        """Return the hashes by which an entry is found, and the offset of the entry that it replaces."""
        run, archive = entry.summary, self._ledger.archive
        before = archive.find(run.run_id)
        yield IndexChange(digest_of(run.run_id), entry.offset, -1 if before is None else before.offset)
        if run.interval_ms is not None:
            of_interval = archive.find_interval(run.interval_ms)
            replaced = -1 if of_interval is None else of_interval.offset
            yield IndexChange(digest_of_interval(run.interval_ms), entry.offset, replaced)

    def _add(self, key: str, value: bytes | None) -> None:
        self._records.append(MetadataRecord(self._topic, value, key.encode(), None))

    def _add_large(self, key: str, value: bytes, before: int) -> tuple[Span, int]:
        """Write a value, in pieces if it is large.

        :param before: the number of pieces that an older value may have.
        :return: offsets ``[from, to)`` of the written records, and the number of pieces.
        """
        name = key.encode()
        large = split(name, value)
        pieces = () if large is None else large.pieces
        for number in range(len(pieces), before):
            self._records.append(MetadataRecord(self._topic, None, piece_key(name, number), None))
        first = self._at
        self._records += [MetadataRecord(self._topic, part, of_piece, None) for of_piece, part in pieces]
        if large is None:
            self._records.append(MetadataRecord(self._topic, value, name, None))
        else:
            self._records.append(MetadataRecord(self._topic, b"", name, large.headers))
        return (first, self._at), len(pieces)


def _all_changes(entries: Iterable[Located]) -> Iterable[IndexChange]:
    """Return the hashes that find entries: each by its run, the last finished one by its data interval."""
    by_interval: dict[tuple[int, int], Located] = {}
    for entry in entries:
        run = entry.summary
        yield IndexChange(digest_of(run.run_id), entry.offset)
        if run.interval_ms is None or run.taken_back_ms:
            continue
        other = by_interval.get(run.interval_ms)
        if other is None or other.summary.finished_ms <= run.finished_ms:
            by_interval[run.interval_ms] = entry
    for interval_ms, entry in by_interval.items():
        yield IndexChange(digest_of_interval(interval_ms), entry.offset)
