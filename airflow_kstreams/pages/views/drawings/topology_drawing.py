"""Draws the topology of a run, with the records that it has read from and written to each topic."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kstreams.explore.tables import Table
from airflow_kstreams.inspect import RunInFull
from airflow_kstreams.inspect.tables_of import number_text
from airflow_kstreams.pages.views.drawings.shown_tables import ShownTable
from airflow_kstreams.streams.picture.flows import Flow, flow_chart
from airflow_kstreams.streams.picture.svg import to_counted_svg
from airflow_kstreams.streams.printable import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTopology:
    """A topology as a page shows it.

    :param svg: the picture, with all texts escaped; None where it cannot be drawn.
    :param table: the same figures.
    """

    svg: str | None
    table: ShownTable


def drawn_topology(found: RunInFull) -> DrawnTopology | None:
    """Return the topology of a run; None where the run does not know it."""
    if not found.subtopologies:
        return None
    flows = [
        (sub.id, topic, what)
        for sub in found.subtopologies
        for what, topics in (("read", sub.reads), ("written", sub.writes))
        for topic in topics
    ]
    records = _records(found)
    table = Table(
        title="Records by topic",
        columns=("part", "topic", "what", "records"),
        rows=[
            (f"subtopology {sub}", topic, what, number_text(records.get((topic, what))))
            for sub, topic, what in flows
        ],
        numbers=1,
    )
    return DrawnTopology(svg=_svg(found, records), table=ShownTable(name="flows", table=table))


def _records(found: RunInFull) -> dict[tuple[str, str], int]:
    """Return the records by topic and what became of them; empty where the run does not know them."""
    if found.audit is None:
        return {}
    seen = {(row.place, row.what): row.records for row in found.audit.rows}
    named = {
        (topic, what)
        for sub in found.subtopologies
        for what, topics in (("read", sub.reads), ("written", sub.writes))
        for topic in topics
    }
    return {each: seen.get(each, 0) for each in named}


def _svg(found: RunInFull, records: dict[tuple[str, str], int]) -> str | None:
    flows = [Flow(subtopology=sub.id, reads=sub.reads, writes=sub.writes) for sub in found.subtopologies]
    drawn = flow_chart(flows)
    if drawn is None:
        return None
    chart, topic_of = drawn
    outside = {shape.id for shape in chart.outside}
    counts = {
        arrow: number_text(records[place])
        for arrow, topic in topic_of.items()
        if (place := (topic, "read" if arrow.start in outside else "written")) in records
    }
    title = f"Topology of run {printable(found.run.run_id)}, with records by topic"
    return to_counted_svg(chart, counts, title, "topology")
