"""Draws the picture as SVG.

Each element has its own colours and fonts, without a style sheet: notebooks put the picture into their own
page, whose styles would mix with the picture's, and some renderers know no style sheets. Boxes are light with
dark text, lines and titles of a middle grey, so that all can be read on light and on dark pages.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from itertools import pairwise

from airflow_kstreams.streams.picture.chart import COLOURS, TEXT_COLOUR, Arrow, Chart
from airflow_kstreams.streams.picture.labels import (
    CAP,
    CYLINDERS,
    LINE_HEIGHT,
    NAME_SIZE,
    NOTE_HEIGHT,
    NOTE_SIZE,
)
from airflow_kstreams.streams.picture.layout import Box, DrawnFrame, Layout, Stroke, layout

_NAME_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_NOTE_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
_NOTE = "#475569"
_GREY = "#7b8794"
_HEAD = 7.0


def to_svg(chart: Chart) -> str:
    """Return the SVG document."""
    picture = layout(chart)
    root = _root(picture)
    root.set("role", "img")
    root.set("style", "max-width: 100%; height: auto")
    ET.SubElement(root, "title").text = "Topology"
    for frame in picture.frames:
        _draw_frame(root, frame)
    for line in picture.lines:
        _draw_line(root, line)
    for box in picture.boxes:
        _draw_box(root, box)
    return _text(root)


def to_counted_svg(chart: Chart, counts: Mapping[Arrow, str], title: str, name: str) -> str:
    """Return the SVG of a chart without frames, with a text at the outer end of each arrow. It has no styles,
    which a page's policy may forbid; the texts have the class ``count``.

    :param counts: arrow between a subtopology and what lies outside -> its text; others have none.
    :param title: title of the picture, printable.
    :param name: unique on the page; the id of the title begins with it.
    """
    picture = layout(chart)
    root = _root(picture)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title")
    ET.SubElement(root, "title", {"id": f"{name}-title"}).text = title
    for line in picture.lines:
        _draw_line(root, line)
    for box in picture.boxes:
        _draw_box(root, box)
    outside = {shape.id for shape in chart.outside}
    for line in picture.lines:
        if line.arrow in counts:
            _draw_count(root, line, counts[line.arrow], at_start=line.arrow.start in outside)
    return _text(root)


def _root(picture: Layout) -> ET.Element:
    return ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": _number(picture.width),
            "height": _number(picture.height),
            "viewBox": f"0 0 {_number(picture.width)} {_number(picture.height)}",
        },
    )


def _text(root: ET.Element) -> str:
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _draw_count(root: ET.Element, line: Stroke, text: str, *, at_start: bool) -> None:
    """Draw a text beside an arrow, below the topic where it begins or above the one where it ends."""
    x, y = (
        (line.pieces[0][0], line.pieces[0][1] + 1.5 * NOTE_SIZE)
        if at_start
        else (line.pieces[-1][0], line.pieces[-1][2] - 1.2 * NOTE_SIZE)
    )
    common = {"x": _number(x + NOTE_SIZE), "y": _number(y), "font-family": _NOTE_FONT}
    ET.SubElement(root, "text", {**common, "class": "count", "font-size": _number(NAME_SIZE)}).text = text


def _draw_frame(root: ET.Element, frame: DrawnFrame) -> None:
    ET.SubElement(
        root,
        "rect",
        {
            **_corner(frame.x, frame.y, frame.width, frame.height),
            "rx": "10",
            "fill": _GREY,
            "fill-opacity": "0.10",
            "stroke": _GREY,
            "stroke-dasharray": "5 4",
            "data-subtopology": str(frame.subtopology),
        },
    )
    x, y = _number(frame.x + 20), _number(frame.y + frame.height / 2)
    ET.SubElement(
        root,
        "text",
        {
            "x": x,
            "y": y,
            "transform": f"rotate(-90 {x} {y})",
            "text-anchor": "middle",
            "font-family": _NOTE_FONT,
            "font-size": _number(NAME_SIZE),
            "font-weight": "600",
            "fill": _GREY,
        },
    ).text = f"Subtopology {frame.subtopology}"


def _draw_line(root: ET.Element, line: Stroke) -> None:
    pieces = list(line.pieces)
    if not line.arrow.state:
        x, top, bottom = pieces[-1]
        pieces[-1] = (x, top, bottom - _HEAD)  # the head covers the rest
    x, top, bottom = pieces[0]
    path = [f"M {_point(x, top)} V {_number(bottom)}"]
    for (left, _, above), (right, below, bottom) in pairwise(pieces):
        # The last piece may be shorter than its head.
        end = min(below, bottom)
        middle = (above + end) / 2
        path.append(
            f"C {_point(left, middle)} {_point(right, middle)} {_point(right, end)} V {_number(bottom)}"
        )
    dashed = {"stroke-dasharray": "3 3"} if line.arrow.state else {}
    attributes = {"d": " ".join(path), "fill": "none", "stroke": _GREY, "stroke-width": "1.4"}
    ET.SubElement(root, "path", attributes | dashed)
    if not line.arrow.state:
        x, _, tip = line.pieces[-1]
        corners = [(x, tip), (x - 4, tip - _HEAD), (x + 4, tip - _HEAD)]
        points = " ".join(f"{_number(at)},{_number(y)}" for at, y in corners)
        ET.SubElement(root, "polygon", {"points": points, "fill": _GREY})


def _draw_box(root: ET.Element, box: Box) -> None:
    kind = box.shape.kind
    group = ET.SubElement(root, "g", {"data-kind": kind})
    fill, edge = COLOURS[kind]
    paint = {"fill": fill, "stroke": edge, "stroke-width": "1.2"}
    left, right = box.x - box.label.width / 2, box.x + box.label.width / 2
    bottom = box.y + box.label.height
    if kind == "topic":
        half = _number(box.label.height / 2)
        cap = f"A {_number(CAP)} {half} 0 0"
        west, east = left + CAP, right - CAP
        outline = (
            f"M {_point(west, box.y)} H {_number(east)} {cap} 1 {_point(east, bottom)} H {_number(west)} "
        )
        ET.SubElement(group, "path", {"d": f"{outline}{cap} 1 {_point(west, box.y)} Z", **paint})
        inner = f"M {_point(east, box.y)} {cap} 0 {_point(east, bottom)}"
        ET.SubElement(group, "path", {"d": inner, **paint, "fill": "none"})
    elif kind in CYLINDERS:
        half = _number(box.label.width / 2)
        cap = f"A {half} {_number(CAP)} 0 0"
        top, floor = box.y + CAP, bottom - CAP
        outline = f"M {_point(left, top)} {cap} 1 {_point(right, top)} V {_number(floor)} "
        ET.SubElement(group, "path", {"d": f"{outline}{cap} 1 {_point(left, floor)} Z", **paint})
        lid = f"M {_point(left, top)} {cap} 0 {_point(right, top)}"
        ET.SubElement(group, "path", {"d": lid, **paint, "fill": "none"})
    else:
        corner = _corner(left, box.y, box.label.width, box.label.height)
        ET.SubElement(group, "rect", {**corner, "rx": "5", **paint})
    _draw_label(group, box)


def _draw_label(group: ET.Element, box: Box) -> None:
    y = box.y + box.label.text_top
    # The round end of a topic takes space from its right side.
    x = _number(box.x - 0.75 * CAP if box.shape.kind == "topic" else box.x)
    common = {"x": x, "text-anchor": "middle"}
    note = {"y": _number(y + NOTE_SIZE), "font-family": _NOTE_FONT, "font-size": _number(NOTE_SIZE)}
    ET.SubElement(group, "text", {**common, **note, "fill": _NOTE, "class": "note"}).text = box.shape.note
    text = ET.SubElement(
        group,
        "text",
        {
            "class": "name",
            "text-anchor": "middle",
            "font-family": _NAME_FONT,
            "font-size": _number(NAME_SIZE),
            "fill": TEXT_COLOUR,
        },
    )
    for number, line in enumerate(box.label.lines):
        baseline = y + NOTE_HEIGHT + LINE_HEIGHT * number + NAME_SIZE
        ET.SubElement(text, "tspan", {"x": x, "y": _number(baseline)}).text = line


def _corner(x: float, y: float, width: float, height: float) -> dict[str, str]:
    return {"x": _number(x), "y": _number(y), "width": _number(width), "height": _number(height)}


def _point(x: float, y: float) -> str:
    return f"{_number(x)} {_number(y)}"


def _number(value: float) -> str:
    return f"{round(value, 1):g}"
