"""Any topology can be drawn, and its picture keeps the rules of geometry."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import Topology, TopologyBuilder
from airflow_kstreams.streams.picture.chart import chart
from airflow_kstreams.streams.picture.layout import Layout, layout
from airflow_kstreams.streams.picture.places import Link, columns
from tests.support.examples import examples
from tests.support.topology import drawn_topologies as drawn


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Up to four layers of subtopologies; each reads inputs of its own and topics written before it."""
    builder = TopologyBuilder()
    written: list[str] = []
    for sub in range(draw(st.integers(1, 4))):
        read = [topic for topic in written if draw(st.booleans())][:2]
        written = [topic for topic in written if topic not in read]
        sources = []
        for number, topics in enumerate([*([topic] for topic in read), [f"in-{sub}", f"also-in-{sub}"]]):
            sources.append(f"source-{sub}-{number}")
            builder.add_source(sources[-1], *topics)
        above = list(sources)
        for number in range(draw(st.integers(0, 6))):
            parents = draw(st.lists(st.sampled_from(above), min_size=1, max_size=3, unique=True))
            name = f"processor-{sub}-{number}-{'x' * draw(st.sampled_from([0, 5, 60]))}"
            stores = draw(st.lists(st.sampled_from([f"s-{sub}-0", f"s-{sub}-1"]), max_size=2, unique=True))
            builder.add_processor(name, drawn.Silent, *parents, stores=stores)
            for store in stores:
                builder.add_state_store(drawn.store(store))
            above.append(name)
        for number in range(draw(st.integers(1, 3))):
            parents = draw(st.lists(st.sampled_from(above), min_size=1, max_size=2, unique=True))
            topic = draw(st.sampled_from([f"topic-{sub}-{number}", "shared-end"]))
            builder.add_sink(f"sink-{sub}-{number}", topic, *parents)
            if topic != "shared-end" and topic not in written:
                written.append(topic)
    return builder.build()


def _layout(topology: Topology) -> Layout:
    return layout(chart(topology.ordered_subtopologies(), str, frozenset()))


@settings(deadline=None, max_examples=examples(60))
@given(topologies())
def test_picture_keeps_everything_apart_when_the_topology_is_any(topology: Topology) -> None:
    root = ET.fromstring(topology.to_svg())
    shapes, frames = drawn.shape_areas(root), drawn.frame_areas(root)
    assert drawn.overlaps(shapes) == []
    assert drawn.overlaps([*frames.values()]) == []
    for sub in topology.subtopologies():
        frame = frames[str(sub.id)]
        inside = [area for area in shapes if frame.holds(area)]
        assert len(inside) == len(sub.nodes) + len(sub.stores)
        assert [area for area in shapes if frame.overlaps(area)] == inside


@settings(deadline=None, max_examples=examples(60))
@given(topologies())
def test_lines_go_down_past_no_other_box_when_the_topology_is_any(topology: Topology) -> None:
    picture = _layout(topology)
    boxes = {
        box.shape.id: drawn.Area(
            box.shape.id,
            box.x - box.label.width / 2,
            box.y,
            box.x + box.label.width / 2,
            box.y + box.label.height,
        )
        for box in picture.boxes
    }
    for line in picture.lines:
        ends = [bottom for _, _, bottom in line.pieces]
        assert all(ends[number] <= top + 1e-6 for number, (_, top, _) in enumerate(line.pieces[1:])), (
            "a piece begins above the one before it"
        )
        others = [area for name, area in boxes.items() if name not in (line.arrow.start, line.arrow.end)]
        for x, top, bottom in line.pieces:
            piece = drawn.Area("line", x - 0.1, top, x + 0.1, bottom)
            assert not [area.name for area in others if area.overlaps(piece)]


@given(
    rows=st.lists(st.lists(st.floats(1, 300), min_size=1, max_size=5), min_size=1, max_size=4),
    pairs=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=10),
    gap=st.floats(1, 50),
)
def test_order_and_gaps_hold_when_rows_are_placed(
    rows: list[list[float]], pairs: list[tuple[int, int]], gap: float
) -> None:
    names = [[f"{row}.{place}" for place in range(len(widths))] for row, widths in enumerate(rows)]
    widths = {name: rows[row][place] for row, named in enumerate(names) for place, name in enumerate(named)}
    links = []
    for upper, lower in pairs:
        number = upper % len(names)
        if number + 1 < len(names):
            here, below = names[number], names[number + 1]
            links.append(Link(upper=here[lower % len(here)], lower=below[upper % len(below)]))
    middles = columns(names, widths, links, gap)
    for named in names:
        for left, right in pairwise(named):
            apart = middles[right] - middles[left] - (widths[left] + widths[right]) / 2
            assert apart >= gap - 1e-6
