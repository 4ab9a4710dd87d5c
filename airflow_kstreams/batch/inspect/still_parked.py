"""What is parked still of what a finished run left, in words."""

from __future__ import annotations

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.parked import retry_topic
from airflow_kstreams.batch.report.counts import due_text

_NAMED = 5


def still_parked(ledger: Ledger, run: RunSummary) -> str:
    """Say how many records are parked where, and when they are due; empty if all that a run left parked is
    processed.

    :param run: finished.
    """
    parked = ledger.parked_since(run)
    last = ledger.last()
    if not parked or last is None:
        return ""
    places = [
        f"{'an unknown number' if count is None else count} at {node} "
        f"({retry_topic(run.application_id, node)}-{group})"
        for node, by_group in sorted(parked.items())
        for group, count in sorted(by_group.items())
    ]
    more = f" and {len(places) - _NAMED} more places" if len(places) > _NAMED else ""
    return (
        f"records are parked as of run {last.run_id!r}: {', '.join(places[:_NAMED])}{more}; "
        f"{due_text(last.parked_due_ms)}"
    )
