"""The picture of what a run's record knows: subtopologies, topics and counts."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from airflow_kstreams.streams.picture.flows import Flow, flow_chart
from airflow_kstreams.streams.picture.svg import to_counted_svg

_SVG = "{http://www.w3.org/2000/svg}"
FLOWS = (
    Flow(subtopology=0, reads=("orders", "customers"), writes=("checked",)),
    Flow(subtopology=1, reads=("checked",), writes=("stored", "<b>&\u202e")),
)


def test_topics_and_subtopologies_are_drawn_with_a_count_at_each_topic() -> None:
    drawn = flow_chart(FLOWS)
    assert drawn is not None
    chart, topics = drawn
    svg = to_counted_svg(chart, {arrow: f"n of {topic}" for arrow, topic in topics.items()}, "Title", "pic")
    root = ET.fromstring(svg)

    assert (root.get("role"), root.get("aria-labelledby"), root.get("style")) == ("img", "pic-title", None)
    names = [
        "".join(each.itertext()).strip() for each in root.iter(f"{_SVG}text") if each.get("class") == "name"
    ]
    assert names == [
        *("orders", "customers", "checked", "stored", "<b>&\\u202e"),
        *("subtopology 0", "subtopology 1"),
    ]
    counts = [each for each in root.iter(f"{_SVG}text") if each.get("class") == "count"]
    assert sorted(each.text or "" for each in counts) == sorted(
        f"n of {topic}" for flow in FLOWS for topic in (*flow.reads, *flow.writes)
    )
    places = [(each.get("x"), each.get("y")) for each in counts]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    "flows",
    [
        (),
        (Flow(subtopology=0, reads=("a",), writes=("a",)),),
        (Flow(subtopology=0, reads=("a",), writes=()), Flow(subtopology=1, reads=(), writes=("a",))),
        (Flow(subtopology=0, reads=("a",), writes=()), Flow(subtopology=1, reads=("a",), writes=())),
        (Flow(subtopology=0, reads=("a",), writes=()), Flow(subtopology=0, reads=("b",), writes=())),
        (Flow(subtopology=0, reads=tuple(f"topic-{number}" for number in range(60)), writes=()),),
    ],
    ids=["empty", "its own topic", "read before", "read by two", "id given twice", "too much"],
)
def test_nothing_is_drawn_when_no_topology_looks_so(flows: tuple[Flow, ...]) -> None:
    assert flow_chart(flows) is None
