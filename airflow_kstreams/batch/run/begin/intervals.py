"""Cuts logs by a run's data interval, and finds the offsets at which an interval begins.

A record's time is its own timestamp, the producer's or the broker's (``message.timestamp.type``), whatever
extractor the topology uses: the broker finds offsets by it, and no record need be decoded.

The broker answers ``offsets_for_times`` from all that is in the log, so from aborted records and from
transaction markers, too, which are dated when they were written. The answer is therefore where to look, and
never the cut itself: that is the first record that a reader of committed records sees.

Rule for records behind a cut: a log need not be in the order of its times, so records that are dated before
the cut may lie behind the first one that is dated past it, or arrive once the run has begun. They belong to
the next run, in the order of their log, and each node there takes them or drops them as late by its window's
own grace; the dropped ones are counted at the node. Begin looks from the cut to the end of the log and counts
those that lie there, so that a run says for how many records its results may still change. The number decides
nothing: it is frozen with the slice, and a look that would take too long ends early and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.evidence.live_application import LiveInterval
from airflow_kstreams.batch.evidence.prior_runs import PriorRuns
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, interval_deleted, interval_incomplete
from airflow_kstreams.batch.protocol.logs.log_read import LogBounds
from airflow_kstreams.batch.protocol.slice.slice import BehindCut, FrozenPartition
from airflow_kstreams.streams.bounded_read import BoundedRead, Spans
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.partitioning.partition_groups import first_few
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, ReaderPort, Record, TopicPartition
from airflow_kstreams.streams.records.timestamp_reading import iso_of
from airflow_kstreams.streams.settings import ApplicationSettings

_POLL_RECORDS = 1_000
_READ_AT_ONCE = 8
#: Largest number of records that a begin looks at to count those behind the cut: about a second or two.
_LOOKED_AT = 1_000_000
#: Kafka keeps timestamps in signed 64-bit numbers.
_LATEST_MS = 2**63 - 1
#: Times (from, to) in epoch milliseconds, both included.
ANY_TIME = (-(2**63), _LATEST_MS)


class Interval(NamedTuple):
    """A data interval ``[start, end)``, epoch milliseconds."""

    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        return f"[{iso_of(self.start_ms)}, {iso_of(self.end_ms)})"


class Dated(NamedTuple):
    """The first record of a span that is dated at or after a time.

    :param offset: offset of the record.
    :param timestamp_ms: time of the record, epoch milliseconds.
    :param older_behind: whether a record right behind it, as far as was fetched, is dated before that time.
    """

    offset: int
    timestamp_ms: int
    older_behind: bool


def check_interval(settings: ApplicationSettings, run_id: str, interval_ms: tuple[int, int] | None) -> None:
    """Refuse a run that goes by its data interval and has none.

    :raises ConfigError: the interval is missing, empty or turned round.
    """
    if not settings.by_interval:
        return
    asked = f"run {run_id!r} of application {settings.application_id!r} goes by its data interval "
    asked += f"(autostop.at={settings.autostop_at})"
    fix = (
        'schedule the DAG by CronDataIntervalTimetable("0 * * * *", timezone="UTC"): a cron text such as '
        "@hourly gives empty intervals since Airflow 3; or set autostop.at to eol"
    )
    if interval_ms is None:
        raise ConfigError(f"{asked} and has none", fix=fix)
    interval = Interval(*interval_ms)
    if interval.start_ms >= interval.end_ms:
        raise ConfigError(f"{asked}, and {interval} is empty", fix=fix)


def refuse_backwards(
    plan: TopologyPlan, settings: ApplicationSettings, interval_ms: tuple[int, int] | None, ledger: Ledger
) -> None:
    """Refuse to process an interval into state that holds a later one already.

    :raises ConfigError: a run of this application has finished an interval that ends past this one's start.
    """
    last = ledger.last()
    if interval_ms is None or last is None or last.interval_ms is None:
        return
    if not settings.keeps_to_interval or not plan.stateful or last.interval_ms[1] <= interval_ms[0]:
        return
    raise ConfigError(
        f"application {plan.application_id!r} keeps state, and its run {last.run_id!r} has processed "
        f"{Interval(*last.interval_ms)}: {Interval(*interval_ms)} cannot come after that",
        fix="backfill the intervals of a stateful topology in order, without --run-backwards; to process "
        "them again, give the backfill another name in its dag run conf",
    )


def repeated_effects(plan: TopologyPlan) -> tuple[str, ...]:
    """Return a warning that names the calls of a backfill whose idempotency keys no live run has used."""
    between = {*plan.intermediates}
    return tuple(
        f"a backfill has its own {', '.join(sorted(between & {*sub.sources}))}, so calls of "
        f"{', '.join(sub.calling)} have other idempotency keys than the live runs' and effects that go by "
        "them are made again; for calls whose effects must not be, make a key of the record's content "
        "(docs/explanation/backfill.md)"
        for sub in plan.subtopologies
        if sub.calling and between & {*sub.sources}
    )


def find_interval_losses(
    bounds: Mapping[TopicPartition, LogBounds],
    found: Mapping[TopicPartition, int],
    prior: PriorRuns,
    interval: Interval,
    live: LiveInterval,
) -> list[Loss]:
    """Return losses for the partitions that may not hold all records of the interval any more, unless a
    person accepted that.

    Where a log has lost its beginning, a record that is dated before the interval shows that the interval has
    not begun yet, unless it came late, as the live application's runs may show. Where none is left, records
    of the interval may be gone.

    :param found: partition -> the first offset dated at or after the interval's start.
    :param live: place of the interval in the logs, by the live application's ledger.
    """
    losses: list[Loss] = []
    for tp, log_of in sorted(bounds.items()):
        begun, ended = live.begun.get(tp, log_of.start), live.ended.get(tp, log_of.high)
        if is_accepted(tp, log_of, prior):
            continue
        if log_of.start > 0 and found.get(tp, log_of.high) <= log_of.start:
            losses.append(interval_deleted(tp, log_start=log_of.start, interval=str(interval)))
        elif begun < log_of.start:
            before = live.before.get(tp, 0)
            gone = (
                f"records from offset {before} to {log_of.start} are gone, at most {log_of.start - before}; "
                f"the log starts at {log_of.start}, and runs of the live application have read from {begun} "
                "on what came with the interval"
            )
            losses.append(interval_incomplete(tp, gone=gone, interval=str(interval)))
        elif log_of.high < ended:
            gone = (
                f"records from offset {log_of.high} to {ended} are gone, at most {ended - log_of.high}; the "
                f"log ends at {log_of.high}, and run {live.run_id!r} of the live application has read it up "
                f"to {ended}"
            )
            losses.append(interval_incomplete(tp, gone=gone, interval=str(interval)))
    return losses


def find_unproven(
    bounds: Mapping[TopicPartition, LogBounds], prior: PriorRuns, live: LiveInterval
) -> list[TopicPartition]:
    """Return the partitions that have lost their beginning and of which only times tell that no record of the
    interval is gone.

    :param bounds: bounds of the partitions for which :func:`find_interval_losses` found no loss.
    :param live: place of the interval in the logs, by the live application's ledger.
    """
    return [
        tp
        for tp, log_of in sorted(bounds.items())
        if log_of.start > live.before.get(tp, 0) and not is_accepted(tp, log_of, prior)
    ]


def unproven_warning(
    starts: Sequence[tuple[TopicPartition, int]],
    dated: Mapping[TopicPartition, Dated],
    interval: Interval,
    application_id: str,
) -> str:
    """Warn that records of an interval may be gone, with the starts of logs and the times there.

    :param starts: (partition, start of its log).
    :param dated: partition -> the first record that is left, for the first few partitions.
    :param application_id: id of the live application; empty if none is given.
    """
    who = f"the ledger of application {application_id} does not say" if application_id else "nothing says"
    where = first_few(
        [
            f"{tp} starts at offset {start}"
            + (f" with a record dated {iso_of(dated[tp].timestamp_ms)}" if tp in dated else "")
            for tp, start in starts
        ]
    )
    return (
        f"logs have lost their beginning ({where}), and {who} where the data interval {interval} began in "
        "them: records of it are gone if what is left begins with records that came late"
    )


def is_accepted(tp: TopicPartition, log_of: LogBounds, prior: PriorRuns) -> bool:
    """Whether a person accepted that a partition has lost records of the interval."""
    return prior.accepts(tp, log_of) and prior.committed[tp].offset >= log_of.start


def start_by_time(
    tp: TopicPartition, log_of: LogBounds, found: Mapping[TopicPartition, int], prior: PriorRuns
) -> int:
    """Return the offset at which reading an interval begins: the first one dated in or past it, or the one
    that a person set.

    :param found: partition -> the first offset dated at or after the interval's start.
    """
    if prior.accepts(tp, log_of):
        return max(log_of.start, min(prior.committed[tp].offset, log_of.stable))
    return min(found.get(tp, log_of.stable), log_of.stable)


def cut_by_time(
    admin: AdminPort,
    reader: ReaderPort,
    inputs: Sequence[FrozenPartition],
    interval: Interval,
    *,
    clock: Clock,
    ahead_ms: int = -1,
) -> tuple[tuple[FrozenPartition, ...], tuple[str, ...]]:
    """Stop each partition before the first committed record that is dated at or past the interval's end.

    :param inputs: start and stop of every input partition, the stop at the end of its log.
    :param ahead_ms: milliseconds: a record dated further ahead than this, of now and of the interval's end,
        does not count; -1 when every record counts.
    :return: the partitions with their stops at the cut, and warnings that name single records that hold a
        whole partition back.
    """
    ends = {part.topic_partition: part for part in inputs if part.start_offset < part.stop_offset}
    hints = admin.offsets_for_times(dict.fromkeys(ends, interval.end_ms)) if ends else {}
    spans = {
        tp: (max(part.start_offset, hints[tp]), part.stop_offset)
        for tp, part in ends.items()
        if tp in hints and hints[tp] < part.stop_offset
    }
    latest_ms = _LATEST_MS if ahead_ms < 0 else max(clock.now_ms(), interval.end_ms) + ahead_ms
    found = first_dated(reader, spans, (interval.end_ms, latest_ms), clock=clock)
    cut = tuple(
        msgspec.structs.replace(part, stop_offset=found[part.topic_partition].offset)
        if part.topic_partition in found
        else part
        for part in inputs
    )
    warnings = tuple(
        _held_back(tp, dated, ends[tp].stop_offset - dated.offset, interval)
        for tp, dated in sorted(found.items())
        if dated.offset <= ends[tp].start_offset
        and (dated.older_behind or dated.timestamp_ms > max(clock.now_ms(), interval.end_ms))
    )
    return cut, warnings


def any_dated(
    admin: AdminPort, reader: ReaderPort, spans: Spans, dated_ms: tuple[int, int], *, clock: Clock
) -> bool:
    """Return whether a visible record is dated from one time to another, both included."""
    hints = admin.offsets_for_times(dict.fromkeys(spans, dated_ms[0])) if spans else {}
    hinted = {tp: (max(spans[tp][0], at), spans[tp][1]) for tp, at in hints.items()}
    return bool(first_dated(reader, hinted, dated_ms, clock=clock))


def count_behind(
    reader: ReaderPort,
    cut: Sequence[FrozenPartition],
    ends: Mapping[TopicPartition, int],
    before_ms: int,
    *,
    clock: Clock,
    looked_at: int = _LOOKED_AT,
) -> BehindCut:
    """Count the records that lie behind the cut and are dated before it.

    :param cut: start and stop of every input partition, the stop at the cut.
    :param ends: partition -> the end of its log when the run began.
    :param before_ms: end of the data interval, epoch milliseconds.
    :param looked_at: the largest number of records to look at.
    """
    spans = {
        part.topic_partition: (part.stop_offset, ends[part.topic_partition])
        for part in cut
        if part.stop_offset < ends.get(part.topic_partition, -1)
    }
    left, found = looked_at, Counter[str]()
    wanted = sorted(spans)
    for first in range(0, len(wanted), _READ_AT_ONCE):
        if left <= 0:
            return BehindCut(records=_some(found), whole=False)
        some = {tp: spans[tp] for tp in wanted[first : first + _READ_AT_ONCE]}
        read = BoundedRead(reader, some, clock=clock, max_records=_POLL_RECORDS)
        for fetched in read:
            for tp, records in fetched.items():
                found[tp.topic] += sum(record.timestamp()[1] < before_ms for record in records)
                left -= len(records)
            if left <= 0 and read.waiting:
                read.stop()
                return BehindCut(records=_some(found), whole=False)
    return BehindCut(records=_some(found))


def _some(found: Counter[str]) -> dict[str, int]:
    return {topic: number for topic, number in sorted(found.items()) if number}


def first_dated(
    reader: ReaderPort, spans: Spans, dated_ms: tuple[int, int], *, clock: Clock
) -> dict[TopicPartition, Dated]:
    """Return the first visible record dated from one time to another, both included, of each span that has
    one.

    :param spans: partition -> ``[from, to)``, where ``to`` is at most the last stable offset.
    """
    found: dict[TopicPartition, Dated] = {}
    wanted = sorted(tp for tp, (start, stop) in spans.items() if start < stop)
    for first in range(0, len(wanted), _READ_AT_ONCE):
        some = {tp: spans[tp] for tp in wanted[first : first + _READ_AT_ONCE]}
        read = BoundedRead(reader, some, clock=clock, max_records=_POLL_RECORDS)
        for fetched in read:
            dated = {tp: _first_of(records, dated_ms) for tp, records in fetched.items()}
            found |= {tp: first for tp, first in dated.items() if first is not None}
            read.drop(found)
    return found


def _first_of(records: Sequence[Record], dated_ms: tuple[int, int]) -> Dated | None:
    at_ms, latest_ms = dated_ms
    for index, record in enumerate(records):
        timestamp_ms = record.timestamp()[1]
        if at_ms <= timestamp_ms <= latest_ms:
            behind = any(later.timestamp()[1] < at_ms for later in records[index + 1 :])
            return Dated(record.offset(), timestamp_ms, behind)
    return None


def _held_back(tp: TopicPartition, dated: Dated, waiting: int, interval: Interval) -> str:
    return (
        f"{tp}: the record at offset {dated.offset} is dated {iso_of(dated.timestamp_ms)}, past the end of "
        f"the data interval {interval}: nothing of the partition is read, and what lies at and behind the "
        f"record, {counted(waiting, 'offset')}, waits for the run whose interval reaches it"
    )
