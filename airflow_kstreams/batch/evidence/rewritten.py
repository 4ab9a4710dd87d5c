"""Finds logs that were truncated below the committed offset and have grown past it again.

Offsets alone do not show it. Rule: with each committed offset stands the last record that was read before it,
by offset and leader epoch. What lies between the two was markers and aborted records, and stays so. Another
epoch at that offset, nothing there, or a record between it and the committed offset is the work of another
leader, which took records under offsets that had been given before; the run would skip them.

Where retention or a person deleted the record nothing can be compared, and where compaction may have removed
it its absence says nothing. Records of a message format without epochs, offsets that another tool committed
and those of versions that kept no epoch are not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from airflow_kstreams.batch.evidence.prior_runs import PriorRuns
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, rewritten
from airflow_kstreams.batch.protocol.logs.log_bounds import POSITION_LOST, LogBounds
from airflow_kstreams.streams.bounded_read import BoundedRead, Spans
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import AdminPort, Clock, ReaderPort, TopicPartition
from airflow_kstreams.streams.records.record_queue import LastRecord, last_of

#: Of one fetch; a span holds one record, unless the log is another one.
_FETCH_RECORDS = 100


def find_rewritten(
    admin: AdminPort,
    reader: ReaderPort,
    bounds: Mapping[TopicPartition, LogBounds],
    prior: PriorRuns,
    *,
    clock: Clock,
) -> list[Loss]:
    """Return the partitions whose log is not the one that runs have read; nothing is read without an epoch.

    :param reader: read_committed; what it was assigned before is lost.
    :param bounds: of partitions without losses
        (:func:`~airflow_kstreams.batch.run.begin.starts.find_losses`).
    """
    return find_other_records(
        admin,
        reader,
        {tp: prior.last_record(tp) for tp in bounds if prior.remembered(tp)},
        committed={tp: at.offset for tp, at in prior.committed.items()},
        logs={tp: (log_of.start, log_of.stable) for tp, log_of in bounds.items()},
        clock=clock,
    )


def find_other_records(
    admin: AdminPort,
    reader: ReaderPort,
    last: Mapping[TopicPartition, LastRecord],
    *,
    committed: Mapping[TopicPartition, int],
    logs: Spans,
    clock: Clock,
) -> list[Loss]:
    """Return the partitions that hold other records before their committed offset than those that were read.

    :param reader: read_committed; what it was assigned before is lost.
    :param last: the last record before each committed offset; nothing is read where it is not known.
    :param committed: the committed offsets.
    :param logs: first offset and last stable offset of each log.
    """
    known = {tp: of for tp, of in sorted(last.items()) if of.known and of.offset >= logs[tp][0]}
    spans = {tp: (of.offset, min(committed[tp], logs[tp][1])) for tp, of in known.items()}
    found = _read(admin, reader, spans, clock=clock)
    compacted = _compacted(admin, {tp.topic for tp, records in found.items() if not records})
    losses: list[Loss] = []
    for tp, records in found.items():
        other = next((record for record in records if record != known[tp]), None)
        if other is None and (records or tp.topic in compacted):
            continue
        losses.append(rewritten(tp, position=committed[tp], expected=known[tp], found=other))
    return losses


def _read(
    admin: AdminPort, reader: ReaderPort, spans: Spans, *, clock: Clock
) -> dict[TopicPartition, list[LastRecord]]:
    """Return the records in each span, without the partitions whose span was deleted meanwhile."""
    while True:
        found: dict[TopicPartition, list[LastRecord]] = {tp: [] for tp in spans}
        try:
            for fetched in BoundedRead(reader, spans, clock=clock, max_records=_FETCH_RECORDS):
                for tp, records in fetched.items():
                    found[tp] += map(last_of, records)
        except KafkaClientError as error:
            left = _still_there(admin, spans) if error.code in POSITION_LOST else spans
            if len(left) == len(spans):
                raise
            spans = left
        else:
            return found


def _still_there(admin: AdminPort, spans: Spans) -> Spans:
    starts = admin.start_offsets(spans)
    return {tp: span for tp, span in spans.items() if span[0] >= starts[tp]}


def _compacted(admin: AdminPort, topics: Collection[str]) -> set[str]:
    if not topics:
        return set()
    configs = admin.topic_configs(topics)
    for refused in configs.refused.values():
        raise refused
    return {topic for topic, found in configs.found.items() if "compact" in found.get("cleanup.policy", "")}
