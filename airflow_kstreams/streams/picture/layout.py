"""Places every box, frame and line of the picture, in pixels.

The order from left to right is found for all shapes at once, as if they were of equal size and without
frames; then each frame gets its real places, and after them the ranks of frames and topics.

An arrow runs straight down through ranks and layers and swings sideways only in the gaps between them. Where
it passes a rank or layer without ending there, a *bend*, a thing of no height, keeps a lane free for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from airflow_kstreams.streams.picture.chart import Arrow, Chart, Shape
from airflow_kstreams.streams.picture.crossings import order
from airflow_kstreams.streams.picture.labels import Label, label
from airflow_kstreams.streams.picture.places import Link, columns
from airflow_kstreams.streams.picture.ranks import ranks

MARGIN = 16.0
_BESIDE = 28.0
_BELOW = 38.0
_LANE = 12.0
_FRAME = 16.0
#: At the left of a frame, for its title.
_TITLE = 26.0
_SMALLEST_FRAME = 132.0
_STRAIGHT = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One shape.

    :param x: x of its middle.
    :param y: y of its top.
    """

    shape: Shape
    label: Label
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFrame:
    """The frame of a subtopology; x and y of its upper left corner."""

    subtopology: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stroke:
    """An arrow as the straight pieces down that it consists of: (x, y from, y to), from top to bottom."""

    arrow: Arrow
    pieces: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The whole picture."""

    width: float
    height: float
    frames: tuple[DrawnFrame, ...]
    boxes: tuple[Box, ...]
    lines: tuple[Stroke, ...]


@dataclass(slots=True, kw_only=True)
class _Grid:
    """Rows of things: the layers of a frame, or the ranks of the picture.

    :param rows: names of things and bends of each row, from left to right.
    :param paths: the things and bends that each arrow passes, from its upper to its lower end.
    """

    rows: list[list[str]]
    widths: dict[str, float]
    heights: dict[str, float]
    paths: dict[Arrow, list[str]] = field(default_factory=dict)
    middles: dict[str, float] = field(default_factory=dict)
    tops: list[float] = field(default_factory=list)
    row_heights: list[float] = field(default_factory=list)

    def place(self, links: Sequence[Link], gap: float) -> None:
        """Find the places of all things; the leftmost begins at 0, the top row at 0."""
        self.middles = columns(self.rows, self.widths, links, gap)
        left = min(self.middles[name] - self.widths[name] / 2 for row in self.rows for name in row)
        self.middles = {name: middle - left for name, middle in self.middles.items()}
        top = 0.0
        for row in self.rows:
            self.tops.append(top)
            self.row_heights.append(max((self.heights[name] for name in row), default=0.0))
            top += self.row_heights[-1] + _BELOW

    @property
    def width(self) -> float:
        return max(self.middles[name] + self.widths[name] / 2 for row in self.rows for name in row)

    @property
    def height(self) -> float:
        return self.tops[-1] + self.row_heights[-1]


def layout(chart: Chart) -> Layout:
    """Return the places of all boxes, frames and lines."""
    return _Composition(chart).layout()


class _Composition:
    """Lays out each frame by itself, then the ranks of frames and topics, then the whole picture."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._ranks = ranks(chart)
        self._shapes = {shape.id: shape for shape in chart.shapes}
        self._labels = {shape.id: label(shape) for shape in chart.shapes}
        self._bends: dict[Arrow, list[str]] = {}
        self._bend_rows: dict[str, int] = {}
        for arrow in chart.arrows:
            self._add_bends(arrow)
        self._places = self._order()
        self._frames = {sub: self._frame_grid(sub) for sub in chart.subtopologies}
        self._outer = self._outer_grid()

    def layout(self) -> Layout:
        """Return the layout."""
        frames = {sub: self._frame(sub) for sub in self._chart.subtopologies}
        boxes = {shape.id: self._box(shape, frames) for shape in self._chart.shapes}
        return Layout(
            width=self._outer.width + 2 * MARGIN,
            height=self._outer.height + 2 * MARGIN,
            frames=tuple(frames.values()),
            boxes=tuple(boxes.values()),
            lines=tuple(
                Stroke(arrow=arrow, pieces=tuple(self._pieces(arrow, boxes, frames)))
                for arrow in self._chart.arrows
            ),
        )

    def _inside(self, arrow: Arrow) -> int | None:
        """Return the subtopology that contains an arrow, None if it begins or ends at a topic."""
        start, end = self._shapes[arrow.start].subtopology, self._shapes[arrow.end].subtopology
        return start if start == end else None

    def _row(self, shape_id: str) -> int:
        """Return the rank of a topic, or of the frame that a node is in."""
        subtopology = self._shapes[shape_id].subtopology
        return self._ranks.topics[shape_id] if subtopology is None else self._ranks.subtopologies[subtopology]

    def _add_bends(self, arrow: Arrow) -> None:
        rows = self._row if self._inside(arrow) is None else self._ranks.layers.__getitem__
        passed = range(rows(arrow.start) + 1, rows(arrow.end))
        names = [f"{arrow.start}>{arrow.end}@{row}" for row in passed]
        self._bends[arrow] = names
        self._bend_rows |= dict(zip(names, passed, strict=True))

    def _order(self) -> dict[str, float]:
        """Return a good order of all shapes and bends at once, as if there were no frames."""
        base = self._bases()
        layers: dict[str, int] = {}
        for shape in self._chart.shapes:
            layers[shape.id] = base[self._row(shape.id)] + self._ranks.layers.get(shape.id, 0)
        for arrow, names in self._bends.items():
            sub = self._inside(arrow)
            for name in names:
                row = self._bend_rows[name]
                layers[name] = base[row] if sub is None else base[self._ranks.subtopologies[sub]] + row
        number = {name: index for index, name in enumerate(layers)}
        steps = [
            (number[upper], number[lower])
            for arrow in self._chart.arrows
            for upper, lower in pairwise(self._path(arrow))
        ]
        return dict(zip(layers, order(list(layers.values()), steps), strict=True))

    def _bases(self) -> list[int]:
        """Return the number of layers in all ranks above each rank."""
        depths = [1] * self._ranks.count
        for sub, rank in self._ranks.subtopologies.items():
            depths[rank] = max(depths[rank], self._ranks.depth(sub, self._chart))
        bases = [0]
        for depth in depths:
            bases.append(bases[-1] + depth)
        return bases

    def _path(self, arrow: Arrow) -> list[str]:
        return [arrow.start, *self._bends[arrow], arrow.end]

    def _frame_grid(self, sub: int) -> _Grid:
        names = [shape.id for shape in self._chart.of(sub)]
        own = [arrow for arrow in self._chart.arrows if self._inside(arrow) == sub]
        rows: list[list[str]] = [[] for _ in range(self._ranks.depth(sub, self._chart))]
        for name in names:
            rows[self._ranks.layers[name]].append(name)
        for arrow in own:
            for name in self._bends[arrow]:
                rows[self._bend_rows[name]].append(name)
        for row in rows:
            row.sort(key=self._places.__getitem__)
        bends = [name for arrow in own for name in self._bends[arrow]]
        grid = _Grid(
            rows=rows,
            widths={name: self._labels[name].width for name in names} | dict.fromkeys(bends, _LANE),
            heights={name: self._labels[name].height for name in names} | dict.fromkeys(bends, 0.0),
        )
        grid.place([link for arrow in own for link in self._links(self._path(arrow))], _BESIDE)
        return grid

    def _links(self, path: Sequence[str]) -> Iterator[Link]:
        for upper, lower in pairwise(path):
            bends = sum(name in self._bend_rows for name in (upper, lower))
            yield Link(upper=upper, lower=lower, weight=_STRAIGHT**bends)

    def _outer_grid(self) -> _Grid:
        rows: list[list[tuple[float, str]]] = [[] for _ in range(self._ranks.count)]
        widths: dict[str, float] = {}
        heights: dict[str, float] = {}
        for shape in self._chart.outside:
            rows[self._ranks.topics[shape.id]].append((self._places[shape.id], shape.id))
            widths[shape.id], heights[shape.id] = self._labels[shape.id].width, self._labels[shape.id].height
        for sub, grid in self._frames.items():
            members = [self._places[shape.id] for shape in self._chart.of(sub)]
            rows[self._ranks.subtopologies[sub]].append((sum(members) / len(members), _frame_name(sub)))
            widths[_frame_name(sub)] = grid.width + 2 * _FRAME + _TITLE
            heights[_frame_name(sub)] = max(grid.height + 2 * _FRAME, _SMALLEST_FRAME)
        outer = [arrow for arrow in self._chart.arrows if self._inside(arrow) is None]
        for arrow in outer:
            for name in self._bends[arrow]:
                rows[self._bend_rows[name]].append((self._places[name], name))
                widths[name], heights[name] = _LANE, 0.0
        grid = _Grid(rows=[[name for _, name in sorted(row)] for row in rows], widths=widths, heights=heights)
        grid.place([link for arrow in outer for link in self._outer_links(arrow)], _BESIDE)
        return grid

    def _outer_links(self, arrow: Arrow) -> Iterator[Link]:
        for upper, lower in pairwise(self._path(arrow)):
            bends = sum(name in self._bend_rows for name in (upper, lower))
            yield Link(
                upper=self._outer_name(upper),
                lower=self._outer_name(lower),
                upper_dx=self._port(upper),
                lower_dx=self._port(lower),
                weight=_STRAIGHT**bends,
            )

    def _outer_name(self, name: str) -> str:
        """Return the name of a node's frame, or of a topic or bend itself."""
        shape = self._shapes.get(name)
        return name if shape is None or shape.subtopology is None else _frame_name(shape.subtopology)

    def _port(self, name: str) -> float:
        """Return the distance of a node from the middle of its frame."""
        shape = self._shapes.get(name)
        if shape is None or shape.subtopology is None:
            return 0.0
        grid = self._frames[shape.subtopology]
        return _FRAME + _TITLE + grid.middles[name] - (grid.width + 2 * _FRAME + _TITLE) / 2

    def _frame(self, sub: int) -> DrawnFrame:
        name = _frame_name(sub)
        width = self._outer.widths[name]
        return DrawnFrame(
            subtopology=sub,
            x=MARGIN + self._outer.middles[name] - width / 2,
            y=MARGIN + self._outer.tops[self._ranks.subtopologies[sub]],
            width=width,
            height=self._outer.heights[name],
        )

    def _box(self, shape: Shape, frames: dict[int, DrawnFrame]) -> Box:
        own = self._labels[shape.id]
        if shape.subtopology is None:
            rank = self._ranks.topics[shape.id]
            x = MARGIN + self._outer.middles[shape.id]
            y = MARGIN + self._outer.tops[rank]
            return Box(shape=shape, label=own, x=x, y=y + (self._outer.row_heights[rank] - own.height) / 2)
        grid, frame = self._frames[shape.subtopology], frames[shape.subtopology]
        layer = self._ranks.layers[shape.id]
        y = _inner_top(frame, grid) + grid.tops[layer]
        return Box(
            shape=shape,
            label=own,
            x=frame.x + _FRAME + _TITLE + grid.middles[shape.id],
            y=y + (grid.row_heights[layer] - own.height) / 2,
        )

    def _pieces(
        self, arrow: Arrow, boxes: dict[str, Box], frames: dict[int, DrawnFrame]
    ) -> Iterator[tuple[float, float, float]]:
        sub = self._inside(arrow)
        if sub is None:
            grid, dx, dy = self._outer, MARGIN, MARGIN
            first, last = self._row(arrow.start), self._row(arrow.end)
        else:
            grid, dx, dy = self._frames[sub], frames[sub].x + _FRAME + _TITLE, 0.0
            dy = _inner_top(frames[sub], grid)
            first, last = self._ranks.layers[arrow.start], self._ranks.layers[arrow.end]
        start, end = boxes[arrow.start], boxes[arrow.end]
        yield start.x, start.y + start.label.height, dy + grid.tops[first] + grid.row_heights[first]
        for name in self._bends[arrow]:
            top = dy + grid.tops[self._bend_rows[name]]
            yield dx + grid.middles[name], top, top + grid.row_heights[self._bend_rows[name]]
        yield end.x, dy + grid.tops[last], end.y


def _frame_name(sub: int) -> str:
    return f"frame{sub}"


def _inner_top(frame: DrawnFrame, grid: _Grid) -> float:
    return frame.y + (frame.height - grid.height) / 2
