"""Checks that every attempt of a run sees the same global tables.

Rule: a topic is compacted, and what a run may still read is not compacted away: ``min.compaction.lag.ms`` is
longer than a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_kstreams.batch.inspect.doctor.findings import (
    DoctorView,
    Finding,
    duration,
    names,
    ok,
    set_topic,
    warning,
)

#: The broker's default ``retention.ms``.
_WEEK_MS = "604800000"
_LAG = "min.compaction.lag.ms"
#: How many of the last runs are looked at; the longest one counts.
_RUNS = 50
#: Of a run, before there was one.
_FIRST_RUN_MS = 24 * 3_600_000


def check(seen: DoctorView) -> Iterator[Finding]:
    """Look at the settings of the topics of global tables."""
    configs = seen.admin.topic_configs([t for t in seen.plan.globals if t in seen.topics]).found
    topics = sorted(configs)
    if not topics:
        return
    longest_ms = max(
        (run.finished_ms - run.begun_ms for run in seen.ledger.latest(_RUNS)), default=_FIRST_RUN_MS
    )
    deleting = [topic for topic in topics if _deletes(configs[topic])]
    if deleting:
        yield warning(
            "global tables",
            f"records of {names(deleting)} are deleted when they are old or too many: entries leave the "
            "table without a deletion, and a run that needs them again fails",
            "; ".join(set_topic(topic, cleanup_policy="compact") for topic in deleting),
        )
    compacted = [t for t in topics if "compact" in configs[t].get("cleanup.policy", "")]
    short = [t for t in compacted if t not in deleting and int(configs[t].get(_LAG, 0)) <= longest_ms]
    if short:
        wanted_ms = 2 * max(longest_ms, 3_600_000)
        yield warning(
            "global tables",
            f"{_LAG} of {names(short)} is not longer than a run, which took up to {duration(longest_ms)}: a "
            "task that is repeated could see another table than the first attempt",
            "; ".join(set_topic(topic, min_compaction_lag_ms=str(wanted_ms)) for topic in short),
        )
    if not deleting and not short:
        yield ok("global tables", f"{names(topics)}: nothing is compacted away within a run")


def _deletes(configs: Mapping[str, str]) -> bool:
    """Say whether records are deleted when they are old, or too many."""
    limits = (configs.get("retention.ms", _WEEK_MS), configs.get("retention.bytes", "-1"))
    return "delete" in configs.get("cleanup.policy", "delete") and any(int(limit) >= 0 for limit in limits)
