"""Names the tasks of an application's last run, which a begin or a reset fences."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.slice.metadata import Folded
from airflow_kstreams.batch.protocol.slice.slice import transactional_ids
from airflow_kstreams.streams.plan import TopologyPlan


@dataclass(frozen=True, slots=True)
class LastTasks:
    """The tasks of an application's last run, which may still be at work.

    :param transactional_ids: one per task; None when neither a run nor partition groups are recorded.
    :param topologies: those that they may have run, where it is known.
    """

    transactional_ids: tuple[str, ...] | None
    topologies: tuple[TopologyPlan, ...]


def last_tasks(application_id: str, folded: Folded, ledger: Ledger) -> LastTasks:
    """Return the tasks of the continuous run or of the slice, or those of the recorded partition groups.

    The marker of a run may be gone (stop offsets deleted) or another writer's; the groups give the ids, too.
    """
    owners = [owner for owner in (ledger.current_continuous, folded.slice) if owner is not None]
    ids: tuple[str, ...] | None = None
    if owners:
        ids = () if owners[0].plan.empty else owners[0].plan.task_ids
    elif ledger.assignment is not None:
        recorded = ledger.assignment.subtopologies
        ids = transactional_ids(application_id, {sub: len(entry.by_group) for sub, entry in recorded.items()})
    return LastTasks(ids, tuple(owner.plan.topology for owner in owners))
