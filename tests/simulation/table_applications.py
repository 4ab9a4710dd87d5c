"""Topologies with tables of tables, joins with tables of other kinds, and folds of several streams or with
windows around every record. They are drawn apart from the others, so that seeds of those stay as they are.

What is taken back of a group must be in it: a subtractor that does not find it fails, and with it the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random

from airflow_kstreams.streams import KStream, KStreamBuilder, KTable, SlidingWindow, StoreSpec, Topology
from airflow_kstreams.streams.serde import serdes
from tests.simulation.stages import (
    APPLICATION_ID,
    CHANGELOG,
    REPARTITION,
    Application,
    Copy,
    Fold,
    GlobalJoin,
    Rows,
    SlidingWindows,
    Tables,
    VersionsJoin,
    store_spec,
    versioned_store_spec,
)
from tests.simulation.steps import Steps

#: Share of the seeds that may draw one of these which do.
_SHARE = 0.16
_SLIDING = SlidingWindow(size_ms=300, grace_ms=400)
_HISTORY_MS = 600
#: The repartition topics of what is grouped together.
_ONE, _BESIDE = (f"{APPLICATION_ID}-s-{topic}-repartition" for topic in ("a", "a2"))


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def _named(steps: Steps, name: str, *, cached: bool = True) -> StoreSpec:
    return replace(store_spec(steps.storage), name=name, cached=cached)


def _group(value: str) -> str:
    return f"g{int(value) % 3}"


def _rekeyed(key: str, value: str) -> list[tuple[str, str]]:
    return [(_group(value), value)]


# What belongs to a group, in the order of its text.


def _with(key: str, value: str, so_far: str) -> str:
    return "|".join(sorted([*filter(None, so_far.split("|")), value]))


def _without(key: str, value: str, so_far: str) -> str | None:
    members = so_far.split("|")
    members.remove(value)
    return "|".join(members) or None


def _members(grouped: Iterable[tuple[str, str]]) -> Rows:
    members = defaultdict(list)
    for group, value in grouped:
        members[group].append(value)
    return {group: "|".join(sorted(values)) for group, values in members.items()}


def _kept(value: str) -> bool:
    return int(value) % 4 != 0


def _groups(steps: Steps) -> Topology:
    builder = _builder()
    rows = builder.table("a", store=_named(steps, "t"))
    derived = rows.filter(lambda key, value: _kept(value)).map_values(lambda value: value + "m")
    grouped = derived.group_by(lambda key, value: (_group(value.removesuffix("m")), value))
    grouped.aggregate(lambda: "", _with, _without, store=store_spec(steps.storage)).to_stream().send_to("out")
    return builder.build()


def _rows_of_groups(tables: Mapping[str, Rows]) -> Rows:
    return _members((_group(value), value + "m") for value in tables["a"].values() if _kept(value))


def _both(left: str | None, right: str | None) -> str:
    return f"{left or ''}+{right or ''}"


def _sum(both: str) -> str:
    return f"g{sum(int(number.rstrip('r') or 0) for number in both.split('+')) % 3}"


def _joined(kind: str, steps: Steps) -> Topology:
    """Join tables one of which is derived and waits for commit points, and group what that gives."""
    builder = _builder()
    left: KTable[str, str] = builder.table("a", store=_named(steps, "t", cached=False))
    rows: KTable[str, str] = builder.table("a2", store=_named(steps, "u"))
    right = rows.filter(lambda key, value: _kept(value)).map_values(lambda value: value + "r")
    joined: KTable[str, str] = getattr(left, kind)(right, _both)
    grouped = joined.group_by(lambda key, both: (_sum(both), f"{key}:{both}"))
    grouped.aggregate(lambda: "", _with, _without, store=store_spec(steps.storage)).to_stream().send_to("out")
    return builder.build()


def _rows_of_joined(kind: str, tables: Mapping[str, Rows]) -> Rows:
    left, right = tables["a"], {key: value + "r" for key, value in tables["a2"].items() if _kept(value)}
    keys = {
        "join": left.keys() & right.keys(),
        "left_join": left.keys(),
        "outer_join": left.keys() | right.keys(),
    }
    rows = {key: _both(left.get(key), right.get(key)) for key in keys[kind]}
    return _members((_sum(both), f"{key}:{both}") for key, both in rows.items())


def _foreign_key(value: str) -> str:
    return f"k{int(value) % 2}"


def _foreign(kind: str, steps: Steps) -> Topology:
    builder = _builder()
    left = builder.table("a", store=_named(steps, "t", cached=False))
    right = builder.table("a2", store=_named(steps, "u"))
    joined = getattr(left, kind)(right, _both, foreign_key=lambda key, value: _foreign_key(value), name="f")
    joined.to_stream().send_to("out")
    return builder.build()


def _rows_of_foreign(kind: str, tables: Mapping[str, Rows]) -> Rows:
    left, right = tables["a"], tables["a2"]
    return {
        key: _both(value, right.get(_foreign_key(value)))
        for key, value in left.items()
        if kind == "left_join" or _foreign_key(value) in right
    }


def _to_table(steps: Steps) -> Topology:
    builder = _builder()
    rekeyed = builder.stream("a").select_key(lambda key, value: _group(value))
    kept = rekeyed.to_table(store=store_spec(steps.storage)).filter(
        lambda key, value: _kept(value), store=_named(steps, "t", cached=False)
    )
    kept.to_stream().send_to("out")
    return builder.build()


def _rows_of_to_table(tables: Mapping[str, Rows]) -> Rows:
    return {key: value for key, value in tables[REPARTITION].items() if _kept(value)}


def _cogroup(steps: Steps) -> Topology:
    builder = _builder()
    one, other = (builder.stream(topic).group_by(lambda key, value: _group(value)) for topic in ("a", "a2"))
    together = one.cogroup(_appended).cogroup(
        other, lambda key, value, so_far: _appended(key, value + "r", so_far)
    )
    together.aggregate(lambda: "", store=store_spec(steps.storage)).to_stream().send_to("out")
    return builder.build()


def _appended(key: str, value: str, so_far: str) -> str:
    return f"{so_far}|{value}" if so_far else value


def _sliding(steps: Steps) -> Topology:
    builder = _builder()
    windowed = builder.stream("a").group_by(lambda key, value: _group(value)).windowed_by(_SLIDING)
    folded = windowed.aggregate(lambda: "", _in_order, store="s", value_serde=serdes.string())
    folded.suppress().to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}", v)).send_to("out")
    return builder.build()


def _in_order(key: str, value: str, so_far: str) -> str:
    return "|".join(sorted([*filter(None, so_far.split("|")), value], key=int))


def _versions(steps: Steps) -> Topology:
    builder = _builder()
    stream = _marked_through(builder)
    table = builder.table("a2", store=versioned_store_spec(steps.storage, _HISTORY_MS))
    stream.left_join(table, _both).send_to("out")
    return builder.build()


def _marked_through(builder: KStreamBuilder) -> KStream[str, str]:
    return builder.stream("a").map_values(lambda value: value + "m").through("b")


def _global(steps: Steps) -> Topology:
    builder = _builder()
    table = builder.global_table("a2", storage=steps.storage)
    joined = _marked_through(builder).left_join(table, _both, key=lambda key, value: _named_row(value))
    joined.send_to("out")
    return builder.build()


def _named_row(value: str) -> str:
    return f"k{int(value.strip('om')) % 2}"


def _marked(key: str, value: str) -> list[tuple[str, str]]:
    return [(key, value + "m")]


def _joined_tables(kind: str) -> Application:
    return Application(
        name=f"tables_{kind}",
        build=partial(_joined, kind),
        has_stores=True,
        inputs=("a", "a2"),
        through=(),
        stages=(Tables(sources=("a", "a2"), sink="out", rows=partial(_rows_of_joined, kind)),),
        subtopologies=((("a", "a2"), (REPARTITION,)), ((REPARTITION,), ())),
        joined=frozenset({"a", "a2"}),
        tables=frozenset({"a", "a2"}),
    )


def _joined_by_foreign_key(kind: str) -> Application:
    subscriptions, copies, answers = (
        f"{APPLICATION_ID}-f-{name}-repartition" for name in ("subscriptions", "copies", "answers")
    )
    return Application(
        name=f"foreign_key_{kind}",
        build=partial(_foreign, kind),
        has_stores=True,
        inputs=("a", "a2"),
        through=(),
        stages=(
            Tables(sources=("a", "a2"), sink="out", rows=partial(_rows_of_foreign, kind), repeatable=True),
        ),
        subtopologies=(
            (("a",), (subscriptions, copies)),
            (("a2", subscriptions), (answers,)),
            ((copies, answers), ()),
        ),
        tables=frozenset({"a", "a2"}),
    )


def _with_marked(
    name: str, build: Callable[[Steps], Topology], stage: VersionsJoin | GlobalJoin
) -> Application:
    return Application(
        name=name,
        build=build,
        inputs=("a", "a2"),
        through=("b",),
        stages=(Copy(sources=("a",), sink="b", results=_marked), stage),
        subtopologies=((("a",), ("b",)), (stage.sources, ())),
        joined=frozenset(stage.sources),
        tables=frozenset({"a2"}),
        has_stores=True,
    )


def _to_repartition(source: str, sink: str) -> Copy:
    return Copy(sources=(source,), sink=sink, results=_rekeyed)


TABLES: tuple[Application, ...] = (
    Application(
        name="table_groups",
        build=_groups,
        has_stores=True,
        inputs=("a",),
        through=(),
        stages=(Tables(sources=("a",), sink="out", rows=_rows_of_groups),),
        subtopologies=((("a",), (REPARTITION,)), ((REPARTITION,), ())),
        tables=frozenset({"a"}),
    ),
    *(_joined_tables(kind) for kind in ("join", "left_join", "outer_join")),
    *(_joined_by_foreign_key(kind) for kind in ("join", "left_join")),
    Application(
        name="to_table",
        build=_to_table,
        has_stores=True,
        inputs=("a",),
        through=(),
        stages=(
            _to_repartition("a", REPARTITION),
            Tables(sources=(REPARTITION,), sink="out", rows=_rows_of_to_table, repeatable=True),
        ),
        subtopologies=((("a",), (REPARTITION,)), ((REPARTITION,), ())),
    ),
    Application(
        name="cogroup",
        build=_cogroup,
        has_stores=True,
        inputs=("a", "a2"),
        through=(),
        stages=(
            _to_repartition("a", _ONE),
            _to_repartition("a2", _BESIDE),
            Fold(source=_ONE, beside=_BESIDE, sink="out", changelog=CHANGELOG),
        ),
        subtopologies=((("a",), (_ONE,)), (("a2",), (_BESIDE,)), ((_ONE, _BESIDE), ())),
        joined=frozenset({"a", "a2"}),
    ),
    Application(
        name="sliding",
        build=_sliding,
        inputs=("a",),
        through=(),
        stages=(
            _to_repartition("a", REPARTITION),
            SlidingWindows(
                source=REPARTITION,
                sink="out",
                changelog=CHANGELOG,
                size_ms=_SLIDING.size_ms,
                grace_ms=_SLIDING.grace_ms,
            ),
        ),
        subtopologies=((("a",), (REPARTITION,)), ((REPARTITION,), ())),
    ),
    _with_marked(
        "versions_join",
        _versions,
        VersionsJoin(stream="b", table="a2", sink="out", history_ms=_HISTORY_MS),
    ),
    _with_marked("global_join", _global, GlobalJoin(stream="b", table="a2", sink="out", names=_named_row)),
)


def drawn_tables(seed: int) -> Application | None:
    """Draw whether a seed takes one of these, and which."""
    random = Random(f"{seed} tables")
    return random.choice(TABLES) if random.random() < _SHARE else None
