"""Draws a trace: a panel for each Airflow task, a lane for each thread and depth, a bar for each call. A bar
that is pointed at says which call it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from dev.benchmarks.waterfall.trace import Call

#: By the beginning of a call's name: what it is, and the colour of its bar.
_KINDS = {
    "admin.": ("admin client", "#1f6f8b"),
    "reader.": ("reader", "#6aa84f"),
    "writer.": ("writer", "#c0504d"),
    "first": ("first contact", "#8064a2"),
    "connect": ("first contact", "#8064a2"),
    "import": ("import", "#b9c4cc"),
    "process.": ("process", "#d9a441"),
    "spark": ("Spark", "#e3d3b0"),
    "sleep": ("sleep", "#333333"),
    "wait": ("wait", "#e8e8e8"),
    "thread": ("wait", "#e8e8e8"),
}
_CONTAINER = "#f4f6f7"
_WIDTH, _MARGIN, _LANE, _TITLE = 1000, 130, 13, 24
#: A bar that is narrower has no text.
_LEAST_TEXT, _LETTER = 30, 4.6


def draw(calls: Sequence[Call], file: Path) -> None:
    """Draw a trace.

    :param file: an SVG file.
    """
    lines: list[str] = []
    top = 22
    for task in dict.fromkeys(call.task for call in calls):
        lanes = lanes_of([call for call in calls if call.task == task])
        lines += _panel(task, lanes, top)
        top += _TITLE + _LANE * len(lanes) + 8
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_MARGIN + _WIDTH + 10} {top}"'
    style = ' font-family="sans-serif" font-size="8"><rect width="100%" height="100%" fill="white"/>'
    file.write_text("\n".join([head + style, *_legend(), *lines, "</svg>\n"]), encoding="utf-8")


def lanes_of(calls: Sequence[Call]) -> list[tuple[str, list[Call]]]:
    """Return lanes, each a thread and a depth, with a label on the first of a thread; a process that begins
    first, and a thread, comes first.
    """
    first: dict[tuple[str, str], float] = {}
    for call in calls:
        key = call.process, call.thread
        first[key] = min(first.get(key, call.at_ms), call.at_ms)
    processes = list(dict.fromkeys(process for process, _ in sorted(first, key=first.__getitem__)))
    found: list[tuple[str, list[Call]]] = []
    for key in sorted(first, key=lambda key: (processes.index(key[0]), first[key])):
        of_thread = [call for call in calls if (call.process, call.thread) == key]
        depths = sorted({call.depth for call in of_thread})
        for depth in depths:
            label = " ".join(filter(None, key)) if depth == depths[0] else ""
            found.append((label, [call for call in of_thread if call.depth == depth]))
    return found


def _panel(task: str, lanes: Sequence[tuple[str, Sequence[Call]]], top: int) -> Iterator[str]:
    begun_ms = min(call.at_ms for _, calls in lanes for call in calls)
    whole_ms = max(call.end_ms for _, calls in lanes for call in calls) - begun_ms
    yield f'<text x="4" y="{top + 14}" font-size="12">{task}: {whole_ms:,.0f} ms</text>'
    for row, (label, calls) in enumerate(lanes):
        y = top + _TITLE + _LANE * row
        if label:
            yield f'<text x="4" y="{y + 9}">{escape(label[:28])}</text>'
        for call in calls:
            x = _MARGIN + _WIDTH * (call.at_ms - begun_ms) / whole_ms
            width = max(0.3, _WIDTH * call.for_ms / whole_ms)
            said = escape(f"{call.name} {call.for_ms} ms {call.place}")
            yield (
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_LANE - 2}" '
                f'fill="{_color(call.name)}"><title>{said}</title></rect>'
            )
            if width > _LEAST_TEXT:
                name = escape(call.name[: int(width / _LETTER)])
                yield f'<text x="{x + 2:.1f}" y="{y + 9}" pointer-events="none">{name}</text>'


def _legend() -> Iterator[str]:
    for number, (label, color) in enumerate(dict(_KINDS.values()).items()):
        x = _MARGIN + 100 * number
        yield f'<rect x="{x}" y="6" width="10" height="10" fill="{color}"/>'
        yield f'<text x="{x + 14}" y="14">{label}</text>'


def _color(name: str) -> str:
    return next((color for part, (_, color) in _KINDS.items() if name.startswith(part)), _CONTAINER)
