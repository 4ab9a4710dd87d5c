"""Reads a ledger in which records cannot be read, and says what of it is known and what is given up.

Rule: a record that this version reads counts as it always does, and of a key whose last record cannot be read
the last one that can be. Entries stand in the order in which runs finished: one that is written again has all
later ones written again behind it. A checkpoint counts if it is the last one for certain: no entry of a run
lies behind it, and no lease names a later one; each record that may have been a later one is listed with what
it may have held. Where that cannot be had, all that entries and details of runs say is put together anew, and
what only a checkpoint holds is given up.

:mod:`airflow_kstreams.batch.reset.ledger_repair` writes what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.ledger.fold import (
    CHECKPOINT_KEY,
    LEASE_KEY,
    RESERVED,
    FoldedLedger,
    LeaseSeen,
    LedgerCheckpoint,
    checkpoints,
    decode_checkpoint,
    decode_summary,
    key_of,
    lease_seen,
    refuse_others,
)
from airflow_kstreams.batch.ledger.past_runs import PastRuns, TopicLeft, last_new_ms, left_without, shown
from airflow_kstreams.batch.ledger.run_search import Entries, Everything, Located, LogSpan, read_details
from airflow_kstreams.batch.ledger.run_summary import DETAILS_KEY, RunSummary, entry_of
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import Record

#: What only the last checkpoint may hold.
_LAST_CHANGES = "a reset, a continuous run or an accepted offset"
#: What only a checkpoint holds.
_OF_CHECKPOINTS = (
    "partition groups, ids of the application's own topics and ends of changelogs: the next run takes the "
    "topics as it finds them",
    f"{_LAST_CHANGES} that came last: the next run goes on at the committed offsets",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """What is left of a ledger.

    :param everything: entries and details of all runs.
    :param state: the checkpoint, found or made from the entries, and the lease.
    :param again: key -> value to write, in this order: a tombstone for each key of which no record can be
        read, and entries of runs, from the first one whose last record cannot be read.
    :param given_up: what is not known any more, one line each.
    """

    everything: Everything
    state: FoldedLedger
    again: Mapping[bytes, bytes | None]
    given_up: tuple[str, ...]


def salvage(records: Sequence[Record], span: LogSpan, topic: str) -> Salvage:
    """Find out what records of a ledger say.

    :param records: all of them, in log order.
    :param span: the log, in which details of runs are looked up; what replaces unreadable records comes at
        its end, in their order.
    :raises ConfigError: no record belongs to a ledger.
    """
    refuse_others(records, topic)
    read = _Readable()
    for record in records:
        read.take(record)
    entries, lease = read.entries, read.leases[-1] if read.leases else None
    found, passed_over = _last_for_certain(records, entries, lease)
    given_up = [*read.said(topic)]
    given_up += [_said_of_checkpoint(offset, topic, older=found is not None) for offset in passed_over]
    again = read.again()
    for number, (name, entry) in enumerate(again.entries.items(), start=len(again.tombstones)):
        entries[name] = entry._replace(offset=span.end + number)
    if found is None:
        past = _remembered(entries, span)
        if any(key_of(record).startswith(CHECKPOINT_KEY) for record in records) or entries:
            given_up += _OF_CHECKPOINTS
        checkpoint = LedgerCheckpoint(past=past, at=-1)
    else:
        last = None if found.past.last is None else entries.get(found.past.last.run_id)
        past = msgspec.structs.replace(found.past, last_at=-1 if last is None else last.offset)
        if again.entries:
            # An entry may name the old place of the one before it.
            past = msgspec.structs.replace(past, chained_from=past.last_at + 1)
        checkpoint = msgspec.structs.replace(found, past=past)
        lease = lease if read.leases else found.lease
    return Salvage(
        everything=Everything(entries, frozenset(read.details.values())),
        state=FoldedLedger(checkpoint, None, lease),
        again={
            **dict.fromkeys(again.tombstones),
            **{read.good[name].key: read.good[name].value for name in again.entries},
        },
        given_up=tuple(given_up),
    )


class _Value(NamedTuple):
    key: bytes
    value: bytes


class _Again(NamedTuple):
    """What is written again: tombstones of keys, then entries by name."""

    tombstones: list[bytes]
    entries: dict[str, Located]


@dataclass(slots=True)
class _Readable:
    """The last readable record of each key.

    :ivar entries: entries of runs, in the order in which they finished.
    :ivar details: key -> the offset at which details of a run end.
    :ivar good: name of an entry -> its key and its value.
    :ivar bad: key -> the offset of its last record, which cannot be read.
    :ivar leases: all leases that can be read; None where one was taken away.
    """

    entries: dict[str, Located] = field(default_factory=dict)
    details: dict[str, int] = field(default_factory=dict)
    good: dict[str, _Value] = field(default_factory=dict)
    bad: dict[bytes, int] = field(default_factory=dict)
    leases: list[LeaseSeen | None] = field(default_factory=list)

    def take(self, record: Record) -> None:
        """Take the next record of the log."""
        name, key, value = key_of(record), record.key() or b"", record.value()
        if name.startswith(DETAILS_KEY) and "#" not in name:
            self.details[name] = record.offset() + 1
        if name.startswith(RESERVED) and name != LEASE_KEY:
            return
        try:
            lease, summary = lease_seen(record), decode_summary(record)
        except KafkaClientError:
            self.bad[key] = record.offset()
            return
        self.bad.pop(key, None)
        if name == LEASE_KEY:
            self.leases.append(lease)
        elif name:
            self.entries.pop(name, None)
            self.good.pop(name, None)
            if summary is not None and value is not None:
                self.entries[name], self.good[name] = Located(record.offset(), summary), _Value(key, value)

    def said(self, topic: str) -> Iterator[str]:
        """Yield a line for each key whose last record cannot be read."""
        for key, offset in self.bad.items():
            name = "the lease" if key == LEASE_KEY.encode() else "the entry of a run"
            instead = "; what stood there before counts" if self._older(key) else ""
            yield f"{topic}-0@{offset}, which cannot be read and has the key of {name}{instead}"

    def again(self) -> _Again:
        """Return what is written again, so that entries stay in the order in which runs finished."""
        names = [*self.entries]
        first = next((n for n, name in enumerate(names) if self.good[name].key in self.bad), len(names))
        return _Again(
            [key for key in self.bad if not self._older(key)],
            {name: self.entries[name] for name in names[first:]},
        )

    def _older(self, key: bytes) -> bool:
        """Return whether something of a key can be read; a lease is written behind the checkpoint, always."""
        if key == LEASE_KEY.encode():
            return bool(self.leases)
        name = key.decode(errors="replace")
        return name in self.good and self.good[name].key == key


def _last_for_certain(
    records: Sequence[Record], entries: Entries, lease: LeaseSeen | None
) -> tuple[LedgerCheckpoint | None, list[int]]:
    """Return the last checkpoint that can be read, if nothing readable says that there was a later one, and
    the offsets of the records with its key behind it.
    """
    last: tuple[LedgerCheckpoint, int] | None = None
    passed_over: list[int] = []
    for record, content in checkpoints(records):
        try:
            found = None if content is None else decode_checkpoint(record, content)
        except KafkaClientError:
            found = None
        if found is None:
            passed_over.append(record.offset())
        else:
            last = (found, record.offset() + 1)
            passed_over.clear()
    if last is None:
        return None, passed_over
    checkpoint, end = last
    later = any(each.offset >= end for each in entries.values())
    named = None if lease is None or lease.offset < end else lease.lease.checkpoint
    return None if later or (named is not None and named[1] > end) else checkpoint, passed_over


def _remembered(entries: Entries, span: LogSpan) -> PastRuns:
    """Return what entries and details of runs say of the past."""
    runs = [each for each in entries.values() if not each.summary.taken_back_ms]
    taken = [each.summary for each in entries.values() if each.summary.taken_back_ms]
    last = runs[-1] if runs else None
    newest_first = [read_details(span, each.summary) for each in reversed(runs)]
    topics = {topic for run in newest_first for topic in run.source_topics}
    return PastRuns(
        finished=len(runs),
        last=None if last is None else entry_of(last.summary),
        last_at=-1 if last is None else last.offset,
        chained_from=0 if last is None else last.offset + 1,
        taken_back=shown([entry_of(run) for run in taken]),
        left=left_without(dict.fromkeys(topics, TopicLeft("", "")), {""}, newest_first),
        parked=_parked(newest_first),
        new_ms=last_new_ms(newest_first),
    )


def _parked(newest_first: Sequence[RunSummary]) -> dict[str, dict[int, int | None]]:
    """Return what the last run left parked; without its details it is not known how many in which task."""
    parked: dict[str, dict[int, int | None]] = {}
    for run in newest_first[:1]:
        for node in run.parked:
            parked[node] = dict.fromkeys(range(run.task_count))
    return parked


def _said_of_checkpoint(offset: int, topic: str, *, older: bool) -> str:
    instead = (
        f"; the one before it counts, so {_LAST_CHANGES} that it may have held is not known" if older else ""
    )
    return f"{topic}-0@{offset}, which is no whole checkpoint and has the key of one{instead}"
