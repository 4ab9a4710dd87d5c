"""Writes a topology as a Mermaid flowchart, which many viewers of Markdown draw."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_kstreams.streams.picture.chart import COLOURS, TEXT_COLOUR, Chart, Shape, ShapeKind

#: Brackets of the label of each kind: topics are pills, stores and tables cylinders, nodes boxes.
_BRACKETS: dict[ShapeKind, tuple[str, str]] = {
    "topic": ("([", "])"),
    "table": ("[(", ")]"),
    "source": ("[", "]"),
    "processor": ("[", "]"),
    "sink": ("[", "]"),
    "store": ("[(", ")]"),
}


def mermaid(chart: Chart) -> str:
    """Return the flowchart's text."""
    return "\n".join(_lines(chart)) + "\n"


def _lines(chart: Chart) -> Iterator[str]:
    yield "flowchart TD"
    for shape in chart.outside:
        yield f"    {_vertex(shape)}"
    for subtopology in chart.subtopologies:
        yield f'    subgraph subtopology{subtopology}["Subtopology {subtopology}"]'
        for shape in chart.of(subtopology):
            yield f"        {_vertex(shape)}"
        yield "    end"
    for arrow in chart.arrows:
        yield f"    {arrow.start} {'-.-' if arrow.state else '-->'} {arrow.end}"
    for kind in dict.fromkeys(shape.kind for shape in chart.shapes):
        fill, edge = COLOURS[kind]
        yield f"    classDef {kind} fill:{fill},stroke:{edge},color:{TEXT_COLOUR}"


def _vertex(shape: Shape) -> str:
    opening, closing = _BRACKETS[shape.kind]
    # Topics, tables and stores are known by their brackets and colours.
    note = f"<br/>{_escaped(shape.note)}" if opening == "[" else ""
    return f'{shape.id}{opening}"{_escaped(shape.name)}{note}"{closing}:::{shape.kind}'


def _escaped(label: str) -> str:
    """Return a label in which nothing has a meaning to Mermaid, to Markdown or to HTML.

    Characters other than letters and digits are written by their numbers, except dashes, dots and underscores
    between two letters or digits, where they mean nothing.
    """
    padded = f" {label} "
    return "".join(
        sign
        if sign.isalnum() or (sign in "-._ " and before.isalnum() and after.isalnum())
        else f"#{ord(sign)};"
        for before, sign, after in zip(padded, padded[1:], padded[2:], strict=False)
    )
