"""Topologies whose results depend on the times of records: windows that close, sessions, joins.

What is collected in a window is written in the order of its numbers, so that its text does not depend on the
order in which records came; which records are in it, and what became late, does.
"""

from __future__ import annotations

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    Topology,
    TumblingWindow,
)
from airflow_kstreams.streams.graph.store_specs import Storage
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
    """Return numbers, single or collected ones, in their order."""
    numbers = (number for value in values for number in value.split("|") if number)
    return "|".join(sorted(numbers, key=int))


def _add(key: str, value: str, so_far: str) -> str:
    return collected(so_far, value)


def _tumbling(storage: Storage) -> Topology:
    return _time_windows(_TUMBLING)


def _hopping(storage: Storage) -> Topology:
    return _time_windows(_HOPPING)


def _time_windows(window: TumblingWindow | HoppingWindow) -> Topology:
    builder = _builder()
    windowed = builder.stream("a").group_by(lambda k, v: _group(v)).windowed_by(window)
    folded = windowed.aggregate(lambda: "", _add, store="s", value_serde=serdes.string())
    folded.suppress().to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}", v)).send_to("out")
    return builder.build()


def _sessions(storage: Storage) -> Topology:
    builder = _builder()
    windowed = builder.stream("a").group_by(lambda k, v: _group(v)).windowed_by(_SESSION)
    folded = windowed.aggregate(
        lambda: "", _add, lambda k, a, b: collected(a, b), store="s", value_serde=serdes.string()
    )
    named = folded.suppress().to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}-{w.end_ms}", v))
    named.send_to("out")
    return builder.build()


def _joined(left: str | None, right: str | None) -> str:
    return f"{left or ''}+{right or ''}"


def _join(kind: str) -> Topology:
    builder = _builder()
    left = builder.stream("a").map_values(lambda v: v + "m").through("b").with_window(_LEFT)
    right = builder.stream("a2").with_window(_RIGHT)
    getattr(left, kind)(right, _joined, name="j").send_to("out")
    return builder.build()


def _inner(storage: Storage) -> Topology:
    return _join("join")


def _left(storage: Storage) -> Topology:
    return _join("left_join")


def _outer(storage: Storage) -> Topology:
    return _join("outer_join")


def _table(storage: Storage) -> Topology:
    builder = _builder()
    stream = builder.stream("a").map_values(lambda v: v + "m").through("b")
    table = builder.table("a2", store=store_spec(storage))
    stream.left_join(table, _joined).send_to("out")
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
        stages=(Copy(sources=("a",), sink=REPARTITION, results=_rekeyed), stage),
        subtopologies=((("a",), (REPARTITION,)), ((REPARTITION,), ())),
    )


def _two_sided(name: str, stage: Join | TableJoin) -> Application:
    build = {"inner_join": _inner, "left_join": _left, "outer_join": _outer, "table_join": _table}[name]
    is_table = isinstance(stage, TableJoin)
    return Application(
        name=name,
        build=build,
        inputs=("a", "a2"),
        through=("b",),
        stages=(Copy(sources=("a",), sink="b", results=_marked), stage),
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
