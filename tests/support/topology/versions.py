"""Versions of an application: lines of a topology, drawn, and what a deployment does to them.

A line is a stream or two, steps without state, one operator with state, and a topic that gets its results. It
names nothing unless a change has named it. Each line writes a topic of its own, so what became of a line can
be read there, wherever it stands.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_kstreams.streams import (
    HoppingWindow,
    KStream,
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    Topology,
    TumblingWindow,
    serdes,
)

TOPICS = ("t", "u", "v", "w", "x")
STEPS = ("filter", "map_values", "peek", "flat_map_values")
#: What can have a name in a line, beside its steps.
NAMED = ("operator", "sink", "group", "to_stream")

_SIZE_MS = 100


def _second(key: Any, value: Any) -> str:
    return f"g{value['n'] % 2}"


def _total(key: Any, value: Any, total: int) -> int:
    return total + int(value["n"])


def _reduced(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"n": old["n"] + new["n"]}


def _pair(left: Any, right: Any) -> dict[str, Any]:
    return {"n": (left or {"n": 0})["n"] + 1000 * (right or {"n": 0})["n"]}


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    :param number: which it is, in every version; it writes ``out-<number>``.
    :param operator: what it does, see ``OPERATORS``.
    :param topics: what it reads.
    :param steps: without state, above the operator: (kind, name).
    :param names: what has a name: (what, name).
    :param store: the name of its store; empty for none.
    """

    number: int
    operator: str
    topics: tuple[str, ...]
    steps: tuple[tuple[str, str], ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    store: str = ""

    @property
    def out(self) -> str:
        """The topic that gets its results."""
        return f"out-{self.number}"

    def named(self, what: str) -> dict[str, Any]:
        """Return the argument ``name=`` of a part of the line."""
        found = dict(self.names).get(what)
        return {} if found is None else {"name": found}

    def kept(self) -> dict[str, Any]:
        """Return the arguments of an operator with one store."""
        return {**self.named("operator"), **({"store": self.store} if self.store else {})}


def _stepped(line: Line, stream: KStream) -> KStream:
    for kind, name in line.steps:
        named = {"name": name} if name else {}
        if kind == "filter":
            stream = stream.filter(lambda key, value: True, **named)
        elif kind == "peek":
            stream = stream.peek(lambda key, value: None, **named)
        elif kind == "map_values":
            stream = stream.map_values(lambda value: value, **named)
        else:
            stream = stream.flat_map_values(lambda value: [value], **named)
    return stream


def _grouped(line: Line, stream: KStream, *, anew: bool) -> Any:
    if anew:
        return stream.group_by(_second, **line.named("group"))
    return stream.group_by_key(**line.named("group"))


def _folded(line: Line, grouped: Any, fold: str, *, sessions: bool = False) -> Any:
    if fold == "count":
        return grouped.count(**line.kept())
    if fold == "reduce":
        return grouped.reduce(_reduced, **line.kept())
    mergers = (lambda key, one, other: one + other,) if sessions else ()
    return grouped.aggregate(lambda: 0, _total, *mergers, **line.kept())


#: Builds the results of a line; tables are given for the operators that take any.
Build = Callable[["Line", list[KStream], list[Any]], Any]

_WINDOWS: dict[str, Any] = {
    "tumbling": TumblingWindow(size_ms=_SIZE_MS),
    "hopping": HoppingWindow(size_ms=_SIZE_MS, advance_ms=_SIZE_MS // 2),
    "session": SessionWindow(gap_ms=_SIZE_MS),
    "sliding": SlidingWindow(size_ms=_SIZE_MS),
}


def _fold(fold: str, window: str = "", *, anew: bool = False) -> Build:
    def build(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
        grouped = _grouped(line, streams[0], anew=anew)
        if window:
            table = _folded(line, grouped.windowed_by(_WINDOWS[window]), fold, sessions=window == "session")
            plain = table.to_stream(**line.named("to_stream"))
            return plain.map(lambda window, value: (window.key, [window.start_ms, window.end_ms, value]))
        return _folded(line, grouped, fold).to_stream(**line.named("to_stream"))

    return build


def _folded_twice(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
    counts = streams[0].group_by_key().count().to_stream()
    again = counts.map(lambda key, value: (f"c{value % 2}", {"n": value})).group_by_key(**line.named("group"))
    return again.reduce(_reduced, **line.kept()).to_stream(**line.named("to_stream"))


def _cogrouped(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
    first, second = (
        _grouped(line if n else replace(line, names=()), s, anew=not n) for n, s in enumerate(streams)
    )
    table = first.cogroup(_total).cogroup(second, lambda key, value, total: total - value["n"])
    return table.aggregate(lambda: 0, **line.kept()).to_stream(**line.named("to_stream"))


def _kept(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
    return streams[0].to_table(**line.kept()).to_stream(**line.named("to_stream"))


def _of_table(fold: str) -> Build:
    def build(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
        grouped = tables[0].group_by(lambda key, value: (_second(key, value), value), **line.named("group"))
        if fold == "count":
            result = grouped.count(**line.kept())
        elif fold == "reduce":
            result = grouped.reduce(_reduced, lambda old, gone: {"n": old["n"] - gone["n"]}, **line.kept())
        else:
            result = grouped.aggregate(
                lambda: 0, _total, lambda key, value, total: total - value["n"], **line.kept()
            )
        return result.to_stream(**line.named("to_stream"))

    return build


def _looking_up(call: str) -> Build:
    def build(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
        return getattr(streams[0], call)(tables[0], _pair, **line.named("operator"))

    return build


def _of_tables(call: str) -> Build:
    def build(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
        left, right = tables
        joined = getattr(left, call)(right, _pair, **line.kept())
        return joined.to_stream(**line.named("to_stream"))

    return build


def _by_foreign_key(call: str) -> Build:
    def build(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
        left, right = tables
        joined = getattr(left, call)(
            right, _pair, foreign_key=lambda key, value: f"k{value['n'] % 3}", **line.named("operator")
        )
        return joined.to_stream(**line.named("to_stream"))

    return build


def _within(call: str, *, anew: bool = False) -> Build:
    def build(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
        if anew:
            streams = [stream.select_key(_second) for stream in streams]
        left, right = (stream.with_window(SlidingWindow(size_ms=_SIZE_MS)) for stream in streams)
        return getattr(left, call)(right, _pair, **line.named("operator"))

    return build


def _stateless(line: Line, streams: list[KStream], tables: list[Any]) -> Any:
    return streams[0]


#: Operator -> how many topics it reads, and how a line with it is built.
OPERATORS: dict[str, tuple[int, Build]] = {
    "nothing": (1, _stateless),
    **{fold: (1, _fold(fold)) for fold in ("count", "reduce", "aggregate")},
    **{f"group_by-{fold}": (1, _fold(fold, anew=True)) for fold in ("count", "reduce", "aggregate")},
    **{
        f"{window}-{fold}": (1, _fold(fold, window))
        for window in _WINDOWS
        for fold in ("count", "reduce", "aggregate")
    },
    "count-reduce": (1, _folded_twice),
    "table": (1, lambda line, streams, tables: tables[0].to_stream(**line.named("to_stream"))),
    "cogroup": (2, _cogrouped),
    "to_table": (1, _kept),
    **{f"table-{fold}": (1, _of_table(fold)) for fold in ("count", "reduce", "aggregate")},
    **{f"look-{call}": (2, _looking_up(call)) for call in ("join", "left_join")},
    **{f"tables-{call}": (2, _of_tables(call)) for call in ("join", "left_join", "outer_join")},
    **{f"foreign-{call}": (2, _by_foreign_key(call)) for call in ("join", "left_join")},
    **{f"within-{call}": (2, _within(call)) for call in ("join", "left_join", "outer_join", "join_prior")},
    "rekeyed-within-join": (2, _within("join", anew=True)),
}


#: What an operator begins with that takes tables.
TABLES = ("table", "tables", "foreign", "look")


def tables_of(line: Line) -> set[str]:
    """Return the topics that a line reads as tables."""
    kind = line.operator.partition("-")[0]
    return {*(line.topics[1:] if kind == "look" else line.topics)} if kind in TABLES else set()


def topology(lines: Sequence[Line]) -> Topology:
    """Build a version."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    for line in lines:
        _, build = OPERATORS[line.operator]
        as_tables = tables_of(line)
        tables = [builder.table(topic) for topic in line.topics if topic in as_tables]
        streams = [builder.stream(topic) for topic in line.topics if topic not in as_tables]
        streams[:1] = [_stepped(line, first) for first in streams[:1]]
        build(line, streams, tables).send_to(line.out, value_serde=serdes.json(), **line.named("sink"))
    return builder.build()


def drawn_line(draw: random.Random, number: int) -> Line:
    """Draw a line."""
    operator = draw.choice([*OPERATORS])
    reads, _ = OPERATORS[operator]
    steps = tuple((draw.choice(STEPS), "") for _ in range(draw.randrange(3)))
    return Line(number, operator, tuple(draw.sample(TOPICS, reads)), steps)


def changed(draw: random.Random, lines: Sequence[Line]) -> tuple[str, list[Line]]:
    """Draw one change: lines swapped, one inserted, removed or named, a step put in or taken out.

    :return: which, and the lines then.
    """
    found = [*lines]
    kind = draw.choice(("swap", "insert", "remove", "name", "peek"))
    at = draw.randrange(len(found))
    line = found[at]
    if kind == "swap" and len(found) > 1:
        other = draw.choice([n for n in range(len(found)) if n != at])
        found[at], found[other] = found[other], found[at]
    elif kind == "insert":
        found.insert(draw.randrange(len(found) + 1), drawn_line(draw, draw.randrange(100, 1_000_000)))
    elif kind == "remove" and len(found) > 1:
        del found[at]
    elif kind == "name":
        found[at] = _with_name(draw, line)
    else:
        kind = "peek"
        steps = [*line.steps]
        if steps and draw.random() < 0.3:
            del steps[draw.randrange(len(steps))]
        else:
            steps.insert(draw.randrange(len(steps) + 1), (draw.choice(STEPS), ""))
        found[at] = replace(line, steps=tuple(steps))
    return kind, found


_STORELESS = ("nothing", "within", "rekeyed", "foreign", "look")


def _with_name(draw: random.Random, line: Line) -> Line:
    """Name a step, a node or the store of a line."""
    name = f"n{line.number}-{draw.randrange(1_000_000)}"
    unnamed = [at for at, (_, known) in enumerate(line.steps) if not known]
    chosen = draw.choice([*NAMED, "step", "step", "store", "pin", "pin"])
    pins = [made.pin() for made in topology([line]).made_of.values() if not made.named]
    if chosen == "pin" and pins and not line.named("operator"):
        option, _, name = pins[-1].strip('"').partition('="')
        if option == "store" and line.operator != "table" and not line.operator.startswith("look"):
            return replace(line, store=name)
        if option == "name":
            return replace(line, names=(*line.names, ("operator", name)))
    kind = line.operator.partition("-")[0]
    if chosen == "store" and kind not in _STORELESS and line.operator != "table":
        return replace(line, store=name)
    if chosen == "step" and unnamed:
        steps, at = [*line.steps], draw.choice(unnamed)
        steps[at] = (steps[at][0], name)
        return replace(line, steps=tuple(steps))
    what = chosen if chosen in NAMED else "sink"
    return replace(line, names=(*((w, n) for w, n in line.names if w != what), (what, name)))


def with_own_name(draw: random.Random, line: Line) -> Line:
    """Give the store, or the join, of a line a name of the user's, or another one, if it can have one."""
    kind, name = line.operator.partition("-")[0], f"s{line.number}-{draw.randrange(1_000_000)}"
    if kind in ("within", "rekeyed", "foreign"):
        return replace(line, names=(*((w, n) for w, n in line.names if w != "operator"), ("operator", name)))
    return line if kind in ("nothing", "look", "table") else replace(line, store=name)


def without_own_name(line: Line) -> Line:
    """Take the name of its store, or of its join, from a line."""
    return replace(line, names=tuple((w, n) for w, n in line.names if w != "operator"), store="")


def with_names_of(line: Line, other: Line) -> Line:
    """Give a line the names of the store and of the join that another one has."""
    own = without_own_name(line)
    named = tuple((w, n) for w, n in other.names if w == "operator")
    return replace(own, names=(*own.names, *named), store=other.store)


def renamed(draw: random.Random, lines: Sequence[Line]) -> tuple[str, list[Line]]:
    """Draw one change of lines that have names: one is renamed, or loses its name, two exchange theirs, or
    one of the changes of :func:`changed`.

    :return: which, and the lines then.
    """
    found = [*lines]
    kind = draw.choice(("rename", "rename", "lose", "exchange", "other", "other"))
    at = draw.randrange(len(found))
    alike = [n for n, each in enumerate(found) if n != at and bool(each.store) == bool(found[at].store)]
    if kind == "rename":
        found[at] = with_own_name(draw, found[at])
    elif kind == "lose":
        found[at] = without_own_name(found[at])
    elif kind == "exchange" and alike:
        other = draw.choice(alike)
        one, two = found[at], found[other]
        found[at], found[other] = with_names_of(one, two), with_names_of(two, one)
    else:
        return changed(draw, found)
    return kind, found
