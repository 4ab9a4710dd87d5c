"""Tells in the asset events of a task which run it finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_kstreams.hooks.asset_events import event_extra

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kstreams.batch.model import RunSummary


def announce(context: Context, outlets: Sequence[Any], summary: RunSummary) -> None:
    """Have the events of every asset among the outlets say which run it was, and what it processed.

    Airflow writes the events when the task has succeeded, so only after the finished marker. A task that is
    cleared writes them again, with the same run id and offsets.

    :param outlets: of the task; aliases are left alone, because nobody says which assets they stand for.
    :param summary: of the finished run.
    """
    events = context.get("outlet_events")
    for outlet in outlets:
        if events is not None and isinstance(outlet, Asset) and not isinstance(outlet, AssetAlias):
            events[outlet].extra.update(event_extra(summary))
