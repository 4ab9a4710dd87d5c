"""Writes values as HTML: each for notebooks, and one run as a file to be mailed or kept, which loads nothing
and holds no data of records.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator

from airflow_kstreams.batch.inspect.ahead.lag import SeenLag
from airflow_kstreams.batch.inspect.ahead.next_run import NextRun
from airflow_kstreams.batch.inspect.applications import SeenApplications
from airflow_kstreams.batch.inspect.diagnosis import Diagnosis
from airflow_kstreams.batch.inspect.notebook_form import notebook_form
from airflow_kstreams.batch.inspect.runs.run_in_full import ComparedRuns, RunInFull
from airflow_kstreams.batch.inspect.runs.seen_runs import SeenRuns
from airflow_kstreams.batch.inspect.tables.seen_tables import SeenTables
from airflow_kstreams.batch.inspect.tables.table_check import TablesCheck
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.inspect.lakehouse_tables import (
    notes_of_check,
    notes_of_tables,
    shown_check,
    shown_tables,
)
from airflow_kstreams.inspect.tables_of import (
    notes_of_applications,
    notes_of_comparison,
    notes_of_lag,
    notes_of_plan,
    notes_of_run,
    notes_of_runs,
    tables_of_applications,
    tables_of_comparison,
    tables_of_diagnosis,
    tables_of_lag,
    tables_of_plan,
    tables_of_run,
    tables_of_runs,
)
from airflow_kstreams.streams.printable import printable

_STYLE = (
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse;"
    "margin:1.2em 0}th{border-bottom:1px solid #888}td{border-bottom:1px solid #ddd}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def run_page(found: RunInFull) -> str:
    """Return the page of one run."""
    return "".join(_page(f"Run {found.run.run_id} of {found.application_id}", found))


def _page(title: str, found: RunInFull) -> Iterator[str]:
    yield "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
    # Nothing is loaded, and no script runs, whatever a name holds.
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body><h1>{_text(title)}</h1>"
    yield html_of(tables_of_run(found), notes_of_run(found))
    yield "</body></html>\n"


def html_of(tables: Iterable[Table], notes: Iterable[str]) -> str:
    """Return tables and notes as a piece of HTML."""
    shown = [table._repr_html_() for table in tables]
    return "".join((*shown, *(f"<p>{_text(note)}</p>" for note in notes)))


@notebook_form.register
def _of_applications(found: SeenApplications) -> str:
    return html_of(tables_of_applications(found), notes_of_applications(found))


@notebook_form.register
def _of_diagnosis(found: Diagnosis) -> str:
    return html_of(tables_of_diagnosis(found), ())


@notebook_form.register
def _of_runs(found: SeenRuns) -> str:
    return html_of(tables_of_runs(found), notes_of_runs(found))


@notebook_form.register
def _of_run(found: RunInFull) -> str:
    return html_of(tables_of_run(found), notes_of_run(found))


@notebook_form.register
def _of_comparison(found: ComparedRuns) -> str:
    return html_of(tables_of_comparison(found), notes_of_comparison(found))


@notebook_form.register
def _of_lag(found: SeenLag) -> str:
    return html_of(tables_of_lag(found), notes_of_lag(found))


@notebook_form.register
def _of_tables(found: SeenTables) -> str:
    return html_of(shown_tables(found), notes_of_tables(found))


@notebook_form.register
def _of_tables_check(found: TablesCheck) -> str:
    return html_of(shown_check(found), notes_of_check(found))


@notebook_form.register
def _of_plan(found: NextRun) -> str:
    return html_of(tables_of_plan(found), notes_of_plan(found))


def _text(text: str) -> str:
    return html.escape(printable(text))
