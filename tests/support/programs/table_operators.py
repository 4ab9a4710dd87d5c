"""Operators of tables: how each is drawn and built, as in ``operators.py``.

Where a change may come to a join of two tables by both sides, Kafka Streams gives intermediate results that
it never takes back (``tables-of-one-table``). What follows from such a join is ``final``: only the last
result of each key is compared, so only operators that work key by key take it. An inner one never takes back
there what both sides delete (``stale``), so only operators of one table take it.

Where a table may delete keys that it does not hold (``vain``), in one of the engines, it goes to nothing that
makes a value of a deletion: no transformer, and no join that gives None for the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_kstreams.streams import ProcessorContext, StoreSpec, ValueTransformer, serdes
from tests.support.programs import functions
from tests.support.programs.building import STREAM, TEXT, Building, Operator, mapped, may_be_folded, serde_of
from tests.support.programs.drawing import Part, World
from tests.support.programs.facts import BY_KEY, facts_of

TABLE = ("table", "table", "windows")
#: How far tables with versions look back, milliseconds.
HISTORIES = (0, 6, 30, 1_000)

# == drawing


def _derived(world: World, part: Part, operator: str, value: str, arguments: dict[str, Any]) -> Part:
    """Add a step that makes a table of another, and return its part.

    :param value: of the new table.
    """
    # Windows are kept in no second store: they leave the first one when they close.
    kept = arguments.pop("kept", None)
    if kept is None:
        kept = part.kind == "table" and world.chance(0.4)
    # Deletions are made here, too, and only records of a topic can be kept apart: see ``draw_records``.
    if kept and part.versions == "topic" and "history" not in arguments and world.chance(0.5):
        arguments["history"] = world.pick(*HISTORIES)
    versions = part.versions if not kept or "history" in arguments else ""
    ref = world.step(operator, part, **arguments, kept=kept, gives=value)
    typed = kept or value == "text" or (part.typed and operator in ("table_filter", "table_filter_not"))
    vain = facts_of(world.steps, cached=world.cached)[ref[0]].vain
    made = replace(part, ref=ref, value=value, null_values=True, derived=True)
    return replace(made, typed=typed, vain=vain, versions=versions)


def derive_versions(world: World) -> bool:
    """Add a table that keeps the versions of another one, and say whether that could be."""
    part = world.some("table", lambda part: part.versions == "topic")
    if part is None:
        from tests.support.programs.operators import OPERATORS

        OPERATORS["versioned_table"].draw(world)
        part = world.some("table", lambda part: part.versions == "topic")
    if part is None:
        return False
    arguments = {"kept": True, "history": world.pick(*HISTORIES)}
    if world.chance(0.5):
        value = world.arguments_of("value")
        world.add(_derived(world, part, "table_map_values", value["gives"], {"value": value, **arguments}))
    else:
        arguments |= {**world.arguments_of("predicate"), "closer": True}
        world.add(_derived(world, part, "table_filter", part.value, arguments))
    return True


def _filtered(operator: str, closer: bool) -> Callable[[World, Part], bool]:
    def extend(world: World, part: Part) -> bool:
        arguments = {**world.arguments_of("predicate"), "closer": closer}
        world.add(_derived(world, part, operator, part.value, arguments))
        return True

    return extend


def _map_values(world: World, part: Part) -> bool:
    value = world.arguments_of("value")
    arguments = {"value": value, **world.key_beside()}
    world.add(_derived(world, part, "table_map_values", value["gives"], arguments))
    return True


def _transform_values(world: World, part: Part) -> bool:
    if part.vain or part.final or part.unordered:
        return False
    value = world.arguments_of("value")
    # With a store, it makes another value each time: the result is kept.
    counts = part.kind == "table" and world.chance(0.4)
    arguments = {"value": value, "gone": world.chance(0.3), "counts": counts}
    if counts:
        arguments["kept"] = True
    world.add(_derived(world, part, "table_transform_values", value["gives"], arguments))
    return True


def _to_stream_by(world: World, part: Part) -> bool:
    if part.vain or part.final:
        return False
    key = world.arguments_of("key")
    ref = world.step("to_stream_by", part, key=key)
    world.add(mapped(part, key, None, ref=ref, kind="stream", window=""))
    return True


def _group_by(world: World, part: Part) -> bool:
    begun = world.facts(part).begun
    if part.final or part.unordered or part.scattered or begun:
        return False
    key, value = world.arguments_of("key"), world.arguments_of("value")
    ref = world.step("table_group_by", part, by=key, value=value, gives=value["gives"])
    world.add(replace(part, ref=ref, kind="grouped_table", key="text", value=value["gives"], window=""))
    return True


def _folded(operator: str) -> Callable[[World, Part], bool]:
    def extend(world: World, part: Part) -> bool:
        if not may_be_folded(world, part):
            return False
        gives = "number"
        if operator == "table_reduce":
            gives = part.value
        elif operator == "table_aggregate":
            gives = world.pick("text", "number")
        # With a cache, a deletion has another time: see ``operators.py``.
        deleting = operator != "table_count" and not (world.cached and (world.late or not part.punctual))
        deletes = world.pick(0, 0, 7) if deleting else 0
        ref = world.step(operator, part, gives=gives, deletes=deletes)
        world.add(
            Part(
                ref=ref,
                kind="table",
                value=gives,
                topics=world.topic(f"s{ref[0]}-repartition", part),
                null_values=deletes > 0,
                steady=False,
                punctual=part.punctual,
                timed=part.timed,
                closed=part.closed,
                vain=facts_of(world.steps, cached=world.cached)[ref[0]].vain,
            )
        )
        return True

    return extend


def _joined(operator: str) -> Callable[[World, Part], bool]:
    foreign = operator.startswith("foreign_key")

    def usable(world: World, part: Part) -> bool:
        whole = not part.unordered and not part.scattered and part.key == "text"
        return whole and (part.typed or not foreign) and not world.facts(part).stale

    def extend(world: World, part: Part) -> bool:
        def fits(other: Part) -> bool:
            given = other.vain and operator in ("tables_left_join", "foreign_key_left_join")
            given |= operator == "tables_outer_join" and (part.vain or other.vain)
            apart = not world.inputs(part) & world.inputs(other)
            return usable(world, other) and not given and other.ref != part.ref and (apart or final)

        final = world.chance(0.1)
        if not usable(world, part):
            return False
        other = world.some("table", fits)
        if other is None:
            from tests.support.programs.operators import OPERATORS

            OPERATORS["table"].draw(world)
            other = world.some("table", fits)
        if other is None:
            return False
        # A result that is kept nowhere is kept where it is needed: with a cache, and there as a text.
        kept = world.chance(0.5) or (foreign and not world.cached)
        gives = world.pick("text", "text", "number") if kept or not foreign else "text"
        arguments: dict[str, Any] = {"by": world.arguments_of("key")} if foreign else {}
        ref = world.step(operator, part, other, gives=gives, kept=kept, **arguments)
        facts = facts_of(world.steps, cached=world.cached)[ref[0]]
        world.add(
            Part(
                ref=ref,
                kind="table",
                value=gives,
                topics=(
                    world.topic(f"foreign-{ref[0]}", part, other) if foreign else part.topics | other.topics
                ),
                null_values=True,
                steady=False,
                punctual=part.punctual and other.punctual,
                timed=part.timed or other.timed,
                closed=part.closed and other.closed,
                redated=not foreign and (part.redated or other.redated),
                scattered=facts.order == BY_KEY,
                vain=facts.vain,
                final=facts.final,
                derived=True,
                typed=kept or gives == "text",
            )
        )
        return True

    return extend


def _to_table(world: World, part: Part) -> bool:
    if part.key != "text" or part.unordered:
        return False
    ref = world.step("to_table", part, value=part.value)
    arrived = replace(world.arrivals(part, f"s{ref[0]}-repartition"), null_keys=False)
    vain = part.null_values and not world.cached
    world.add(replace(arrived, ref=ref, kind="table", steady=False, vain=vain, derived=False, typed=True))
    return True


# == building


def _store(building: Building, arguments: dict[str, Any]) -> StoreSpec | None:
    return building.spec(arguments["gives"], arguments.get("history")) if arguments["kept"] else None


def _built_filter(call: str) -> Callable[..., Any]:
    def built(building: Building, arguments: dict[str, Any], table: Any) -> Any:
        return getattr(table, call)(functions.predicate(arguments), store=_store(building, arguments))

    return built


def _built_map_values(building: Building, arguments: dict[str, Any], table: Any) -> Any:
    return table.map_values(
        functions.mapper(arguments),
        store=_store(building, arguments),
        value_serde=serde_of(arguments["gives"]),
    )


def _built_transform_values(building: Building, arguments: dict[str, Any], table: Any) -> Any:
    name = f"c{building.number}"
    stores = []
    if arguments["counts"]:
        stores.append(StoreSpec(name=name, key_serde=TEXT, value_serde=serdes.int64(), cached=False))
    return table.transform_values(
        lambda: _Transformer(arguments, name),
        *stores,
        store=_store(building, arguments),
        value_serde=serde_of(arguments["gives"]),
    )


class _Transformer(ValueTransformer):
    """Makes a table's values, of how many changes its key had too, if asked for.

    :param store: name of the store that holds how many.
    """

    def __init__(self, arguments: dict[str, Any], store: str) -> None:
        self._transform = functions.transformer(arguments)
        self._store = store if arguments["counts"] else None

    def init(self, context: ProcessorContext) -> None:
        self._counts = context.state_store(self._store) if self._store else None

    def transform(self, key: Any, value: Any) -> Any:
        count = 0
        if self._counts is not None:
            count = (self._counts.get(key) or 0) + 1
            self._counts.put(key, count)
        return self._transform(key, value, count)


def _built_join(call: str) -> Callable[..., Any]:
    def built(building: Building, arguments: dict[str, Any], table: Any, other: Any) -> Any:
        foreign = {"foreign_key": functions.key_maker(arguments["by"])} if "by" in arguments else {}
        return getattr(table, call)(
            other,
            functions.joiner(arguments),
            store=_store(building, arguments),
            value_serde=serde_of(arguments["gives"]),
            **foreign,
            **building.join_name(arguments),
        )

    return built


def _built_reduce(building: Building, arguments: dict[str, Any], grouped: Any) -> Any:
    adder, subtractor = functions.reducer(arguments), functions.subtractor(arguments)
    return grouped.reduce(adder, subtractor, store=building.spec(arguments["gives"]))


def _built_aggregate(building: Building, arguments: dict[str, Any], grouped: Any) -> Any:
    adder, subtractor = functions.reducer(arguments), functions.subtractor(arguments)
    return grouped.aggregate(
        functions.initializer(arguments),
        lambda key, value, so_far: adder(so_far, value),
        lambda key, value, so_far: subtractor(so_far, value),
        store=building.spec(arguments["gives"]),
    )


OPERATORS: dict[str, Operator] = {
    "table_filter": Operator(
        takes=TABLE, extend=_filtered("table_filter", True), build=_built_filter("filter")
    ),
    "table_filter_not": Operator(
        takes=TABLE, extend=_filtered("table_filter_not", False), build=_built_filter("filter_not"), weight=3
    ),
    "table_map_values": Operator(takes=TABLE, extend=_map_values, build=_built_map_values),
    "table_transform_values": Operator(takes=TABLE, extend=_transform_values, build=_built_transform_values),
    "to_stream_by": Operator(
        takes=TABLE,
        extend=_to_stream_by,
        build=lambda building, arguments, table: table.to_stream(functions.key_maker(arguments["key"])),
        weight=3,
    ),
    "table_group_by": Operator(
        takes=TABLE,
        extend=_group_by,
        build=lambda building, arguments, table: table.group_by(
            functions.entry_selector(arguments), key_serde=TEXT, value_serde=serde_of(arguments["gives"])
        ),
    ),
    "table_count": Operator(
        takes=("grouped_table",),
        extend=_folded("table_count"),
        build=lambda building, arguments, grouped: grouped.count(store=building.spec("number")),
    ),
    "table_reduce": Operator(takes=("grouped_table",), extend=_folded("table_reduce"), build=_built_reduce),
    "table_aggregate": Operator(
        takes=("grouped_table",), extend=_folded("table_aggregate"), build=_built_aggregate
    ),
    "tables_join": Operator(takes=("table",), extend=_joined("tables_join"), build=_built_join("join")),
    "tables_left_join": Operator(
        takes=("table",), extend=_joined("tables_left_join"), build=_built_join("left_join")
    ),
    "tables_outer_join": Operator(
        takes=("table",), extend=_joined("tables_outer_join"), build=_built_join("outer_join")
    ),
    "foreign_key_join": Operator(
        takes=("table",), extend=_joined("foreign_key_join"), build=_built_join("join")
    ),
    "foreign_key_left_join": Operator(
        takes=("table",), extend=_joined("foreign_key_left_join"), build=_built_join("left_join")
    ),
    "to_table": Operator(
        takes=STREAM,
        extend=_to_table,
        build=lambda building, arguments, stream: stream.to_table(store=building.spec(arguments["value"])),
    ),
}
