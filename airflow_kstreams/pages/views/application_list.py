"""Makes the page that lists applications: state, last run, lag, what is wrong and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airflow_kstreams.inspect import SeenApplication, SeenLag
from airflow_kstreams.pages.views.frame import DagApplication, Frame, KeptRun
from airflow_kstreams.pages.views.kept_figures import KeptFigures, kept_figures
from airflow_kstreams.pages.views.links import Links
from airflow_kstreams.pages.views.rendering import render
from airflow_kstreams.pages.views.state_marks import StateMark, mark_of
from airflow_kstreams.pages.views.troubles import Trouble, no_run, of_application, of_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationRow:
    """What is known of one application.

    :param app: the application, as its DAG names it.
    :param seen: what its ledger says; None if it has none, or was not read.
    :param lag: what waits for it; None if it was not read.
    :param kept: its last run as Airflow keeps it; None without one.
    """

    app: DagApplication
    seen: SeenApplication | None = None
    lag: SeenLag | None = None
    kept: KeptRun | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedApplication:
    """An application, as the page shows it.

    :param row: what is known of it.
    :param mark: its state.
    :param kept: figures of its last run as Airflow keeps it; None without one, or where Kafka has told more.
    :param troubles: what is wrong, the gravest first.
    """

    row: ApplicationRow
    mark: StateMark
    kept: KeptFigures | None
    troubles: tuple[Trouble, ...]


def applications_page(
    frame: Frame,
    rows: Sequence[ApplicationRow],
    notes: Iterable[str] = (),
    *,
    title: str = "Kafka applications",
) -> str:
    """Return the page that lists applications.

    :param rows: the applications, in the order in which they are shown.
    :param notes: sentences on what was not looked at.
    :param title: heading of the page.
    """
    links = Links(frame=frame)
    listed = [_listed(row, links) for row in rows]
    return render(
        "applications",
        frame,
        refresh=any(each.mark.shape == "running" for each in listed),
        title=title,
        listed=listed,
        notes=[*notes],
    )


def _listed(row: ApplicationRow, links: Links) -> ListedApplication:
    seen_last = row.seen is not None and row.seen.last is not None
    return ListedApplication(
        row=row,
        mark=_mark(row, links.frame),
        kept=None if seen_last or row.kept is None else kept_figures(row.kept),
        troubles=tuple(_troubles(row, links)),
    )


def _troubles(row: ApplicationRow, links: Links) -> Iterator[Trouble]:
    if row.seen is None and row.kept is not None:
        yield from of_kept(row.kept, links)
    elif row.seen is None and links.frame.kept is None:
        yield no_run(row.app, links)
    yield from of_application(row.app, row.seen, row.lag, links)


def _mark(row: ApplicationRow, frame: Frame) -> StateMark:
    seen = row.seen
    if seen is None and row.kept is not None:
        return mark_of(row.kept.state)
    if seen is None or (seen.finished is None and seen.works_on is None and seen.failed is None):
        # Without an answer of Kafka nothing says that there is none.
        known = seen is None and frame.kept is None
        return StateMark("empty", "no run yet") if known else StateMark("unknown", "not known")
    if seen.works_on is not None:
        return StateMark("running", "running")
    if seen.failed is not None:
        return StateMark("failed", "failed")
    return StateMark("done", "idle")
