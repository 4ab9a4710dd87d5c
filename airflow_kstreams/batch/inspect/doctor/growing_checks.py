"""Checks that keys lie where the growth of their topics puts them, that new partitions come to be read, and
that processors being added come into use.

Rule: one run is usual before a blocked partition is read, for that run reads what it waits for. A run whose
slice ends early, at its data interval's end or at an open transaction, may leave some of that to the next. A
partition that several runs have found blocked needs an operator.

One run is usual, too, before the new processors take over their keys; an expansion that several runs have
found, and left, needs an operator. And a deletion is in a changelog for ``delete.retention.ms`` after it is
compacted; a copy that has made no step for half of that begins anew when it goes on.

A task fails at the first key that lies elsewhere than growth puts it; the check of keys finds it before a run
does, by the newest records and with the same arithmetic (``records/key_check.py``). A plan does not say
whether keys have windows, whose bytes do not count: each topic is read in the way that leaves the fewest keys
astray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan, expansions
from airflow_kstreams.batch.growing.grown_groups import BlockedPartition, blocked_partitions, blocked_text
from airflow_kstreams.batch.inspect.doctor.findings import DoctorView
from airflow_kstreams.batch.inspect.doctor.looks import Finding, error, not_permitted, ok, warning
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.source_topics import check_topics
from airflow_kstreams.streams.bounded_read import BoundedRead, Patience
from airflow_kstreams.streams.errors import AccessDeniedError, KafkaClientError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.naming.commands import abort_command, expand_command
from airflow_kstreams.streams.partitioning.linear_hashing import key_hash
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic, GrowthKind, places
from airflow_kstreams.streams.ports import TopicPartition

#: Number of records that are looked at: of a topic in all, and of each partition at least.
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

    :param astray: keys that lie elsewhere than growth puts them, each with the partitions where it might lie.
    """

    kind: GrowthKind
    astray: Sequence[tuple[_Key, frozenset[int]]]


def _keys(seen: DoctorView) -> Iterator[Finding]:
    """Check the newest keys of every topic that has grown and is read into state."""
    for topic, growth in sorted(_grown(seen).items()):
        try:
            keys = _newest_keys(seen, topic, growth.history[-1])
        except KafkaClientError as refused:
            yield not_permitted(f"the keys of {topic}", refused)
            continue
        if keys:
            yield _judged_keys(topic, growth, keys)


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


def _judged_keys(topic: str, growth: GrownTopic, keys: Sequence[_Key]) -> Finding:
    verdicts = [_verdict(growth, kind, keys, tail) for tail in _WINDOW_BYTES for kind in growth.kinds]
    best = min(verdicts, key=lambda verdict: len(verdict.astray))
    counts = " -> ".join(map(str, growth.history))
    if not best.astray:
        fitting = {verdict.kind for verdict in verdicts if not verdict.astray}
        kinds = " or ".join(kind for kind in growth.kinds if kind in fitting)
        return ok(
            "keys",
            f"growth over {counts} puts the newest {counted(len(keys), 'key')} of {topic} where they lie: "
            f"{kinds}",
        )
    key, allowed = best.astray[0]
    expected = ", ".join(map(str, sorted(allowed)))
    return error(
        "keys",
        "keys-astray",
        f"{len(best.astray)} of the newest {counted(len(keys), 'key')} of {topic} do not lie where growth "
        f"over {counts} puts them, e.g. that of {key.at}@{key.offset} ({best.kind}: {expected}): their state "
        "is another task's, and the run that reads them fails",
        "have all producers of the topic place keys in one way, by Kafka's default partitioner with "
        "multiples only or by the LinearHashPartitioner; if the topic began with another count than the "
        f"recorded {growth.history[0]}, start over with initial.partitions={topic}=<that count>",
    )


def _verdict(growth: GrownTopic, kind: GrowthKind, keys: Sequence[_Key], tail: int) -> _KeyVerdict:
    """Judge keys whose last ``tail`` bytes do not count."""
    judged = [(key, places(key_hash(key.data[: len(key.data) - tail]), growth.history, kind)) for key in keys]
    return _KeyVerdict(
        kind,
        [(key, at) for key, at in judged if len(key.data) < tail or key.at.partition not in at],
    )


_CHECK = "more processors"
_RETENTION = "delete.retention.ms"
#: The check warns from this number of runs on, which have left a partition unread or have begun since the
#: copies did.
_RUNS = 3


def check(seen: DoctorView) -> Iterator[Finding]:
    """Check blocked partitions, then expansions, which wait for them."""
    yield from _keys(seen)
    yield from _blocked(seen)
    yield from _expanding(seen)


def _blocked(seen: DoctorView) -> Iterator[Finding]:
    """Check the blocked partitions, and for how many runs they have been blocked."""
    grouped = {int(sub): entry for sub, entry in seen.ledger.assignment.subtopologies.items()}
    topics = {topic for entry in grouped.values() if entry.boundaries for topic in entry.grown}
    if not topics:
        return
    partitions = described_partitions(seen.topics, sorted(topics))
    with closing(seen.cluster.reader(group_id=seen.plan.application_id)) as reader:
        positions = {tp: offset.offset for tp, offset in reader.committed(partitions).items()}
    waits = [each for each in blocked_partitions(grouped, positions.get) if each.ahead]
    if waits:
        yield _judged_blocked(seen, waits, positions)


def _judged_blocked(
    seen: DoctorView, waits: list[BlockedPartition], positions: Mapping[TopicPartition, int]
) -> Finding:
    text = f"gained partitions are read after what their keys came from: {blocked_text(waits)}"
    if not _left(seen, {each.partition: positions.get(each.partition, 0) for each in waits}):
        return ok("blocked partitions", text)
    return warning(
        "blocked partitions",
        "partitions-blocked",
        f"{text}; the last {_RUNS} runs have not come past that, and nothing of the gained partitions is "
        "processed until one does",
        "see under open transactions, and what autostop.at cuts the runs by: with interval_end what is dated "
        "later than a run's data interval is left to later runs; one run with autostop.at=eol reads what "
        "they wait for, and the next run the gained partitions",
    )


def _left(seen: DoctorView, blocked: Mapping[TopicPartition, int]) -> bool:
    """Return whether each of the last runs has left one and the same partition at its offset.

    :param blocked: blocked partition -> the offset up to which it is read.
    """
    app, last, left = seen.plan.application_id, seen.latest[-_RUNS:], {*blocked}
    with closing(seen.cluster.reader(group_id=app)) as reader:
        ledger = read_ledger(seen.cluster, app, admin=seen.admin, reader=reader, wait_ms=0, clock=seen.clock)
        for run in last:
            stops = ledger.detailed(run).stops
            left = {tp for tp in left if stops.get(tp) == blocked[tp]}
    return len(last) == _RUNS and bool(left)


def _expanding(seen: DoctorView) -> Iterator[Finding]:
    """Check every expansion that is under way."""
    try:
        with closing(CoordinatorSession(seen.cluster, seen.subject.settings, clock=seen.clock)) as session:
            for plan in expansions(session, seen.plan, seen.ledger):
                yield _judged(seen, plan)
    except AccessDeniedError as refused:
        yield not_permitted("processors that are on their way", refused)


def _judged(seen: DoctorView, plan: ProcessorPlan) -> Finding:
    app, after = plan.application_id, plan.before if plan.after is None else plan.after.count
    text = f"subtopology {plan.sub.id} is on its way from {plan.before} to {counted(after, 'processor')}"
    go_on = f"go on with: {expand_command(app, plan.sub.id, after)}; or give it up: {abort_command(app)}"
    now_ms, half_ms = seen.clock.now_ms(), _retention_ms(seen, plan) / 2
    stale = [
        each
        for each in plan.sources
        if each.position is not None and each.lag and now_ms - each.told.stepped_ms >= half_ms
    ]
    if stale:
        oldest = min(stale, key=lambda each: each.told.stepped_ms)
        return warning(
            _CHECK,
            "copies-stale",
            f"{text}; the copy of {oldest.changelog} has made no step for "
            f"{duration_text(now_ms - oldest.told.stepped_ms)}, half of "
            f"{_RETENTION} or more: deletions may be gone, and it begins anew",
            go_on,
        )
    since = [run for run in seen.latest[-_RUNS:] if plan.begun_ms and run.begun_ms >= plan.begun_ms]
    if len(since) < _RUNS:
        return ok(_CHECK, text)
    limit = seen.subject.settings.acceptable_recovery_lag
    if missing := [each for each in plan.sources if each.position is None and each.end]:
        return warning(
            _CHECK,
            "nothing-copied",
            f"{text}; nothing is copied of {missing[0].changelog} yet, and the last {_RUNS} runs went on "
            "without the new ones",
            go_on,
        )
    most = max(plan.sources, key=lambda each: each.lag)
    if most.lag > limit:
        return warning(
            _CHECK,
            "copies-behind",
            f"{text}; the copy of {most.changelog} is {counted(most.lag, 'record')} behind, "
            f"acceptable.recovery.lag is {limit}, and the last {_RUNS} runs went on without the new ones",
            go_on,
        )
    return warning(
        _CHECK,
        "expansion-waits",
        f"{text}; the last {_RUNS} runs went on without the new ones",
        "see the warnings of the last run, which say why, and under blocked partitions; or give it up: "
        f"{abort_command(app)}",
    )


def _retention_ms(seen: DoctorView, plan: ProcessorPlan) -> float:
    """Return the milliseconds for which deletions are kept, in the changelog that keeps them shortest."""
    found = seen.admin.topic_configs({each.changelog.topic for each in plan.sources}).found
    return min((int(of[_RETENTION]) for of in found.values() if _RETENTION in of), default=float("inf"))
