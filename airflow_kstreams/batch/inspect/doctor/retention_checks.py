"""Checks that inputs keep records until a run has read them.

Kafka counts retention from the time that a record has, not from when it came: a topic with the default of a
week deletes records of a year ago minutes after they are written, with the segment that they are in. So the
records that wait for a run are looked at: none may be older than the topic keeps. Where none waits, the
records that runs have read last stand for those to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from airflow_kstreams.batch.inspect.doctor.findings import (
    DoctorView,
    for_each,
    names,
    number,
    set_topic,
)
from airflow_kstreams.batch.inspect.doctor.looks import Finding, error, not_permitted, ok, warning
from airflow_kstreams.batch.report.results import iso_of
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience, Spans
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.ports import TopicPartition

_CHECK = "input retention"
_UNLIMITED = -1
#: Number of the last runs that are looked at; the longest one counts.
#: Partitions of a topic whose oldest record is read, offsets that are looked through for it, and the time.
_PARTITIONS, _OFFSETS, _READ_SECONDS = 10, 100, 3.0


def check(seen: DoctorView) -> Iterator[Finding]:
    """Check the retention of the topics that runs read and the engine does not own."""
    plan = seen.plan
    between = [topic for topic in plan.intermediates if topic not in plan.repartition_topics]
    wanted = [topic for topic in (*plan.inputs, *between) if topic in seen.topics]
    # Those whose settings may not be seen are told of with all topics.
    configs = seen.admin.topic_configs(wanted).found
    watched = [topic for topic in wanted if topic in configs]
    found = [each for topic in watched if (each := _of_topic(seen, topic, configs[topic])) is not None]
    found += _limits(watched, [topic for topic in watched if topic in plan.inputs], configs)
    yield from found
    if watched and not found:
        yield ok(_CHECK, f"records stay longer than two gaps between runs; topics: {len(watched)}")


def _of_topic(seen: DoctorView, topic: str, configs: Mapping[str, str]) -> Finding | None:
    """Check that a topic keeps records for longer than they wait."""
    kept_ms = number(configs, "retention.ms")
    deletes = "delete" in configs.get("cleanup.policy", "delete")
    if not deletes or kept_ms is None or kept_ms == _UNLIMITED:
        return None
    own_times = configs.get("message.timestamp.type") != "LogAppendTime"
    if own_times:
        try:
            expiring = _expiring(seen, topic, kept_ms)
        except KafkaClientError as refused:
            return not_permitted(f"the times of records that wait in {topic}", refused)
        if expiring is not None:
            return expiring
    gap_ms, age_ms = seen.gap_ms, _age_ms(seen, topic) if own_times else 0
    needed_ms = gap_ms + max(gap_ms, age_ms)
    if kept_ms >= needed_ms:
        return None
    level = error if kept_ms < max(gap_ms, age_ms) else warning
    dated = f", the newest that were read last were dated {duration_text(age_ms)} before their run"
    return level(
        _CHECK,
        "retention-short",
        f"{topic} keeps records for {duration_text(kept_ms)} after their own time (retention.ms), the "
        f"longest gap between runs is {duration_text(gap_ms)}{dated if age_ms > gap_ms else ''}: "
        "what is deleted before a run reads it is lost",
        set_topic(topic, retention_ms=str(needed_ms)),
    )


def _expiring(seen: DoctorView, topic: str, kept_ms: int) -> Finding | None:
    """Look for records that wait for a run, and are older than their topic keeps them."""
    partitions = described_partitions(seen.topics, [topic])
    now_ms = seen.clock.now_ms()
    with closing(seen.cluster.reader(group_id=seen.plan.application_id)) as reader:
        committed = reader.committed(partitions)
        starts = seen.admin.start_offsets(partitions)
        ends = seen.admin.end_offsets(partitions, isolation="read_committed")
        positions = {
            at: max(starts[at], committed[at].offset) if at in committed else starts[at] for at in partitions
        }
        waiting = {at: (positions[at], ends[at]) for at in partitions if positions[at] < ends[at]}
        dated_ms = _oldest_ms(seen, waiting)
    expiring = [oldest_ms for oldest_ms in dated_ms.values() if now_ms - oldest_ms > kept_ms]
    if not expiring:
        return None
    return error(
        _CHECK,
        "records-expire-unread",
        f"records that wait in {topic} are dated back to {iso_of(min(expiring))}, and it keeps records for "
        f"{duration_text(kept_ms)} after their own time (retention.ms): minutes after they have come they "
        f"are deleted, read or not; partitions: {len(expiring)} of {len(dated_ms)} that were looked at",
        set_topic(topic, retention_ms=str(_UNLIMITED)),
    )


def _oldest_ms(seen: DoctorView, waiting: Spans) -> dict[TopicPartition, int]:
    """Return the time of the oldest of the first records of a few partitions, by partition."""
    first = dict(sorted(waiting.items())[:_PARTITIONS])
    spans = {at: (start, min(end, start + _OFFSETS)) for at, (start, end) in first.items()}
    patience = Patience(seconds=_READ_SECONDS, since="start", error=None)
    times: dict[TopicPartition, int] = {}
    with closing(seen.cluster.reader(group_id=seen.plan.application_id)) as reader:
        for fetched in BoundedRead(reader, spans, clock=seen.clock, patience=patience):
            for at, records in fetched.items():
                for record in records:
                    times[at] = min(times.get(at, record.timestamp()[1]), record.timestamp()[1])
    return times


def _age_ms(seen: DoctorView, topic: str) -> int:
    """Return the age of a topic's newest records when a run found new ones, in milliseconds; 0 where no such
    run is known.
    """
    left = seen.ledger.past.left.get(topic)
    if left is None:
        return 0
    begun = [
        run.begun_ms
        for run in seen.latest
        if any(read.topic == topic and read.start < read.stop for read in run.read)
    ]
    newest_ms = max((times.latest_ms for times in left.times), default=-1)
    return max(0, max(begun) - newest_ms) if begun and newest_ms >= 0 else 0


def _limits(
    watched: list[str], inputs: list[str], configs: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Find topics that lose records whatever their times are."""
    sized = [t for t in watched if (number(configs[t], "retention.bytes") or _UNLIMITED) != _UNLIMITED]
    if sized:
        yield warning(
            _CHECK,
            "retention-by-size",
            f"{names(sized)} delete by size (retention.bytes), however short the gap between runs",
            for_each(sized, lambda topic: set_topic(topic, retention_bytes="-1")),
        )
    compacted = [t for t in inputs if "compact" in configs[t].get("cleanup.policy", "")]
    if compacted:
        yield warning(
            _CHECK,
            "input-compacted",
            f"{names(compacted)} are compacted: of records with the same key between two runs only the "
            "newest may be seen",
            "nothing if they are tables; else "
            + for_each(compacted, lambda topic: set_topic(topic, cleanup_policy="delete")),
        )
