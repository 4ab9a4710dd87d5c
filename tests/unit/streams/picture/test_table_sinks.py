"""A node that writes to a table is a sink in every picture, and the table lies outside of its subtopology."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tests.support.tables.beside_topics import TABLE, topology
from tests.support.topology import drawn_topologies as drawn
from tests.unit.streams.picture.test_mermaid import Flowchart


def test_text_says_sink_and_table() -> None:
    assert topology().describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: lines (topics: [in])\n"
        "      --> to-topic, to-table\n"
        "    Sink: to-topic (topic: out)\n"
        "      <-- lines\n"
        f"    Sink: to-table (table: {TABLE})\n"
        "      <-- lines\n\n"
    )


def test_flowchart_has_an_arrow_from_the_sink_to_the_table() -> None:
    chart = Flowchart(topology().to_mermaid())
    ids = {name: vertex for vertex, name in chart.names.items()}
    assert (chart.brackets[ids[TABLE]], chart.inside[ids[TABLE]]) == ("[(", None)
    assert {("lines", "-->", "to-table"), ("to-table", "-->", TABLE)} <= {*chart.edges}
    assert f"{ids['to-table']}[" in topology().to_mermaid()
    assert ":::sink" in next(
        line for line in topology().to_mermaid().splitlines() if line.strip().startswith(ids["to-table"])
    )


def test_drawing_keeps_the_table_below_the_frame_of_its_sink() -> None:
    root = ET.fromstring(topology().to_svg())
    areas = {area.name: area for area in drawn.shape_areas(root)}
    assert drawn.overlaps([*areas.values()]) == []
    frame = drawn.frame_areas(root)["0"]
    assert frame.holds(areas["to-table"])
    assert areas[TABLE].top > frame.bottom
    notes = {
        "".join(text.itertext()) for text in root.iter(f"{drawn.SVG}text") if text.get("class") == "note"
    }
    assert "Iceberg table" in notes
