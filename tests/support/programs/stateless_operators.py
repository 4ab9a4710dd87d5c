"""Operators of streams that keep nothing, and merge: how each is drawn and built, as in ``operators.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.programs import functions
from tests.support.programs.building import STREAM, Building, Operator, mapped
from tests.support.programs.drawing import Part, World, steady_together

# == drawing


def _filtered(operator: str, closer: bool) -> Callable[[World, Part], bool]:
    def extend(world: World, part: Part) -> bool:
        ref = world.step(operator, part, **world.arguments_of("predicate"), closer=closer)
        world.add(replace(part, ref=ref, steady=False))
        return True

    return extend


def _map(world: World, part: Part) -> bool:
    key, value = world.arguments_of("key"), world.arguments_of("value")
    ref = world.step("map", part, key=key, value=value)
    world.add(mapped(part, key, value, ref=ref))
    return True


def _map_values(world: World, part: Part) -> bool:
    value = world.arguments_of("value")
    ref = world.step("map_values", part, value=value, **world.key_beside())
    world.add(mapped(part, None, value, ref=ref))
    return True


def _flat_map(world: World, part: Part) -> bool:
    key, value, copies = (world.arguments_of(what) for what in ("key", "value", "copies"))
    ref = world.step("flat_map", part, key=key, value=value, copies=copies)
    steady = part.steady and copies["least"] > 0
    world.add(mapped(part, key, value, ref=ref, steady=steady, single=False))
    return True


def _flat_map_values(world: World, part: Part) -> bool:
    value, copies = world.arguments_of("value"), world.arguments_of("copies")
    ref = world.step("flat_map_values", part, value=value, copies=copies, **world.key_beside())
    steady = part.steady and copies["least"] > 0
    world.add(mapped(part, None, value, ref=ref, steady=steady, single=False))
    return True


def _select_key(world: World, part: Part) -> bool:
    key = world.arguments_of("key")
    world.add(mapped(part, key, None, ref=world.step("select_key", part, key=key)))
    return True


def _peek(world: World, part: Part) -> bool:
    world.add(replace(part, ref=world.step("peek", part)))
    return True


def _foreach(world: World, part: Part) -> bool:
    world.step("foreach", part)
    return True


def _branch(world: World, part: Part) -> bool:
    predicates = [
        {**world.arguments_of("predicate"), "closer": number == 0} for number in range(world.pick(1, 2, 3))
    ]
    step, _ = world.step("branch", part, predicates=predicates)
    for number in range(len(predicates)):
        closed = part.closed and number == 0
        world.add(replace(part, ref=(step, number), steady=False, closed=closed))
    return True


def _same(world: World, one: Part, other: Part) -> bool:
    """Return whether two parts are one stream, which a merge refuses: a topic asked for twice is one."""
    read = {world.steps[part.ref[0]].reads() or part.ref for part in (one, other)}
    return len(read) == 1


def _merge(world: World, part: Part) -> bool:
    def fits(other: Part) -> bool:
        alike = (other.key, other.value) == (part.key, part.value)
        return not _same(world, part, other) and alike and world.may_meet(part, other)

    other = world.some("stream", fits)
    if other is None:
        return False
    both = (part, other)
    world.add(
        Part(
            ref=world.step("merge", *both),
            key=part.key,
            value=part.value,
            topics=part.topics | other.topics,
            null_keys=any(one.null_keys for one in both),
            null_values=any(one.null_values for one in both),
            rekeyed=any(one.rekeyed for one in both),
            steady=steady_together(both),
            punctual=all(one.punctual for one in both),
            timed=any(one.timed for one in both),
            closed=all(one.closed for one in both),
            redated=any(one.redated for one in both),
            single=all(one.single for one in both) and not part.topics & other.topics,
        )
    )
    return True


# == building


def _built_flat_map(building: Building, arguments: dict[str, Any], stream: Any) -> Any:
    key_of = functions.key_maker(arguments["key"])
    count_of = functions.copy_count(arguments["copies"])
    makers = [functions.value_maker(arguments["value"], number) for number in range(4)]
    return stream.flat_map(
        lambda key, value: [(key_of(key, value), make(value)) for make in makers[: count_of(value)]]
    )


def _built_flat_map_values(building: Building, arguments: dict[str, Any], stream: Any) -> Any:
    count_of = functions.copy_count(arguments["copies"])
    makers = [functions.mapper(arguments, number) for number in range(4)]
    if arguments.get("keyed"):
        return stream.flat_map_values(
            lambda value, key: [make(value, key) for make in makers[: count_of(value)]]
        )
    return stream.flat_map_values(lambda value: [make(value) for make in makers[: count_of(value)]])


def _built_map(building: Building, arguments: dict[str, Any], stream: Any) -> Any:
    key_of, value_of = functions.key_maker(arguments["key"]), functions.value_maker(arguments["value"])
    return stream.map(lambda key, value: (key_of(key, value), value_of(value)))


OPERATORS: dict[str, Operator] = {
    "filter": Operator(
        takes=STREAM,
        extend=_filtered("filter", True),
        build=lambda building, arguments, stream: stream.filter(functions.predicate(arguments)),
    ),
    "filter_not": Operator(
        takes=STREAM,
        extend=_filtered("filter_not", False),
        build=lambda building, arguments, stream: stream.filter_not(functions.predicate(arguments)),
        weight=3,
    ),
    "map": Operator(takes=STREAM, extend=_map, build=_built_map),
    "map_values": Operator(
        takes=STREAM,
        extend=_map_values,
        build=lambda building, arguments, stream: stream.map_values(functions.mapper(arguments)),
    ),
    "flat_map": Operator(takes=STREAM, extend=_flat_map, build=_built_flat_map),
    "flat_map_values": Operator(
        takes=STREAM, extend=_flat_map_values, build=_built_flat_map_values, weight=3
    ),
    "select_key": Operator(
        takes=STREAM,
        extend=_select_key,
        build=lambda building, arguments, stream: stream.select_key(functions.key_maker(arguments["key"])),
        weight=3,
    ),
    "peek": Operator(
        takes=STREAM,
        extend=_peek,
        build=lambda building, arguments, stream: stream.peek(building.see()),
    ),
    "foreach": Operator(
        takes=STREAM,
        extend=_foreach,
        build=lambda building, arguments, stream: stream.foreach(building.see()),
        weight=2,
    ),
    "branch": Operator(
        takes=STREAM,
        extend=_branch,
        build=lambda building, arguments, stream: stream.branch(
            *map(functions.predicate, arguments["predicates"])
        ),
    ),
    "merge": Operator(
        takes=STREAM,
        extend=_merge,
        build=lambda building, arguments, stream, other: stream.merge(other),
        weight=3,
    ),
}
