"""Whether a run dropped too large a share of its records as late (``max.late.share``).

Decided at finish, before anything is written: a run that fails here is not finished and keeps its slice.
Nothing of it is processed again; with a larger share, or ``late.share.exceeded=warn``, the retry only writes
the marker.
"""

from __future__ import annotations

from airflow_kstreams.batch.ledger.totals import totals
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.record_counts import OTHER_NODES, RecordCounts
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.settings import ApplicationSettings

_NAMED = 3


def judge_late(
    settings: ApplicationSettings, plan: TopologyPlan, counts: RecordCounts | None, run_id: str
) -> tuple[str, ...]:
    """Return warnings, if more was dropped as late than the settings allow, or if that is not known.

    :param counts: of all tasks of the run; None if not known.
    :raises ConfigError: more was dropped, and the settings say that the run fails.
    """
    if settings.max_late_share >= 1:
        return ()
    if counts is None:
        return (
            f"how many records run {run_id} dropped as late is unknown (an earlier version processed a part "
            "of it): max.late.share is not checked",
        )
    late, read = counts.by("late"), totals(plan.subtopologies, counts).records_in or 0
    if late <= settings.max_late_share * read:
        return ()
    share = f"{late / read:.2%}" if read else "more than all"
    nodes = ", ".join(
        f"{entry.node if entry.node != OTHER_NODES else 'other nodes'}: {entry.records}"
        for entry in [entry for entry in counts.left_out if entry.rule == "late"][:_NAMED]
    )
    what = (
        f"run {run_id} dropped {late} records as late ({nodes}), {share} of the {read} that it read; "
        f"max.late.share allows {settings.max_late_share:.2%}"
    )
    if settings.late_share_exceeded == "warn":
        return (what,)
    raise ConfigError(
        what,
        fix="look at the times of the input's records, and give the windows more grace for later runs; then "
        "set max.late.share higher, or late.share.exceeded=warn, and retry the run: its slice is kept and "
        "its results are committed, only the finished marker is missing",
    )
