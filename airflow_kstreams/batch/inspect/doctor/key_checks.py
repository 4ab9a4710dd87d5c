"""Checks, by the newest records, that the keys of topics that have grown lie where their growth puts them.

Rule: a task fails at the first key that lies elsewhere; this check finds it before a run does, with the same
arithmetic (``records/key_check.py``). A plan does not say whether keys have windows, whose bytes do not
count: each topic is read in the way that leaves the fewest keys astray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from airflow_kstreams.batch.inspect.doctor.findings import DoctorView, Finding, error, not_permitted, ok
from airflow_kstreams.batch.run.source_topics import check_topics
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import KafkaClientError, TopologyError
from airflow_kstreams.streams.partitioning.linear_hashing import key_hash
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic, GrowthKind, places
from airflow_kstreams.streams.ports import TopicPartition

#: Records that are looked at: of a topic together, and of each partition at least.
_OF_TOPIC, _OF_PARTITION = 10_000, 20
_READ_SECONDS = 15.0
#: Bytes behind a key: none, the start of a window, the end and start of a session.
_WINDOW_BYTES = (0, 8, 16)


class _Key(NamedTuple):
    at: TopicPartition
    offset: int
    data: bytes


class _KeyVerdict(NamedTuple):
    """One way to read the keys of a topic.

    :param astray: those that lie elsewhere, and where they might lie.
    """

    kind: GrowthKind
    astray: Sequence[tuple[_Key, frozenset[int]]]


def check(seen: DoctorView) -> Iterator[Finding]:
    """Look at the newest keys of every topic that has grown and is read into state."""
    for topic, growth in sorted(_grown(seen).items()):
        try:
            keys = _newest_keys(seen, topic, growth.history[-1])
        except KafkaClientError as refused:
            yield not_permitted(f"the keys of {topic}", refused)
            continue
        if keys:
            yield _judged(topic, growth, keys)


def _grown(seen: DoctorView) -> Mapping[str, GrownTopic]:
    """Return the topics that have grown, as the next begin would find them."""
    try:
        grouped = check_topics(
            seen.admin,
            seen.plan,
            seen.subject.settings,
            groups=seen.subject.groups,
            recorded=seen.ledger.assignment,
        ).grouped
    except TopologyError:
        return {}  # it is a finding of topic_checks
    return {
        topic: growth
        for entry in grouped.values()
        for topic, growth in entry.grown.items()
        if topic not in seen.plan.repartition_topics
    }


def _newest_keys(seen: DoctorView, topic: str, partitions: int) -> list[_Key]:
    numbers = [TopicPartition(topic, number) for number in range(partitions)]
    each = max(_OF_PARTITION, _OF_TOPIC // partitions)
    starts = seen.admin.start_offsets(numbers)
    ends = seen.admin.end_offsets(numbers, isolation="read_committed")
    spans = {at: (max(starts[at], ends[at] - each), ends[at]) for at in numbers}
    patience = Patience(seconds=_READ_SECONDS, since="start", error=None)
    with closing(seen.cluster.reader(group_id=seen.plan.application_id)) as reader:
        return [
            _Key(at, record.offset(), key)
            for fetched in BoundedRead(reader, spans, clock=seen.clock, patience=patience)
            for at, records in fetched.items()
            for record in records
            if (key := record.key()) is not None
        ]


def _judged(topic: str, growth: GrownTopic, keys: Sequence[_Key]) -> Finding:
    verdicts = [_verdict(growth, kind, keys, tail) for tail in _WINDOW_BYTES for kind in growth.kinds]
    best = min(verdicts, key=lambda verdict: len(verdict.astray))
    counts = " -> ".join(map(str, growth.history))
    if not best.astray:
        fitting = {verdict.kind for verdict in verdicts if not verdict.astray}
        kinds = " or ".join(kind for kind in growth.kinds if kind in fitting)
        return ok(
            "keys",
            f"the newest {len(keys)} keys of {topic} lie where growth over {counts} puts them: {kinds}",
        )
    key, allowed = best.astray[0]
    expected = ", ".join(map(str, sorted(allowed)))
    return error(
        "keys",
        f"{len(best.astray)} of the newest {len(keys)} keys of {topic} do not lie where growth over {counts} "
        f"puts them, e.g. that of {key.at}@{key.offset} ({best.kind}: {expected}): their state is another "
        "task's, and the run that reads them fails",
        "have all producers of the topic place keys in one way, by Kafka's default partitioner with "
        "multiples only or by the LinearHashPartitioner; see whether the topic began with "
        f"{growth.history[0]} partitions (initial.partitions)",
    )


def _verdict(growth: GrownTopic, kind: GrowthKind, keys: Sequence[_Key], tail: int) -> _KeyVerdict:
    """Judge keys of which the last ``tail`` bytes do not count."""
    judged = [(key, places(key_hash(key.data[: len(key.data) - tail]), growth.history, kind)) for key in keys]
    return _KeyVerdict(
        kind,
        [(key, at) for key, at in judged if len(key.data) < tail or key.at.partition not in at],
    )
