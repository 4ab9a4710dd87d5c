"""The picture as a reader of the SVG document finds it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_kstreams.streams import Topology
from tests.support.topology import drawn_topologies as drawn

ROOT = Path(__file__).resolve().parents[4]
EVERY = pytest.mark.parametrize("make", [drawn.chain, drawn.diamond, drawn.side_by_side, drawn.oddly_named])
Make = Callable[[], Topology]


def _drawn(topology: Topology, **options: str) -> ET.Element:
    return ET.fromstring(topology.to_svg(**options))


@EVERY
def test_every_topic_node_and_store_is_named_once_when_drawn(make: Make) -> None:
    topology = make()
    topics = {t for sub in topology.subtopologies() for t in (*sub.source_topics, *sub.sink_topics)}
    expected = [node.name for node in topology.nodes] + [spec.name for spec in topology.stores] + [*topics]
    shown = {
        '<a> & "b"\n#1; `x` end': '<a> & "b"\\n#1; `x` end',
        "\ud800\x00": "\\ud800\\x00",
    }
    found = [area.name for area in drawn.shape_areas(_drawn(topology))]
    assert sorted(found) == sorted(shown.get(name, name) for name in expected)


@EVERY
def test_nothing_overlaps_when_drawn(make: Make) -> None:
    root = _drawn(make())
    frames = drawn.frame_areas(root)
    assert drawn.overlaps(drawn.shape_areas(root)) == []
    assert drawn.overlaps([*frames.values()]) == []
    page = drawn.Area("page", 0, 0, float(root.attrib["width"]), float(root.attrib["height"]))
    assert all(page.holds(area) for area in [*drawn.shape_areas(root), *frames.values()])


@EVERY
def test_frame_holds_exactly_its_subtopology_when_drawn(make: Make) -> None:
    topology = make()
    root = _drawn(topology)
    shapes = drawn.shape_areas(root)
    for sub in topology.subtopologies():
        frame = drawn.frame_areas(root)[str(sub.id)]
        inside = [area for area in shapes if frame.holds(area)]
        assert len(inside) == len(sub.nodes) + len(sub.stores)
        assert [area for area in shapes if frame.overlaps(area)] == inside


def test_topics_and_stores_have_shapes_of_their_own_when_drawn() -> None:
    kinds: dict[str, set[tuple[str, ...]]] = {}
    for group in _drawn(drawn.diamond()).iter(f"{drawn.SVG}g"):
        tags = tuple(element.tag.removeprefix(drawn.SVG) for element in group)
        kinds.setdefault(group.attrib["data-kind"], set()).add(tags)
    box, round_ends = ("rect", "text", "text"), ("path", "path", "text", "text")
    assert kinds == {
        "topic": {round_ends},
        "store": {round_ends},
        "source": {box},
        "processor": {box},
        "sink": {box},
    }
    fills = {
        group.attrib["data-kind"]: group[0].attrib["fill"]
        for group in _drawn(drawn.diamond()).iter(f"{drawn.SVG}g")
    }
    assert len({*fills.values()}) == len(fills)


def test_document_says_nothing_of_the_page_around_it_when_drawn() -> None:
    # It may stand in a notebook's page, whose colour and styles are unknown.
    text = drawn.diamond().to_svg()
    assert "<style" not in text
    assert " id=" not in text
    root = ET.fromstring(text)
    assert [rect.get("fill-opacity") for rect in root.findall(f"{drawn.SVG}rect")] == ["0.10", "0.10"]


def test_internal_topics_have_their_real_names_when_an_application_id_is_given() -> None:
    from spark_apps.flight_delays import topology

    names = {area.name for area in drawn.shape_areas(_drawn(topology(), application_id="delays-app"))}
    assert "delays-app-delays-repartition" in names
    assert "delays-repartition" not in names


def test_picture_in_the_docs_is_the_demos_when_drawn_again() -> None:
    from spark_apps.flight_delays import topology

    file = "docs/images/flight_delays_topology.svg"
    assert (ROOT / file).read_text() == topology().to_svg(), (
        f"the demo changed; run: airflow-kstreams describe spark_apps/flight_delays.py --output {file}"
    )


def test_notebook_shows_the_picture_and_has_the_text() -> None:
    topology = drawn.chain()
    assert topology._repr_mimebundle_(include=None, exclude=None) == {
        "text/plain": topology.describe(),
        "image/svg+xml": topology.to_svg(),
    }
