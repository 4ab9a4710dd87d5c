"""Topologies whose results depend on the times of records: windows that close, sessions, joins.

What is collected in a window is written in the order of its numbers, so that its text does not depend on the
order in which records came; which records are in it, and what became late, does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    Topology,
    TumblingWindow,
)
from airflow_kstreams.streams.serde import serdes
from tests.simulation.stages import (
    CHANGELOG,
    REPARTITION,
    Application,
    Copy,
    Join,
    Sessions,
    Stage,
    TableJoin,
    Windows,
    store_spec,
)
from tests.simulation.steps import Steps

#: Groups the records of the input.
Grouped = Callable[[KStreamBuilder, Steps], Any]

_GRACE_MS = 400
_TUMBLING = TumblingWindow(size_ms=500, grace_ms=_GRACE_MS)
_HOPPING = HoppingWindow(size_ms=600, advance_ms=200, grace_ms=_GRACE_MS)
_SESSION = SessionWindow(gap_ms=150, grace_ms=_GRACE_MS)
_LEFT = SlidingWindow(size_ms=300, grace_ms=_GRACE_MS)
_RIGHT = SlidingWindow(size_ms=100, grace_ms=0)


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def _group(value: str) -> str:
    return f"g{int(value) % 3}"


def collected(*values: str) -> str:
    """Return numbers, single or collected ones, in their order; those of outsiders begin with o."""
    numbers = (number for value in values for number in value.split("|") if number)
    return "|".join(sorted(numbers, key=lambda number: int(number.lstrip("o"))))


def _add(key: str, value: str, so_far: str) -> str:
    return collected(so_far, value)


def _tumbling(steps: Steps) -> Topology:
    return _time_windows(_TUMBLING, steps)


def _hopping(steps: Steps) -> Topology:
    return _time_windows(_HOPPING, steps)


def _time_windows(
    window: TumblingWindow | HoppingWindow, steps: Steps, grouped: Grouped | None = None
) -> Topology:
    builder = _builder()
    windowed = (grouped or _by_group)(builder, steps).windowed_by(window)
    folded = windowed.aggregate(lambda: "", _add, store="s", value_serde=serdes.string())
    named = folded.suppress().to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}", v))
    steps.passed(named, "below", again=True).send_to("out")
    return builder.build()


def _sessions(steps: Steps, grouped: Grouped | None = None) -> Topology:
    builder = _builder()
    windowed = (grouped or _by_group)(builder, steps).windowed_by(_SESSION)
    folded = windowed.aggregate(
        lambda: "", _add, lambda k, a, b: collected(a, b), store="s", value_serde=serdes.string()
    )
    named = folded.suppress().to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}-{w.end_ms}", v))
    steps.passed(named, "below", again=True).send_to("out")
    return builder.build()


def _by_group(builder: KStreamBuilder, steps: Steps) -> Any:
    above = steps.passed(builder.stream("a"), "above", of="a", again=True)
    return above.group_by(lambda k, v: _group(v))


def _by_key(builder: KStreamBuilder, steps: Steps) -> Any:
    """Group by the key, so that a step of the same task stands above the windows."""
    middle = steps.passed(builder.stream("a"), "first", of="a", again=True).through("b")
    return steps.passed(middle, "above", of="b", keyed=True).group_by_key()


def _joined(left: str | None, right: str | None) -> str:
    return f"{left or ''}+{right or ''}"


def _join(kind: str, steps: Steps) -> Topology:
    builder = _builder()
    left = steps.passed(_marked_through(builder, steps), "left", of="b", keyed=True).with_window(_LEFT)
    right = steps.passed(builder.stream("a2"), "right", of="a2", keyed=True).with_window(_RIGHT)
    steps.passed(getattr(left, kind)(right, _joined, name="j"), "below", again=True).send_to("out")
    return builder.build()


def _marked_through(builder: KStreamBuilder, steps: Steps) -> Any:
    return steps.copied(builder.stream("a"), lambda value: value + "m", "first", of="a", again=True).through(
        "b"
    )


def _inner(steps: Steps) -> Topology:
    return _join("join", steps)


def _left(steps: Steps) -> Topology:
    return _join("left_join", steps)


def _outer(steps: Steps) -> Topology:
    return _join("outer_join", steps)


def _table(steps: Steps) -> Topology:
    builder = _builder()
    stream = steps.passed(_marked_through(builder, steps), "left", of="b", keyed=True)
    table = builder.table("a2", store=store_spec(steps.storage))
    steps.passed(stream.left_join(table, _joined), "below", of="b").send_to("out")
    return builder.build()


def _rekeyed(key: str, value: str) -> list[tuple[str, str]]:
    return [(_group(value), value)]


def _marked(key: str, value: str) -> list[tuple[str, str]]:
    return [(key, value + "m")]


def _grouped(name: str, stage: Stage) -> Application:
    build = {"tumbling": _tumbling, "hopping": _hopping, "sessions": _sessions}[name]
    return Application(
        name=name,
        build=build,
        inputs=("a",),
        through=(),
        stages=(Copy(sources=("a",), sink=REPARTITION, results=_rekeyed, step="above"), stage),
        subtopologies=((("a",), (REPARTITION,)), ((REPARTITION,), ())),
    )


def by_key(application: Application) -> Application:
    """Return an application whose windows collect by the records' own keys, with steps above and below."""
    build: dict[str, Callable[[Steps], Topology]] = {
        "tumbling": lambda steps: _time_windows(_TUMBLING, steps, _by_key),
        "hopping": lambda steps: _time_windows(_HOPPING, steps, _by_key),
        "sessions": lambda steps: _sessions(steps, _by_key),
    }
    _, windows = application.stages
    assert isinstance(windows, Windows | Sessions)
    return replace(
        application,
        name=f"{application.name}_by_key",
        build=build[application.name],
        through=("b",),
        stages=(
            Copy(sources=("a",), sink="b", results=lambda key, value: [(key, value)], step="first"),
            replace(windows, source="b"),
        ),
        subtopologies=((("a",), ("b",)), (("b",), ())),
    )


def _two_sided(name: str, stage: Join | TableJoin) -> Application:
    build = {"inner_join": _inner, "left_join": _left, "outer_join": _outer, "table_join": _table}[name]
    is_table = isinstance(stage, TableJoin)
    return Application(
        name=name,
        build=build,
        inputs=("a", "a2"),
        through=("b",),
        stages=(Copy(sources=("a",), sink="b", results=_marked, step="first"), stage),
        subtopologies=((("a",), ("b",)), (("a2", "b"), ())),
        joined=frozenset({"a2", "b"}),
        tables=frozenset({"a2"} if is_table else ()),
        has_stores=is_table,
    )


def _join_stage(kind: str) -> Join:
    return Join(
        left=("b", _LEFT.size_ms, _LEFT.grace_ms),
        right=("a2", _RIGHT.size_ms, _RIGHT.grace_ms),
        sink="out",
        kind=kind,  # type: ignore[arg-type]
    )


TIMED: tuple[Application, ...] = (
    _grouped(
        "tumbling",
        Windows(
            source=REPARTITION,
            sink="out",
            changelog=CHANGELOG,
            size_ms=_TUMBLING.size_ms,
            advance_ms=_TUMBLING.size_ms,
            grace_ms=_GRACE_MS,
        ),
    ),
    _grouped(
        "hopping",
        Windows(
            source=REPARTITION,
            sink="out",
            changelog=CHANGELOG,
            size_ms=_HOPPING.size_ms,
            advance_ms=_HOPPING.advance_ms,
            grace_ms=_GRACE_MS,
        ),
    ),
    _grouped(
        "sessions",
        Sessions(
            source=REPARTITION,
            sink="out",
            changelog=CHANGELOG,
            gap_ms=_SESSION.gap_ms,
            grace_ms=_GRACE_MS,
        ),
    ),
    _two_sided("inner_join", _join_stage("join")),
    _two_sided("left_join", _join_stage("left_join")),
    _two_sided("outer_join", _join_stage("outer_join")),
    _two_sided("table_join", TableJoin(stream="b", table="a2", sink="out", changelog=CHANGELOG)),
)
