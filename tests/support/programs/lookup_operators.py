"""Joins of streams with tables, and the tables that are made for them: how each is drawn and built, as in
``operators.py``.

Records of a global table come first, so that it is the same for all that look into it; it has no origin of
its own, so every stream may meet it, in whatever order its records come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.programs import functions
from tests.support.programs.building import STREAM, TEXT, Building, Operator, serde_of, timestamps_in
from tests.support.programs.drawing import GLOBALS, INPUTS, Part, World
from tests.support.programs.program import TABLES
from tests.support.programs.table_operators import HISTORIES

# == drawing


def _table_join(operator: str) -> Callable[[World, Part], bool]:
    left, versioned = "left" in operator, operator.startswith("versioned")

    def extend(world: World, part: Part) -> bool:
        if part.key != "text":
            return False
        arrived = world.arrivals(part, f"table-join-{len(world.steps)}")

        def fits(table: Part) -> bool:
            return world.may_meet(arrived, table) and (not versioned or bool(table.versions))

        table = world.some("table", fits)
        if table is None:
            draw(world, "versioned_table" if versioned else "table")
            table = world.some("table", fits)
        if table is None:
            return False
        gives = world.pick("text", "text", "number")
        world.add(
            replace(
                arrived,
                ref=world.step(operator, part, table, gives=gives, value=part.value, **world.key_beside()),
                value=gives,
                topics=arrived.topics | table.topics,
                null_keys=left and part.null_keys,
                null_values=False,
                steady=False,
                closed=part.closed and (left or table.closed),
                timed=part.timed or table.timed,
                redated=arrived.redated,
            )
        )
        return True

    return extend


def _versioned_table(world: World, _: None) -> bool:
    unread = [topic for topic in TABLES if topic not in world.origins]
    if not unread:
        return False
    topic = world.pick(*unread)
    world.origins[topic] = frozenset({topic})
    value = INPUTS[topic]
    chosen = {"history": world.pick(*HISTORIES), **world.timestamps_of(topic, "fail", "skip")}
    ref = world.step("versioned_table", topic=topic, key="text", value=value, **chosen)
    world.add(
        Part(
            ref=ref,
            kind="table",
            value=value,
            topics=frozenset({topic}),
            null_values=True,
            steady=False,
            versions="topic",
        )
    )
    return True


def _versioned_to_table(world: World, part: Part) -> bool:
    # A deletion may have the time of a version: see ``draw_records``. What is too old for the history, each
    # partition decides by its own time.
    if part.key != "text" or part.unordered or part.scattered or part.null_values:
        return False
    ref = world.step("versioned_to_table", part, value=part.value, history=world.pick(*HISTORIES))
    arrived = replace(world.arrivals(part, f"s{ref[0]}-repartition"), null_keys=False)
    world.add(
        replace(arrived, ref=ref, kind="table", steady=False, derived=False, typed=True, versions="stream")
    )
    return True


def _global_table(world: World, _: None) -> bool:
    unread = [topic for topic in GLOBALS if topic not in world.origins]
    if not unread:
        return False
    topic = world.pick(*unread)
    world.origins[topic] = frozenset()
    ref = world.step("global_table", topic=topic, key="text", value=INPUTS[topic])
    world.add(Part(ref=ref, kind="global_table", value=INPUTS[topic]))
    return True


def _global_join(operator: str) -> Callable[[World, Part], bool]:
    left = operator == "global_left_join"

    def extend(world: World, part: Part) -> bool:
        table = None if world.chance(0.2) else world.some("global_table")
        if table is None:
            draw(world, "global_table")
            table = next(part for part in reversed(world.parts) if part.kind == "global_table")
        gives = world.pick("text", "text", "number")
        by = world.arguments_of("key")
        world.add(
            replace(
                part,
                ref=world.step(operator, part, table, gives=gives, by=by, **world.key_beside()),
                value=gives,
                null_values=False,
                # A record without value is left out.
                steady=left and part.steady and not part.null_values,
            )
        )
        return True

    return extend


def draw(world: World, operator: str) -> None:
    from tests.support.programs.operators import OPERATORS

    OPERATORS[operator].draw(world)


# == building


def _built_table_join(call: str) -> Callable[..., Any]:
    def built(building: Building, arguments: dict[str, Any], stream: Any, table: Any) -> Any:
        return getattr(stream, call)(
            table,
            functions.joiner(arguments),
            value_serde=serde_of(arguments["value"]),
            **building.join_name(arguments),
        )

    return built


def _built_global_join(call: str) -> Callable[..., Any]:
    def built(building: Building, arguments: dict[str, Any], stream: Any, table: Any) -> Any:
        return getattr(stream, call)(
            table, functions.joiner(arguments), key=functions.key_maker(arguments["by"])
        )

    return built


OPERATORS: dict[str, Operator] = {
    "table_join": Operator(takes=STREAM, extend=_table_join("table_join"), build=_built_table_join("join")),
    "table_left_join": Operator(
        takes=STREAM, extend=_table_join("table_left_join"), build=_built_table_join("left_join")
    ),
    "versioned_table": Operator(
        takes=(),
        extend=_versioned_table,
        build=lambda building, arguments: building.builder.table(
            arguments["topic"],
            store=building.spec(arguments["value"], arguments["history"]),
            timestamps=timestamps_in(arguments),
        ),
    ),
    "versioned_to_table": Operator(
        takes=STREAM,
        extend=_versioned_to_table,
        build=lambda building, arguments, stream: stream.to_table(
            store=building.spec(arguments["value"], arguments["history"])
        ),
    ),
    "versioned_join": Operator(
        takes=STREAM, extend=_table_join("versioned_join"), build=_built_table_join("join")
    ),
    "versioned_left_join": Operator(
        takes=STREAM, extend=_table_join("versioned_left_join"), build=_built_table_join("left_join")
    ),
    # Drawn with what looks into it alone: one that nothing takes is no part of a topology.
    "global_table": Operator(
        takes=(),
        extend=_global_table,
        build=lambda building, arguments: building.builder.global_table(
            arguments["topic"], key_serde=TEXT, value_serde=serde_of(arguments["value"])
        ),
        weight=0,
    ),
    "global_join": Operator(
        takes=STREAM, extend=_global_join("global_join"), build=_built_global_join("join")
    ),
    "global_left_join": Operator(
        takes=STREAM, extend=_global_join("global_left_join"), build=_built_global_join("left_join")
    ),
}
