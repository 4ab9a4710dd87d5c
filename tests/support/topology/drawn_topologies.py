"""Topologies that tests draw, and the geometry that the pictures must keep."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorRecord,
    StoreSpec,
    Topology,
    TopologyBuilder,
    serdes,
)

SVG = "{http://www.w3.org/2000/svg}"


class Silent(Processor):
    def process(self, record: ProcessorRecord) -> None:
        """Forward nothing."""


def store(name: str) -> StoreSpec:
    return StoreSpec(name=name, key_serde=serdes.string(), value_serde=serdes.int64())


def chain() -> Topology:
    """A topic, three nodes, a topic."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("numbers").map_values(lambda value: value).send_to("doubled")
    return builder.build()


def diamond() -> Topology:
    """Two subtopologies with a diamond, a table beside it and an intermediate topic between them."""
    builder = TopologyBuilder().add_source("orders-in", "orders").add_source("customers-in", "customers")
    builder.add_processor("parse", Silent, "orders-in")
    builder.add_processor("cheap", Silent, "parse").add_processor("dear", Silent, "parse")
    builder.add_processor("audit", Silent, "dear")
    builder.add_processor("customers-table", Silent, "customers-in", stores=["customers"])
    builder.add_processor("enrich", Silent, "cheap", "audit", stores=["customers", "seen-orders"])
    builder.add_state_store(store("customers")).add_state_store(store("seen-orders"))
    builder.add_sink("to-enriched", "enriched-orders", "enrich")
    builder.add_sink("to-rejected", "rejected-orders-with-a-rather-long-topic-name.v2", "parse")
    builder.add_source("enriched-in", "enriched-orders")
    builder.add_processor("totals", Silent, "enriched-in", stores=["order-totals"])
    return builder.add_state_store(store("order-totals")).add_sink("out", "totals-out", "totals").build()


def side_by_side() -> Topology:
    """Five subtopologies, some side by side; topics with two writers; arrows that pass others."""
    builder = TopologyBuilder().add_source("a-in", "a").add_source("b-in", "b").add_source("z-in", "z")
    builder.add_processor("p1", Silent, "a-in").add_processor("p2", Silent, "a-in")
    builder.add_processor("p3", Silent, "a-in").add_processor("p4", Silent, "p1", "p3")
    builder.add_sink("s1", "m1", "p4").add_sink("s2", "m2", "p2").add_sink("s3", "end", "a-in")
    builder.add_processor("q", Silent, "b-in").add_sink("s4", "m2", "q").add_sink("s5", "m3", "q")
    builder.add_source("m12-in", "m1", "m2").add_processor("j", Silent, "m12-in").add_sink("s6", "m4", "j")
    builder.add_source("m3-in", "m3").add_source("m4-in", "m4").add_processor("k", Silent, "m3-in", "m4-in")
    return builder.add_sink("s7", "end", "k").add_sink("s8", "end2", "z-in").build()


def oddly_named() -> Topology:
    """Names that mean something to XML, HTML, Markdown or Mermaid, or that cannot be printed."""
    source, processor = '<a> & "b"\n#1; `x` end', "日本語の名前" * 4
    builder = TopologyBuilder().add_source(source, "a").add_processor(processor, Silent, source)
    builder.add_processor("end", Silent, processor).add_processor("\ud800\x00", Silent, "end")
    return builder.add_sink("1. foo *bar* _baz_", "b", "end", "\ud800\x00").build()


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle of a picture."""

    name: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Area) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def holds(self, other: Area) -> bool:
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )


def shape_areas(root: ET.Element) -> list[Area]:
    """Return the area of every shape, computed from what is drawn."""
    areas = []
    for group in root.iter(f"{SVG}g"):
        names = ["".join(text.itertext()) for text in group.iter(f"{SVG}text") if text.get("class") == "name"]
        assert len(names) == 1
        name = re.sub(r"\n\s*", "", names[0])  # between the lines of a wrapped name stands indentation
        points = [point for element in group for point in _points(element)]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        areas.append(Area(name, min(xs), min(ys), max(xs), max(ys)))
    return areas


def frame_areas(root: ET.Element) -> dict[str, Area]:
    """Return the area of every subtopology's frame, by id."""
    frames = {}
    for rect in root.findall(f"{SVG}rect"):
        name = rect.attrib["data-subtopology"]
        (left, top), (right, bottom) = _points(rect)
        frames[name] = Area(name, left, top, right, bottom)
    return frames


def _points(element: ET.Element) -> Iterator[tuple[float, float]]:
    """Yield points at the edge of a rectangle or of a path of absolute commands."""
    if element.tag == f"{SVG}rect":
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        yield x, y
        yield x + float(element.attrib["width"]), y + float(element.attrib["height"])
    elif element.tag == f"{SVG}path":
        x = y = 0.0
        for command, arguments in re.findall(r"([MAHVZ])([^MAHVZ]*)", element.attrib["d"]):
            numbers = [float(number) for number in arguments.split()]
            match command:
                case "M":
                    x, y = numbers
                case "H":
                    (x,) = numbers
                case "V":
                    (y,) = numbers
                case "A":
                    # Half an ellipse between two points: it reaches one radius beyond them, on either side.
                    rx, ry = numbers[:2]
                    end = (numbers[5], numbers[6])
                    if end[0] == x:
                        yield from ((x - rx, y), (x + rx, y)) if numbers[4] else ()
                    else:
                        yield from ((x, y - ry), (x, y + ry)) if numbers[4] else ()
                    x, y = end
            yield x, y


def overlaps(areas: list[Area]) -> list[tuple[str, str]]:
    """Return the pairs that overlap."""
    return [(one.name, other.name) for one, other in combinations(areas, 2) if one.overlaps(other)]
