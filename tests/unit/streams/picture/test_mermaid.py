"""The Mermaid text, read back by a small reader of the part of the syntax that is used."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest

from airflow_kstreams.streams import Topology
from tests.support.topology import drawn_topologies as drawn

_VERTEX = re.compile(r'(?P<id>\w+)(?P<open>\(\[|\[\(|\[)"(?P<label>[^"]*)"(\]\)|\)\]|\]):::(?P<kind>\w+)')
_EDGE = re.compile(r"(?P<start>\w+) (?P<link>-->|-\.-) (?P<end>\w+)")
_SUBGRAPH = re.compile(r'subgraph (?P<id>\w+)\["(?P<title>[^"]*)"\]')


class Flowchart:
    """What a Mermaid text says."""

    def __init__(self, text: str) -> None:
        first, *lines = text.splitlines()
        assert first == "flowchart TD"
        self.names: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self.brackets: dict[str, str] = {}
        self.inside: dict[str, str | None] = {}
        self.edges: list[tuple[str, str, str]] = []
        subgraph: str | None = None
        for line in map(str.strip, lines):
            if opened := _SUBGRAPH.fullmatch(line):
                subgraph = opened["title"]
            elif line == "end":
                subgraph = None
            elif vertex := _VERTEX.fullmatch(line):
                assert vertex["id"] not in self.names
                # What Mermaid does with #123; is to make it the HTML entity &#123;
                name, _, note = vertex["label"].partition("<br/>")
                self.names[vertex["id"]] = html.unescape(re.sub(r"#(\d+);", r"&#\1;", name))
                self.notes[self.names[vertex["id"]]] = html.unescape(re.sub(r"#(\d+);", r"&#\1;", note))
                self.brackets[vertex["id"]] = vertex["open"]
                self.inside[vertex["id"]] = subgraph
            elif edge := _EDGE.fullmatch(line):
                self.edges.append((self.names[edge["start"]], edge["link"], self.names[edge["end"]]))
            else:
                assert line.startswith("classDef "), line


def test_flowchart_shows_topics_nodes_and_stores_when_there_are_two_subtopologies() -> None:
    chart = Flowchart(drawn.diamond().to_mermaid())
    by_bracket: dict[str, set[str]] = {}
    for vertex, bracket in chart.brackets.items():
        by_bracket.setdefault(bracket, set()).add(chart.names[vertex])
    assert by_bracket["(["] == {
        "orders",
        "customers",
        "enriched-orders",
        "rejected-orders-with-a-rather-long-topic-name.v2",
        "totals-out",
    }
    assert by_bracket["[("] == {"customers", "seen-orders", "order-totals"}
    assert by_bracket["["] == {node.name for node in drawn.diamond().nodes}
    assert {name for name, note in chart.notes.items() if note} == by_bracket["["]
    assert re.fullmatch(r"source at drawn_topologies\.py:\d+", chart.notes["enriched-in"])
    members: dict[str | None, set[str]] = {}
    for vertex, subgraph in chart.inside.items():
        members.setdefault(subgraph, set()).add(chart.names[vertex])
    assert members["Subtopology 1"] == {"enriched-in", "totals", "out", "order-totals"}
    assert members[None] == by_bracket["(["]


def test_edges_go_through_intermediate_topics_when_a_subtopology_reads_what_another_writes() -> None:
    edges = Flowchart(drawn.diamond().to_mermaid()).edges
    assert ("to-enriched", "-->", "enriched-orders") in edges
    assert ("enriched-orders", "-->", "enriched-in") in edges
    assert [edge for edge in edges if edge[1] == "-.-"] == [
        ("customers-table", "-.-", "customers"),
        ("customers", "-.-", "enrich"),
        ("enrich", "-.-", "seen-orders"),
        ("totals", "-.-", "order-totals"),
    ]


def test_names_mean_nothing_to_mermaid_when_they_are_odd() -> None:
    text = drawn.oddly_named().to_mermaid()
    names = set(Flowchart(text).names.values())
    assert names == {
        '<a> & "b"\\n#1; `x` end',
        "日本語の名前" * 4,
        "end",
        "\\ud800\\x00",
        "1. foo *bar* _baz_",
        "a",
        "b",
    }
    labels = "".join(
        match["label"] for match in map(_VERTEX.fullmatch, map(str.strip, text.splitlines())) if match
    ).replace("<br/>", "")
    assert not re.search(r"[<>&`*\\]", re.sub(r"#\d+;", "", labels))
    assert "1. " not in labels  # would begin a list
    assert "_baz_" not in labels  # would be emphasis


@pytest.mark.parametrize("make", [drawn.chain, drawn.side_by_side])
def test_every_node_has_its_edges_when_drawn(make: Callable[[], Topology]) -> None:
    topology = make()
    edges = {(start, end) for start, _, end in Flowchart(topology.to_mermaid()).edges}
    for node in topology.nodes:
        for parent in getattr(node, "parents", ()):
            assert (parent, node.name) in edges
        for topic in getattr(node, "topics", ()):
            assert (topic, node.name) in edges
        if topic := getattr(node, "topic", None):
            assert (node.name, topic) in edges


def test_internal_topics_have_their_real_names_when_an_application_id_is_given() -> None:
    from spark_apps.flight_delays import topology

    names = set(Flowchart(topology().to_mermaid(application_id="delays-app")).names.values())
    assert "delays-app-delays-repartition" in names
