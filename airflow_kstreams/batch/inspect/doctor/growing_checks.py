"""Checks that new partitions of topics come to be read, and that processors being added come into use.

Rule: one run is usual before a blocked partition is read, for that run reads what it waits for. A run whose
slice ends early, at its data interval's end or at an open transaction, may leave some of that to the next. A
partition that several runs have found blocked needs an operator.

One run is usual, too, before the new processors take over their keys; an expansion that several runs have
found, and left, needs an operator. And a deletion is in a changelog for ``delete.retention.ms`` after it is
compacted; a copy that has made no step for half of that begins anew when it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan, expansions
from airflow_kstreams.batch.growing.grown_groups import BlockedPartition, blocked_partitions, blocked_text
from airflow_kstreams.batch.inspect.doctor.findings import DoctorView, Finding, not_permitted, ok, warning
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.commands import abort_command, expand_command
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.ports import TopicPartition

_CHECK = "more processors"
_RETENTION = "delete.retention.ms"
#: From so many runs on, which have left a partition where it is or have begun since the copies did, the check
#: warns.
_RUNS = 3
_HOUR_MS = 3_600_000


def check(seen: DoctorView) -> Iterator[Finding]:
    """Look at blocked partitions, then at expansions, which wait for them."""
    yield from _blocked(seen)
    yield from _expanding(seen)


def _blocked(seen: DoctorView) -> Iterator[Finding]:
    """Look at the blocked partitions, and for how many runs they have been."""
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
        f"{text}; the last {_RUNS} runs have not come past that, and nothing of the gained partitions is "
        "processed until one does",
        "see under open transactions, and what autostop.at cuts the runs by: with interval_end what is dated "
        "later than a run's data interval is left to later runs; one run with autostop.at=eol reads it all",
    )


def _left(seen: DoctorView, blocked: Mapping[TopicPartition, int]) -> bool:
    """Say whether each of the last runs has left one and the same partition where it is.

    :param blocked: where they are read up to.
    """
    last = seen.ledger.latest(_RUNS)
    left = {*blocked}
    for run in last:
        stops = seen.ledger.detailed(run).stops
        left = {tp for tp in left if stops.get(tp) == blocked[tp]}
    return len(last) == _RUNS and bool(left)


def _expanding(seen: DoctorView) -> Iterator[Finding]:
    """Look at every expansion that is under way."""
    try:
        with closing(CoordinatorSession(seen.cluster, seen.subject.settings, clock=seen.clock)) as session:
            for plan in expansions(session, seen.plan, seen.ledger):
                yield _judged(seen, plan)
    except AccessDeniedError as refused:
        yield not_permitted("processors that are on their way", refused)


def _judged(seen: DoctorView, plan: ProcessorPlan) -> Finding:
    app, after = plan.application_id, plan.before if plan.after is None else plan.after.count
    text = f"subtopology {plan.sub.id} is on its way from {plan.before} to {after} processors"
    go_on = f"go on with: {expand_command(app, plan.sub.id, after)}; or give it up: {abort_command(app)}"
    now_ms, half_ms = seen.clock.now_ms(), _retention_ms(seen, plan) / 2
    stale = [
        each
        for each in plan.sources
        if each.position is not None and each.lag and now_ms - each.told.stepped_ms >= half_ms
    ]
    if stale:
        oldest = min(stale, key=lambda each: each.told.stepped_ms)
        hours = (now_ms - oldest.told.stepped_ms) / _HOUR_MS
        return warning(
            _CHECK,
            f"{text}; the copy of {oldest.changelog} has made no step for {hours:.1f} hours, half of "
            f"{_RETENTION} or more: deletions may be gone, and it begins anew",
            go_on,
        )
    since = [run for run in seen.ledger.latest(_RUNS) if plan.begun_ms and run.begun_ms >= plan.begun_ms]
    if len(since) < _RUNS:
        return ok(_CHECK, text)
    limit = seen.subject.settings.acceptable_recovery_lag
    if missing := [each for each in plan.sources if each.position is None and each.end]:
        return warning(
            _CHECK,
            f"{text}; nothing is copied of {missing[0].changelog} yet, and the last {_RUNS} runs went on "
            "without the new ones",
            go_on,
        )
    most = max(plan.sources, key=lambda each: each.lag)
    if most.lag > limit:
        return warning(
            _CHECK,
            f"{text}; the copy of {most.changelog} is {most.lag} records behind, acceptable.recovery.lag is "
            f"{limit}, and the last {_RUNS} runs went on without the new ones",
            go_on,
        )
    return warning(
        _CHECK,
        f"{text}; the last {_RUNS} runs went on without the new ones",
        "see the warnings of the last run, which say why, and under blocked partitions; or give it up: "
        f"{abort_command(app)}",
    )


def _retention_ms(seen: DoctorView, plan: ProcessorPlan) -> float:
    """Return how long deletions are kept, in the changelog that keeps them shortest."""
    found = seen.admin.topic_configs({each.changelog.topic for each in plan.sources}).found
    return min((int(of[_RETENTION]) for of in found.values() if _RETENTION in of), default=float("inf"))
