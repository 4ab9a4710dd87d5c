"""Writes into the asset events of a task which run it finished.

Airflow writes the events of a task's outlets when the task has succeeded. So only a task that finishes a run
may have outlets, and its events come after the finished marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_kstreams.batch.report.asset_events import event_extra
from airflow_kstreams.streams.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kstreams.batch.ledger.run_summary import RunSummary
    from airflow_kstreams.streams.settings import ApplicationSettings


def announced(
    context: Context,
    outlets: Sequence[Any],
    summary: RunSummary,
    settings: ApplicationSettings,
    *,
    for_backfills: bool,
) -> list[Any]:
    """Have the events of every asset among the outlets say which run it was, and what it processed.

    A task that is cleared writes them again, with the same run id and offsets.

    :param outlets: of the task; aliases are left alone, because their assets are not known.
    :param summary: of the finished run.
    :param settings: of the run.
    :param for_backfills: whether the task is there for backfills, so that its outlets are the assets that
        these write. The outlets of other tasks are those that the live application writes.
    :return: the outlets to update: none after a backfill that wrote other topics than these.
    """
    if settings.keeps_to_interval and not for_backfills and not _writes_live_topics(settings):
        return []
    events = context.get("outlet_events")
    for outlet in outlets:
        if events is not None and isinstance(outlet, Asset) and not isinstance(outlet, AssetAlias):
            events[outlet].extra.update(event_extra(summary, backfill=settings.keeps_to_interval))
    return list(outlets)


def refuse_outlets(task_id: str, outlets: Sequence[Any]) -> None:
    """Refuse outlets of a task that does not finish the run: their events would come before the finished
    marker.

    :raises ConfigError: there are some.
    """
    if outlets:
        raise ConfigError(
            f"task {task_id!r} has outlets and does not finish the run: its assets would be updated before "
            "what it writes is complete",
            fix="give the outlets to FinishRunOperator, to incremental_batch(outlets=...), or to a "
            "RunTopologyOperator with finish=True",
        )


def _writes_live_topics(settings: ApplicationSettings) -> bool:
    return any(name == other for name, other in (settings.outputs or {}).items())
