"""Builds the extra of an asset event: which run finished, and which offsets of which topics it processed.

The same run always gives the same extra, so a consumer that has seen the run id can ignore a repeated event.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from airflow_kstreams.batch.ledger.run_summary import RunSummary

#: Largest extra in bytes of JSON: it lies in Airflow's database and travels with every event.
MAX_EXTRA_BYTES = 8_000


def event_extra(summary: RunSummary, *, backfill: bool = False) -> dict[str, Any]:
    """Return the ``extra`` of an asset event.

    :param summary: of a finished run.
    :param backfill: whether the run processed a past interval once more, for an application of its own.
    :return: ``application_id``, ``run_id``, ``records_in``, ``records_out``, ``finished_ms``, ``offsets``
        (topic -> partition as text -> ``[start, stop]``, half open), and ``partitions_omitted``, how many did
        not fit; of a backfill also ``backfill``, which is true, and of a run whose details have expired
        ``details_expired``, which is true, too: no offsets are known then; of one that left records parked
        also ``parked``, how many at which node, None where that is not known.
    """
    extra: dict[str, Any] = {
        "application_id": summary.application_id,
        "run_id": summary.run_id,
        "records_in": summary.records_in,
        "records_out": summary.records_out,
        "finished_ms": summary.finished_ms,
        "offsets": {},
        "partitions_omitted": 0,
        **({"backfill": True} if backfill else {}),
        **({"parked": summary.parked} if summary.parked else {}),
    }
    if summary.without_details:
        partitions = sum(read.partitions for read in summary.reads)
        return {**extra, "partitions_omitted": partitions, "details_expired": True}
    # What moved comes first, so that what does not fit is what did not move.
    ordered = sorted(
        summary.inputs, key=lambda part: (part.start_offset == part.stop_offset, part.topic_partition)
    )
    room = MAX_EXTRA_BYTES - len(json.dumps(extra))
    for index, part in enumerate(ordered):
        entry = {str(part.partition): [part.start_offset, part.stop_offset]}
        room -= len(json.dumps({part.topic: entry}))
        if room < 0:
            extra["partitions_omitted"] = len(ordered) - index
            break
        extra["offsets"].setdefault(part.topic, {}).update(entry)
    return extra


class AssetEvent(Protocol):
    """An asset event, as far as it matters here."""

    @property
    def extra(self) -> Mapping[str, Any]: ...


def announced_runs(events: Mapping[Any, Collection[AssetEvent]]) -> list[dict[str, Any]]:
    """Return the finished runs that the asset events of a dag run announce, each once.

    It knows events of tasks with ``outlets`` and those of watchers, which Airflow wraps, and passes over
    events of others.

    :param events: ``triggering_asset_events`` of the task's context.
    :return: the extra of each run, see :func:`event_extra`, in the order in which the runs finished.

    >>> from types import SimpleNamespace
    >>> from airflow_kstreams.hooks.reports import announced_runs
    >>> one = {"application_id": "orders", "run_id": "r1", "finished_ms": 1}
    >>> first = SimpleNamespace(extra=one)
    >>> again = SimpleNamespace(extra={"from_trigger": True, "payload": one})
    >>> [run["run_id"] for run in announced_runs({"totals": [first, again]})]
    ['r1']
    """
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    for event in (event for of_asset in events.values() for event in of_asset):
        extra = event.extra.get("payload") if event.extra.get("from_trigger") else event.extra
        if isinstance(extra, Mapping) and {"application_id", "run_id", "finished_ms"} <= extra.keys():
            runs.setdefault((extra["application_id"], extra["run_id"]), dict(extra))
    return sorted(runs.values(), key=lambda run: int(run["finished_ms"]))
