"""Makes the page of one run, and the page of two runs beside each other."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_kstreams.inspect import ComparedRuns, RunInFull, SeenLetters
from airflow_kstreams.inspect.tables_of import (
    books_of_run,
    facts_of_run,
    notes_of_comparison,
    snapshots_of_run,
    tables_of_comparison,
)
from airflow_kstreams.pages.views.drawings.letters_by_error import letter_tables
from airflow_kstreams.pages.views.drawings.shown_tables import Bar, ShownTable, scaled
from airflow_kstreams.pages.views.drawings.timeline import attempts_table, slowest_table, step_tables
from airflow_kstreams.pages.views.drawings.topology_drawing import drawn_topology
from airflow_kstreams.pages.views.frame import DagApplication, Frame
from airflow_kstreams.pages.views.links import Links
from airflow_kstreams.pages.views.rendering import render
from airflow_kstreams.pages.views.state_marks import mark_of_run, superseded
from airflow_kstreams.pages.views.troubles import of_run
from airflow_kstreams.streams.figures.number_texts import counted


def run_page(frame: Frame, app: DagApplication, found: RunInFull, letters: SeenLetters | None = None) -> str:
    """Return the page of a run.

    :param letters: dead letters of the application; None where they were not read.
    """
    run, history = found.run, found.history
    steps = (None, None) if history is None else step_tables(history)
    return render(
        "run",
        frame,
        refresh=run.state == "under way",
        title=f"Run {run.run_id}",
        app=app,
        run=run,
        mark=mark_of_run(run),
        superseded=superseded(found),
        troubles=[*of_run(app, found, Links(frame=frame))],
        waits=[*_waits_for(found)],
        facts=ShownTable(name="facts", table=facts_of_run(found)),
        takeovers=0 if history is None else len(history.takeovers),
        attempts=None if history is None or not history.attempts else attempts_table(history, frame.now_ms),
        steps=steps[0],
        task_steps=steps[1],
        tasks=slowest_table(found),
        books=None if found.audit is None else ShownTable(name="books", table=books_of_run(found.audit)),
        topology=drawn_topology(found),
        snapshots=[
            ShownTable(name=f"snapshots-{number}", table=table)
            for number, table in enumerate(snapshots_of_run(run))
        ],
        letters=letters,
        letter_tables=[] if letters is None else [*letter_tables(letters)],
        not_seen=[f"Not looked at: {text}" for text in found.not_seen],
    )


def comparison_page(frame: Frame, app: DagApplication, found: ComparedRuns) -> str:
    """Return the page of two runs beside each other."""
    (table,) = tables_of_comparison(found)
    # The first two rows, state and begin, have no figure.
    figures = [(each.first or 0.0, each.second or 0.0) for each in found.figures]
    return render(
        "comparison",
        frame,
        title=f"Two runs of {app.application_id}",
        app=app,
        first=found.first.run,
        second=found.second.run,
        table=ShownTable(
            name="comparison",
            table=table,
            bars=[(), (), *(_two_bars(first, second) for first, second in figures)],
            bars_title="first (wide), second (thin)",
        ),
        notes=[*notes_of_comparison(found)],
    )


def _two_bars(first: float, second: float) -> Bar:
    whole = (0.0, max(first, second))
    return scaled("left", 0, first, whole), scaled("waiting", 0, second, whole)


def _waits_for(found: RunInFull) -> Iterator[str]:
    """Yield what a run that is not finished, or has left something, waits for."""
    run = found.run
    if run.state == "under way":
        yield "Its tasks, up to their stop offsets; then the finish."
    elif run.state in ("unfinished", "failed"):
        yield "Airflow's next try, or a clear of its DAG run: it goes on with the same slice."
    elif run.state == "taken back":
        yield "A new start: a reset has taken back what it processed."
    if run.parked is None:
        yield "Parked records, their number is not known: runs to come try them again when they are due."
    elif run.parked:
        yield f"{counted(run.parked, 'parked record')}: runs to come try them again when they are due."
    for each in found.waiting or ():
        yield (
            f"Table {each.table}: {counted(each.rows, 'row')} in {counted(each.files, 'file')}, listed and "
            "in no snapshot yet; the finish lands them."
        )
    if found.waiting is None:
        yield "Tables: which files are listed is not known."
