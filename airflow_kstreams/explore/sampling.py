"""Takes a sample from Kafka: the last records of every topic that a topology reads and does not write.

Rule: of each topic the last N records over all its partitions are taken, in a run's order, backwards: the
largest timestamp among the partitions' last records is the last record, then the same again without it. So a
sample holds an unbroken tail of every partition.

Nothing is written to the broker: partitions are assigned rather than subscribed, no group is joined, no
offset committed, no topic created. (A broker that never had a consumer makes its own ``__consumer_offsets``
when the first client asks for its coordinator, which every client does.)

Offsets have gaps (compaction, transactions), so the tail of a partition is read from further and further back
until it has enough records or begins with the log.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from airflow_kstreams.explore.sample import Sample, SampleRecord
from airflow_kstreams.explore.tables import Progress
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, ClusterPort, ReaderPort, Record, TopicPartition

_FETCH_SECONDS = 0.5
_SILENCE_SECONDS = 30.0
_WIDER = 4

#: Number of records of each topic, or by topic.
Last = int | Mapping[str, int]

_LAST = 1000


@dataclass(slots=True, kw_only=True)
class _Tail:
    """The part of one partition to read: ``[start, end)`` of a log that begins at ``log_start``."""

    log_start: int
    start: int
    end: int
    wanted: int
    records: list[Record]

    @property
    def enough(self) -> bool:
        return len(self.records) >= self.wanted or self.start <= self.log_start

    def widen(self) -> None:
        self.start = max(self.log_start, self.end - (self.end - self.start) * _WIDER)
        self.records = []


def take_sample(cluster: ClusterPort, plan: TopologyPlan, last: Last, progress: Progress) -> Sample:
    """Read the last records of every input topic.

    :param last: a number for each topic, or numbers by topic; topics without one give 1000.
    :raises ConfigError: a number is negative, or of a topic that is no input.
    :raises KafkaClientError: the broker cannot be reached, a topic is missing, or a partition cannot be read.
    """
    wanted = {} if plan.patterns else _wanted(plan, last)
    with ExitStack() as clients:
        admin = cluster.admin()
        clients.callback(admin.close)
        if plan.patterns:
            plan = plan.matched(admin.topic_names())
            wanted = _wanted(plan, last)
        # Global tables are read whole, or sampled records would not find the entries they name.
        wanted |= dict.fromkeys(plan.globals, sys.maxsize)
        user_topics = {*plan.sources, *plan.outputs, *plan.globals} - {*plan.repartition_topics}
        partitions = {
            name: description.partitions for name, description in admin.describe_topics(user_topics).items()
        }
        _refuse_missing(plan, partitions)
        tails = _tails(admin, wanted, partitions)
        # The client looks up the group's coordinator, and may not have the permission under another name.
        reader = cluster.reader(group_id=plan.application_id, isolation="read_committed")
        clients.callback(reader.close)
        taken_ms = time.time_ns() // 1_000_000
        _read_all(reader, tails, progress)
    records: list[SampleRecord] = []
    for topic in (*plan.inputs, *plan.globals):
        of_topic = {at: tail.records for at, tail in tails.items() if at.topic == topic}
        records += _last_of(of_topic, wanted[topic])
    return Sample(records=tuple(records), partitions=dict(sorted(partitions.items())), taken_ms=taken_ms)


def _wanted(plan: TopologyPlan, last: Last) -> dict[str, int]:
    if isinstance(last, int):
        wanted = dict.fromkeys(plan.inputs, last)
    else:
        of_patterns = {
            name: last[topic] for topic in plan.patterns.keys() & last for name in plan.patterns[topic]
        }
        last = of_patterns | {topic: number for topic, number in last.items() if topic not in plan.patterns}
        unknown = sorted({*last} - {*plan.inputs})
        if unknown:
            raise ConfigError(
                f"a number of records is given for {unknown[0]!r}, which is no input of the topology",
                fix=f"name one of: {', '.join(plan.inputs)}",
            )
        wanted = dict.fromkeys(plan.inputs, _LAST) | dict(last)
    for topic, count in wanted.items():
        if count < 0:
            raise ConfigError(f"{counted(count, 'record')} of {topic!r} cannot be read", fix="give 0 or more")
    return wanted


def _refuse_missing(plan: TopologyPlan, partitions: Collection[str]) -> None:
    missing = [topic for topic in (*plan.inputs, *plan.globals) if topic not in partitions]
    if missing:
        raise KafkaClientError(
            f"the topology reads topics that do not exist: {', '.join(missing)}",
            fix="create the topics, or correct their names; is this the right cluster?",
            kafka_code="UNKNOWN_TOPIC_OR_PART",
        )


def _tails(
    admin: AdminPort, wanted: Mapping[str, int], partitions: Mapping[str, int]
) -> dict[TopicPartition, _Tail]:
    every = [TopicPartition(topic, number) for topic in wanted for number in range(partitions[topic])]
    starts = admin.start_offsets(every)
    ends = admin.end_offsets(every, isolation="read_committed")
    return {
        at: _Tail(
            log_start=starts[at],
            start=max(starts[at], ends[at] - wanted[at.topic]),
            end=ends[at],
            wanted=wanted[at.topic],
            records=[],
        )
        for at in every
    }


def _read_all(reader: ReaderPort, tails: Mapping[TopicPartition, _Tail], progress: Progress) -> None:
    unread = {at: tail for at, tail in tails.items() if tail.start < tail.end}
    while unread:
        _read(reader, unread, progress)
        unread = {at: tail for at, tail in unread.items() if not tail.enough}
        for tail in unread.values():
            tail.widen()


def _read(reader: ReaderPort, tails: Mapping[TopicPartition, _Tail], progress: Progress) -> None:
    """Read every tail from its start to its end."""
    total = sum(tail.end - tail.start for tail in tails.values())
    read = BoundedRead(
        reader,
        {at: (tail.start, tail.end) for at, tail in tails.items()},
        poll_seconds=_FETCH_SECONDS,
        patience=Patience(seconds=_SILENCE_SECONDS, error=_unanswered),
    )
    progress(0, total)
    for fetched in read:
        for at, records in fetched.items():
            tails[at].records += records
        progress(total - sum(tails[at].end - position for at, position in read.positions.items()), total)


def _unanswered(partitions: Sequence[TopicPartition], seconds: float) -> KafkaClientError:
    return KafkaClientError(
        f"nothing could be read of {', '.join(map(str, sorted(partitions)))} for {seconds:.0f} s",
        fix="check that the brokers that lead these partitions are up, then try again",
        kafka_code="_TIMED_OUT",
        retriable_code=True,
    )


def _last_of(partitions: Mapping[TopicPartition, Sequence[Record]], count: int) -> list[SampleRecord]:
    """Return the last records over all partitions, by partition, in offset order."""
    backwards = heapq.merge(
        *([(at, record) for record in reversed(records)] for at, records in partitions.items()),
        key=lambda found: (-found[1].timestamp()[1], -found[0].partition),
    )
    taken = Counter(at for at, _ in islice(backwards, count))
    return [
        _sampled(record)
        for at, records in sorted(partitions.items())
        for record in records[len(records) - taken[at] :]
    ]


def _sampled(record: Record) -> SampleRecord:
    return SampleRecord(
        topic=record.topic(),
        partition=record.partition(),
        offset=record.offset(),
        key=record.key(),
        value=record.value(),
        timestamp_ms=record.timestamp()[1],
        headers=list(record.headers() or ()),
    )
