"""What a start is asked for and what it answers, and its refusal when something of that is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, data_loss
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.streams.plan import TopologyPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRequest:
    """What to build a slice, or a continuous run, for.

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
    """What begin found or made.

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
