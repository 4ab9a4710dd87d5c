"""Makes the page of the run that would begin now."""

from __future__ import annotations

from airflow_kstreams.explore.tables import Table
from airflow_kstreams.inspect import NextRun
from airflow_kstreams.inspect.tables_of import tables_of_plan
from airflow_kstreams.pages.views.drawings.shown_tables import ShownTable, scaled
from airflow_kstreams.pages.views.frame import DagApplication, Frame
from airflow_kstreams.pages.views.links import Links
from airflow_kstreams.pages.views.rendering import render
from airflow_kstreams.pages.views.troubles import of_plan


def plan_page(frame: Frame, app: DagApplication, found: NextRun) -> str:
    """Return the page of the next run."""
    links = Links(frame=frame)
    shown = [
        ShownTable(name=f"plan-{number}", table=table) for number, table in enumerate(tables_of_plan(found))
    ]
    return render(
        "plan",
        frame,
        title=f"Next run of {app.application_id}",
        app=app,
        troubles=[*of_plan(found)],
        tables=shown,
        topics=_topics(found),
        notes=[*(f"Not looked at: {text}" for text in found.not_seen), "Nothing was written."],
        unfinished=found.run_id,
        trigger=links.trigger(app.dag_id),
    )


def _topics(found: NextRun) -> ShownTable | None:
    """Return the inputs with their shares; None without any."""
    if not found.topics:
        return None
    largest = max(each.records for each in found.topics)
    table = Table(
        title="Inputs",
        columns=("topic", "partitions", "offsets"),
        rows=[(each.topic, f"{each.partitions:,}", f"{each.records:,}") for each in found.topics],
        numbers=2,
    )
    return ShownTable(
        name="inputs",
        table=table,
        bars=[[scaled("left", 0, each.records, (0, max(largest, 1)))] for each in found.topics],
        bars_title="offsets",
    )
