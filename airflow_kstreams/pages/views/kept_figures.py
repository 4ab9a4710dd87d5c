"""Takes the figures to show from a run as Airflow keeps it.

A task's result in XCom is whatever the task has left there. Only figures that the package's own results
have are taken, and only where they are numbers, so nothing else of a result comes onto a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_kstreams.explore.tables import Table
from airflow_kstreams.inspect.tables_of import number_text
from airflow_kstreams.pages.views.frame import KeptRun
from airflow_kstreams.streams.figures.time_texts import time_text


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFigures:
    """A run's figures; None where the result does not have them.

    :param run: the run.
    :param ended_ms: time at which the task ended, epoch milliseconds; None where it is not known.
    :param records_in: records read from inputs.
    :param records_out: records written to topics that the run does not read.
    :param late: records dropped because their windows had closed.
    :param parked: records left parked.
    """

    run: KeptRun
    ended_ms: int | None
    records_in: int | None
    records_out: int | None
    late: int | None
    parked: int | None


def kept_figures(run: KeptRun) -> KeptFigures:
    """Return the figures of a run."""
    figures = run.figures
    parked = figures.get("parked")
    counts = [*map(_count, parked.values())] if isinstance(parked, dict) else [None]
    known = [count for count in counts if count is not None]
    return KeptFigures(
        run=run,
        ended_ms=None if run.ended_at is None else round(run.ended_at.timestamp() * 1000),
        records_in=_count(figures.get("records_in")),
        records_out=_count(figures.get("records_out")),
        late=_count(figures.get("records_late")),
        parked=sum(known) if len(known) == len(counts) else None,
    )


def table_of_kept(runs: Sequence[KeptRun]) -> Table:
    """Return the table of runs as Airflow keeps them."""
    found = [*map(kept_figures, runs)]
    return Table(
        title="Runs as Airflow keeps them",
        columns=("run", "ended (UTC)", "state", "task", "in", "out", "late", "parked"),
        rows=[
            (
                each.run.airflow_run_id,
                "-" if each.ended_ms is None else time_text(each.ended_ms),
                each.run.state,
                each.run.task_id,
                *map(number_text, (each.records_in, each.records_out, each.late, each.parked)),
            )
            for each in found
        ],
        numbers=4,
    )


def _count(figure: object) -> int | None:
    return figure if isinstance(figure, int) and not isinstance(figure, bool) else None
