"""Makes the page of one application: its topology with counts, its partitions, its runs over time, its dead
letters, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from airflow_kstreams.explore.tables import Table
from airflow_kstreams.inspect import RunInFull, SeenLag, SeenLetters, SeenRun, SeenRuns
from airflow_kstreams.inspect.tables_of import notes_of_lag, number_text, odd_text, tables_of_lag
from airflow_kstreams.pages.views import troubles
from airflow_kstreams.pages.views.drawings.letters_by_error import letter_tables
from airflow_kstreams.pages.views.drawings.partition_bars import partition_tables, parts_in_words, strips
from airflow_kstreams.pages.views.drawings.run_charts import per_column, rate, run_charts
from airflow_kstreams.pages.views.drawings.shown_tables import ShownTable
from airflow_kstreams.pages.views.drawings.topology_drawing import drawn_topology
from airflow_kstreams.pages.views.frame import DagApplication, Frame, KeptRun
from airflow_kstreams.pages.views.kept_figures import table_of_kept
from airflow_kstreams.pages.views.links import Links
from airflow_kstreams.pages.views.rendering import render
from airflow_kstreams.pages.views.state_marks import StateMark, mark_of, mark_of_run
from airflow_kstreams.streams.figures.time_texts import duration_text, time_text

#: Runs of the table; the charts show all that were read.
RUNS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationReadings:
    """What was read of an application; None where it was not read.

    :param runs: a page of its runs.
    :param lag: what waits for it.
    :param letters: its dead letters.
    :param last: the run that began last, in full.
    :param kept: its runs as Airflow keeps them, the newest first.
    :param older: whether the page of runs is not the first one.
    """

    runs: SeenRuns | None = None
    lag: SeenLag | None = None
    letters: SeenLetters | None = None
    last: RunInFull | None = None
    kept: Sequence[KeptRun] = ()
    older: bool = False


def application_page(frame: Frame, app: DagApplication, read: ApplicationReadings) -> str:
    """Return the page of an application.

    :param read: what was read of it.
    """
    links, newest = Links(frame=frame), _newest(read)
    under_way = (newest is not None and newest.state == "under way") or (
        read.lag is not None and read.lag.run_id is not None and read.lag.driver is not None
    )
    return render(
        "application",
        frame,
        refresh=under_way,
        title=app.application_id,
        app=app,
        mark=_mark(frame, read, newest),
        troubles=[*_troubles(app, read, newest, links)],
        topology=None if read.last is None else drawn_topology(read.last),
        last=read.last,
        lag=read.lag,
        # What is odd stands at the top already.
        lag_notes=[] if read.lag is None else [*notes_of_lag(replace(read.lag, suspicions=()))],
        topics=None if read.lag is None else ShownTable(name="topics", table=next(tables_of_lag(read.lag))),
        partitions=None if read.lag is None or not read.lag.partitions else partition_tables(read.lag),
        strips=[] if read.lag is None else [*strips(read.lag)],
        legend=parts_in_words(),
        runs=read.runs,
        runs_in_column=0 if read.runs is None else per_column(len(read.runs.runs)),
        charts=() if read.runs is None else run_charts(read.runs.runs),
        run_table=None if read.runs is None else table_of_runs(app, read.runs.runs[:RUNS], links),
        run_notes=[] if read.runs is None else [*_run_notes(read.runs.runs[:RUNS])],
        comparable=[] if read.runs is None else [run for run in read.runs.runs[:RUNS] if run.begun_ms],
        next_before="" if read.runs is None else _next_before(read.runs),
        older=read.older,
        letters=read.letters,
        letter_tables=[] if read.letters is None else [*letter_tables(read.letters)],
        kept=_kept(read.kept, links),
        commands=troubles.commands_of(app, read.lag),
        trigger=links.trigger(app.dag_id),
    )


def table_of_runs(app: DagApplication, runs: Sequence[SeenRun], links: Links) -> ShownTable:
    """Return the table of some runs, each with a link to its page."""
    table = Table(
        title=f"Runs of {app.application_id}",
        columns=(
            "run",
            "begun (UTC)",
            "state",
            "took",
            "in",
            "out",
            "in per second",
            "late",
            "dead-lettered",
            "skipped",
            "parked",
        ),
        rows=[
            (
                run.run_id,
                time_text(run.begun_ms),
                run.state,
                duration_text(run.seconds * 1000),
                *map(number_text, (run.records_in, run.records_out)),
                "-" if (fast := rate(run)) is None else f"{fast:,.1f}",
                *map(number_text, (run.late, run.dead_lettered, run.skipped, run.parked)),
            )
            for run in runs
        ],
        numbers=8,
    )
    return ShownTable(
        name="runs",
        table=table,
        links=[troubles.PageLink(address=links.run(app, run.run_id), text=run.run_id) for run in runs],
        marks=[mark_of_run(run) for run in runs],
    )


def _newest(read: ApplicationReadings) -> SeenRun | None:
    if read.runs is not None and read.runs.runs and not read.older:
        return read.runs.runs[0]
    return None if read.last is None else read.last.run


def _mark(frame: Frame, read: ApplicationReadings, newest: SeenRun | None) -> StateMark:
    if newest is not None:
        return mark_of_run(newest)
    if read.runs is not None and not read.kept:
        return StateMark("empty", "no run yet")
    return mark_of(read.kept[0].state) if read.kept else StateMark("unknown", "not known")


def _troubles(
    app: DagApplication, read: ApplicationReadings, newest: SeenRun | None, links: Links
) -> Iterator[troubles.Trouble]:
    if newest is not None or read.runs is not None:
        yield from troubles.of_runs(app, newest, links)
    elif read.kept:
        yield from troubles.of_kept(read.kept[0], links)
    yield from troubles.of_lag(app, read.lag, links)
    yield from troubles.of_letters(app, read.letters)


def _next_before(runs: SeenRuns) -> str:
    """Return the id of the run behind which the next page begins; empty at the first run.

    A page begins behind a finished run only: behind the last one that the table shows.
    """
    if len(runs.runs) <= RUNS:
        return runs.next_before or ""
    finished = [run.run_id for run in runs.runs[:RUNS] if run.finished_ms is not None]
    return finished[-1] if finished else runs.next_before or ""


def _run_notes(runs: Sequence[SeenRun]) -> Iterator[str]:
    """Yield why runs have failed, and what is odd about them."""
    for run in runs:
        if run.failure is not None:
            yield f"{run.run_id}: {run.failure.in_one_line}"
        yield from (f"{run.run_id}: {odd_text(suspicion)}" for suspicion in run.suspicions)


def _kept(kept: Sequence[KeptRun], links: Links) -> ShownTable | None:
    if not kept:
        return None
    shown = kept[:RUNS]
    return ShownTable(
        name="kept",
        table=table_of_kept(shown),
        links=[
            troubles.PageLink(
                address=links.airflow_run(run.dag_id, run.airflow_run_id),
                text=run.airflow_run_id,
                airflow=True,
            )
            for run in shown
        ],
        marks=[mark_of(run.state) for run in shown],
    )
