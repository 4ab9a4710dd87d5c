"""How far ahead the records of a run may be dated (``max.timestamp.ahead.ms``).

Rule: the bound of an input topic hangs on what the run froze, so that every attempt has the same one: the
moment at which the slice was frozen, and in a backfill the end of its interval. A topic that the topology
writes has the wall clock's bound, if that is later: its records may be dated when they were written, by the
broker or by a timer, and a slice may be retried days after it was frozen. A continuous run froze nothing; all
its topics go by the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_kstreams.batch.protocol.slice.slice import RunPlan
from airflow_kstreams.streams.ports import Clock
from airflow_kstreams.streams.records.timestamp_reading import LatestAllowed, no_bound
from airflow_kstreams.streams.settings import ApplicationSettings


def latest_allowed(
    plan: RunPlan, settings: ApplicationSettings, clock: Clock
) -> Callable[[str], LatestAllowed]:
    """Return what gives, for a topic's real name, the latest time at which its records may be dated."""
    ahead_ms = settings.max_timestamp_ahead_ms
    if ahead_ms < 0:
        return lambda topic: no_bound
    frozen_ms = plan.begun_ms if plan.kept_ms is None else plan.kept_ms[1]
    written = set(plan.topology.intermediates)

    def of_topic(topic: str) -> LatestAllowed:
        if settings.continuous or topic in written:
            return lambda: max(frozen_ms, clock.now_ms()) + ahead_ms
        return lambda: frozen_ms + ahead_ms

    return of_topic
