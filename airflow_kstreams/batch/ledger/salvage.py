"""Reads a ledger in which records cannot be read, and says what of it is known and what is given up.

Rule: a record that this version reads counts as it always does, and of a key whose last record cannot be read
the last one that can be. A checkpoint counts if it is the last one for certain: no entry of a run lies behind
it, and no lease names a later one. Where that cannot be had, all that entries and details of runs say is put
together anew, and what only a checkpoint holds is given up.

:mod:`airflow_kstreams.batch.reset.ledger_repair` writes what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from airflow_kstreams.batch.ledger.fold import (
    CHECKPOINT_KEY,
    LEASE_KEY,
    RESERVED,
    FoldedLedger,
    LeaseSeen,
    LedgerCheckpoint,
    decode_summary,
    key_of,
    last_checkpoint,
    lease_seen,
    refuse_others,
)
from airflow_kstreams.batch.ledger.past_runs import PastRuns, TopicLeft, left_without, shown
from airflow_kstreams.batch.ledger.run_search import Entries, Everything, Located, LogSpan, read_details
from airflow_kstreams.batch.ledger.run_summary import DETAILS_KEY, RunSummary, entry_of
from airflow_kstreams.batch.protocol.slice.metadata_records import headers_of, pieces_of
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import Record

#: What only a checkpoint holds.
_OF_CHECKPOINTS = (
    "partition groups, ids of the application's own topics and ends of changelogs: the next run takes the "
    "topics as it finds them",
    "a reset, a continuous run or an accepted offset that came last: the next run goes on at the committed "
    "offsets",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """What is left of a ledger.

    :param everything: entries and details of all runs.
    :param state: the checkpoint, found or made from the entries, and the lease.
    :param unreadable: key -> offset of its last record, which cannot be read, and the value of the last one
        that can be; None without one.
    :param given_up: what is not known any more, one line each.
    """

    everything: Everything
    state: FoldedLedger
    unreadable: Mapping[bytes, tuple[int, bytes | None]]
    given_up: tuple[str, ...]


def salvage(records: Sequence[Record], span: LogSpan, topic: str) -> Salvage:
    """Find out what records of a ledger say.

    :param records: all of them, in log order.
    :param span: the log, in which details of runs are looked up; what replaces unreadable records comes at
        its end, in their order.
    :raises ConfigError: no record belongs to a ledger.
    """
    refuse_others(records, topic)
    entries: dict[str, Located] = {}
    details: dict[str, int] = {}
    good: dict[bytes, bytes] = {}
    bad: dict[bytes, tuple[int, bytes | None]] = {}
    leases: list[LeaseSeen | None] = []
    for record in records:
        name, key, value = key_of(record), record.key() or b"", record.value()
        if name.startswith(DETAILS_KEY) and "#" not in name:
            details[name] = record.offset() + 1
        if name.startswith(RESERVED) and name != LEASE_KEY:
            continue
        try:
            lease, summary = lease_seen(record), decode_summary(record)
        except KafkaClientError:
            bad[key] = (record.offset(), good.get(key))
            continue
        bad.pop(key, None)
        if name == LEASE_KEY:
            leases.append(lease)
        elif name:
            entries.pop(name, None)
            good.pop(key, None)
            if summary is not None and value is not None:
                entries[name], good[key] = Located(record.offset(), summary), value
    everything = Everything(entries, frozenset(details.values()))
    lease = leases[-1] if leases else None
    given_up = [*_said(bad, topic)]
    found = _last_for_certain(records, entries, lease)
    if lease is not None:
        # It is written behind the checkpoint, as each lease is.
        bad.pop(LEASE_KEY.encode(), None)
    _place(entries, bad, span.end)
    if found is None:
        past = _remembered(entries, span)
        if any(key_of(record).startswith(CHECKPOINT_KEY) for record in records) or entries:
            given_up += _OF_CHECKPOINTS
        checkpoint = LedgerCheckpoint(past=past, at=-1)
    else:
        last = None if found.past.last is None else entries.get(found.past.last.run_id)
        past = msgspec.structs.replace(found.past, last_at=-1 if last is None else last.offset)
        checkpoint = msgspec.structs.replace(found, past=past)
        lease = lease if leases else found.lease
    return Salvage(
        everything=everything,
        state=FoldedLedger(checkpoint, None, lease),
        unreadable=bad,
        given_up=tuple(given_up),
    )


def _place(entries: dict[str, Located], bad: Mapping[bytes, tuple[int, bytes | None]], end: int) -> None:
    """Give entries that are written again the offsets that they get."""
    for number, (key, (_, older)) in enumerate(bad.items()):
        if older is not None:
            name = key.decode()
            entries[name] = entries[name]._replace(offset=end + number)


def _last_for_certain(
    records: Sequence[Record], entries: Entries, lease: LeaseSeen | None
) -> LedgerCheckpoint | None:
    """Return the last checkpoint that can be read, if nothing readable says that there was a later one."""
    for number in reversed([n for n, record in enumerate(records) if key_of(record) == CHECKPOINT_KEY]):
        first = max(0, number - pieces_of(headers_of(records[number])))
        try:
            found = last_checkpoint(records[first : number + 1]) or last_checkpoint(records[: number + 1])
        except KafkaClientError:
            continue
        if found is None:
            # A tombstone, which no run writes.
            continue
        checkpoint, (_, end) = found
        later = any(each.offset >= end for each in entries.values())
        named = None if lease is None or lease.offset < end else lease.lease.checkpoint
        return None if later or (named is not None and named[1] > end) else checkpoint
    return None


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
    )


def _parked(newest_first: Sequence[RunSummary]) -> dict[str, dict[int, int | None]]:
    """Return what the last run left parked; without its details it is not known how many in which task."""
    parked: dict[str, dict[int, int | None]] = {}
    for run in newest_first[:1]:
        for node in run.parked:
            parked[node] = dict.fromkeys(range(run.task_count))
    return parked


def _said(bad: Mapping[bytes, tuple[int, bytes | None]], topic: str) -> Iterator[str]:
    for key, (offset, older) in bad.items():
        name = "the lease" if key == LEASE_KEY.encode() else "the entry of a run"
        instead = "" if older is None else "; what stood there before counts"
        yield f"{topic}-0@{offset}, which cannot be read and has the key of {name}{instead}"
