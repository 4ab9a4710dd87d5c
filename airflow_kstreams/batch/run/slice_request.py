"""Says what a start is asked for and what it answers, and refuses it when something of that is lost.

Patterns: a begin that makes a new slice, or a continuous run, asks the broker for the names of all topics
that its user may see, and puts those that match into the plan. The plan is frozen with the completed marker,
so every attempt, and a driver that takes over, reads the same topics. A topic that is created later enters
with the next run, by the first-run policy (``first.run.offsets``). One that matched in the last run and is
gone is read no more, as if its name were taken out of the file; the run's warnings name it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, data_loss
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topic_patterns import matching, pattern_of, refuse_overlaps
from airflow_kstreams.streams.topology.topology import has_dead_letters

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRequest:
    """The request for a slice, or for a continuous run.

    :param generation: 1 when a driver begins it, 0 when it waits for its first driver.
    :param groups: asks the user's own partition grouper; None when the plan has none.
    :param interval_ms: the data interval of the run, epoch milliseconds; None if it has none.
    :param dag_id: the DAG whose run it is; empty if none.
    """

    run_id: str
    plan: TopologyPlan
    generation: int
    groups: AskGroups | None = None
    interval_ms: tuple[int, int] | None = None
    dag_id: str = ""


class BeginResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of begin: the slice that it found or made, or the run that was finished.

    Exactly one of ``finished`` and ``slice`` is set. ``slice.run_id`` differs from the run asked for when
    another run's unfinished slice must be finished first.
    """

    slice: Slice | None = None
    finished: RunSummary | None = None
    created: bool = False


def refuse_losses(losses: Sequence[Loss], request: SliceRequest) -> None:
    """Refuse to begin if anything is lost.

    :raises DataLossError: something is.
    """
    if losses:
        raise data_loss(losses, request.plan.application_id, run_id=request.run_id)


def matched_plan(plan: TopologyPlan, admin: AdminPort, settings: ApplicationSettings) -> TopologyPlan:
    """Return a plan with the topics that its patterns match now.

    :raises TopologyError: no topic matches a pattern, two match one topic, or one matches the dead-letter
        topic.
    """
    if not plan.patterns:
        return plan
    if has_dead_letters(plan, settings):
        letters = {settings.dead_letter_topic: "which takes its dead letters"}
        refuse_overlaps(plan.patterns, letters, plan.application_id)
    return plan.matched(admin.topic_names())


def with_matches(
    request: SliceRequest, admin: AdminPort, settings: ApplicationSettings, ledger: Ledger
) -> SliceRequest:
    """Return a request whose plan has the topics that its patterns match now.

    :raises TopologyError: as :func:`matched_plan`.
    """
    plan = matched_plan(request.plan, admin, settings)
    known = read_before(plan, ledger)
    for topic, matches in plan.patterns.items():
        for name in matches:
            if known and name not in known:
                log.info(
                    "topic %s matches the pattern %r of a source since this run", name, pattern_of(topic)
                )
    return dataclasses.replace(request, plan=plan)


def read_before(plan: TopologyPlan, ledger: Ledger) -> tuple[str, ...]:
    """Return the input topics of the last run that match patterns of a plan, sorted."""
    last = ledger.last()
    inputs = last.input_topics if last is not None else ()
    return tuple(
        sorted({name for topic in plan.patterns for name in matching(pattern_of(topic) or "", inputs)})
    )


def gone_warnings(plan: TopologyPlan, ledger: Ledger) -> tuple[str, ...]:
    """Name the topics that matched in the last run and are not there any more.

    :param plan: matched.
    """
    return tuple(
        f"topic {name} is gone, which matched a pattern of a source and was read by the last run: what it "
        "held behind that run's stop offsets was not read"
        for name in read_before(plan, ledger)
        if name not in plan.sources
    )
