"""Compares a request for a run that has finished before with the finished run, and says that nothing is
processed.

Rule: a run is known by its id, so a second request under that id processes nothing. That is right for a retry
and a cleared dag run. It would be wrong without a word where the second request means other work: another
DAG's run of the same name, other inputs, outputs, or another cut of the log. Those are refused. Another
topology of the same DAG, which was mended since, is warned of, or refused, as
``finished.with.other.topology`` says. Partition counts are no part of a topology's hash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.naming.commands import reset_command, start_over_flags
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)

_HASH_DIGITS = 12


def check_finished(
    summary: RunSummary,
    settings: ApplicationSettings,
    *,
    plan: TopologyPlan | None,
    dag_id: str,
    interval_ms: tuple[int, int] | None,
) -> None:
    """Refuse a request for a finished run that means other work than the run did.

    :param summary: summary of the finished run.
    :param settings: settings of the request.
    :param plan: topology of the request; None where it is not known.
    :param dag_id: the DAG that makes the request; empty if none does.
    :param interval_ms: data interval of the request, epoch milliseconds.
    :raises ConfigError: another DAG ran it, or its inputs, outputs or cut differ.
    :raises TopologyError: its topology differs, and the settings do not allow that.
    """
    whose = f"run {summary.run_id!r} of application {summary.application_id!r}"
    different = list(_differences(summary, settings, plan, dag_id, interval_ms))
    if different:
        raise ConfigError(
            f"{whose} is already finished, at {finished_at(summary)}, and did other work: "
            + "; ".join(different),
            fix="give this work a run id or an application id of its own; to process the run's records once "
            f"more, {_again(summary)}",
        )
    if plan is None or summary.topology_hash == plan.topology_hash:
        return
    cause = (
        f"{whose} is already finished, at {finished_at(summary)}, by topology {topology_of(summary)}; the "
        f"application file now builds {short_hash(plan.topology_hash)}, by which nothing was processed"
    )
    fix = f"to process the run's records once more, {_again(summary)}"
    if settings.finished_with_other_topology == "fail":
        raise TopologyError(cause, fix=fix)
    log.warning("%s; %s", cause, fix)


def nothing_processed(summary: RunSummary) -> str:
    """Return the last line of the log of a request for a run that had finished before."""
    return (
        f"Run {summary.run_id} was already finished: nothing was processed now, finished at "
        f"{finished_at(summary)} by topology {topology_of(summary)}"
    )


def finished_at(summary: RunSummary) -> str:
    """Return the time at which a run finished, in ISO 8601."""
    return datetime.fromtimestamp(summary.finished_ms / 1000, tz=UTC).isoformat(timespec="seconds")


def topology_of(summary: RunSummary) -> str:
    """Return the first digits of the hash of the topology that ran."""
    return short_hash(summary.topology_hash)


def short_hash(topology_hash: str) -> str:
    """Return the first digits of a topology's hash."""
    return topology_hash[:_HASH_DIGITS]


def _differences(
    summary: RunSummary,
    settings: ApplicationSettings,
    plan: TopologyPlan | None,
    dag_id: str,
    interval_ms: tuple[int, int] | None,
) -> Iterator[str]:
    if summary.dag_id and dag_id and summary.dag_id != dag_id:
        yield f"it belonged to DAG {summary.dag_id!r}, this one to {dag_id!r}"
    if summary.autostop_at and summary.autostop_at != settings.autostop_at:
        yield f"its cut was autostop.at={summary.autostop_at}, this one is {settings.autostop_at or 'unset'}"
    elif settings.by_interval and summary.interval_ms != interval_ms:
        was, now = _interval(summary.interval_ms), _interval(interval_ms)
        yield f"its cut was the data interval {was}, this one is {now}"
    if plan is None:
        return
    inputs = summary.input_topics
    if inputs and not plan.reads(inputs):
        yield f"it read {_topics(inputs)}, this one reads {_topics(plan.inputs)}"
    if summary.outputs != {*plan.outputs}:
        yield f"it wrote {_topics(summary.outputs)}, this one writes {_topics(plan.outputs)}"


def _again(summary: RunSummary) -> str:
    own = ProtocolTopics(summary.application_id)
    between = {topic for topic in summary.source_topics - summary.input_topics if not own.is_internal(topic)}
    flags = start_over_flags(summary.input_topics, between)
    return (
        "process its data interval beside it, by a backfill (docs/explanation/backfill.md); or process "
        f"everything again, with all state empty: {reset_command(summary.application_id, flags)}"
    )


def _interval(interval_ms: tuple[int, int] | None) -> str:
    if interval_ms is None:
        return "none"
    return "[{}, {})".format(*(datetime.fromtimestamp(at / 1000, tz=UTC).isoformat() for at in interval_ms))


def _topics(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "no topic"
