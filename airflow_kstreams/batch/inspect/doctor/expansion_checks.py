"""Checks that processors which are being added come into use.

Rule: a deletion is in a changelog for ``delete.retention.ms`` after it is compacted; a copy that has made no
step for half of that begins anew when it goes on. And one run is usual until one takes over: an expansion
that several runs have found, and left, is not coming nearer by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan, expansions
from airflow_kstreams.batch.inspect.doctor.findings import Finding, not_permitted, ok, warning
from airflow_kstreams.batch.inspect.doctor.seen import DoctorView
from airflow_kstreams.batch.run.session import CoordinatorSession
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.expand_commands import abort_command, expand_command

_CHECK = "more processors"
_RETENTION = "delete.retention.ms"
#: Runs that have begun since the copies did, from which on a person should look.
_RUNS = 3
_HOUR_MS = 3_600_000


def check(seen: DoctorView) -> Iterator[Finding]:
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
        if each.position is not None and each.lag and now_ms - each.stepped_ms >= half_ms
    ]
    if stale:
        oldest = min(stale, key=lambda each: each.stepped_ms)
        hours = (now_ms - oldest.stepped_ms) / _HOUR_MS
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
        "see the warnings of the last run, which say why, and under waiting partitions; or give it up: "
        f"{abort_command(app)}",
    )


def _retention_ms(seen: DoctorView, plan: ProcessorPlan) -> float:
    """Return how long deletions are kept, in the changelog that keeps them shortest."""
    found = seen.admin.topic_configs({each.changelog.topic for each in plan.sources}).found
    return min((int(of[_RETENTION]) for of in found.values() if _RETENTION in of), default=float("inf"))
