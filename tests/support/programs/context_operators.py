"""Operators whose functions declare the record's context: how each is drawn and built, as
in ``operators.py``. ``map_values`` with context stands in ``stream_operators.py``.

Kafka Streams gives a record's context to processors alone, so there each is a processor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_kstreams.streams.records.record_context import InContext, RecordContext
from tests.support.programs import functions
from tests.support.programs.building import STREAM, Building, Operator, mapped
from tests.support.programs.drawing import INPUTS, Part, World

#: What takes a function with context, but ``map_values``.
CALLS: tuple[str, ...] = ("filter", "filter_not", "map", "flat_map", "flat_map_values", "select_key")
CALLS += ("peek", "foreach", "branch", "split")

# == drawing


def _stateless(world: World, part: Part) -> bool:
    if not world.facts(part).headers:
        return False
    call = world.pick(*CALLS)
    # Offsets of topics in between: transactions leave marks there in Kafka, and none in a test driver.
    arguments = {"call": call, "place": part.topics <= {*INPUTS} and world.chance(0.5)}
    match call:
        case "filter" | "filter_not":
            chosen = {**world.arguments_of("predicate"), "closer": call == "filter"}
            ref = world.step("stateless_with_context", part, **arguments, **chosen)
            world.add(replace(part, ref=ref, steady=False))
        case "map" | "select_key" | "flat_map" | "flat_map_values":
            _mapped(world, part, call, arguments)
        case "peek":
            world.add(replace(part, ref=world.step("stateless_with_context", part, **arguments)))
        case "foreach":
            world.step("stateless_with_context", part, **arguments)
        case _:
            _branches(world, part, arguments)
    return True


def _mapped(world: World, part: Part, call: str, arguments: dict[str, Any]) -> None:
    key = None if call == "flat_map_values" else world.arguments_of("key")
    value = None if call == "select_key" else world.arguments_of("value")
    copies = world.arguments_of("copies") if call.startswith("flat") else None
    made = {"key": key, "value": value, "copies": copies}
    ref = world.step("stateless_with_context", part, **arguments, **made)
    others: dict[str, Any] = {} if copies is None else {"single": False}
    if copies is not None:
        others["steady"] = part.steady and copies["least"] > 0
    world.add(mapped(part, key, value, ref=ref, **others))


def _branches(world: World, part: Part, arguments: dict[str, Any]) -> None:
    predicates = [
        {**world.arguments_of("predicate"), "closer": number == 0} for number in range(world.pick(1, 2))
    ]
    default = arguments["call"] == "split" and world.chance(0.7)
    chosen = {"predicates": predicates, "default": default}
    step, _ = world.step("stateless_with_context", part, **arguments, **chosen)
    for number in range(len(predicates) + default):
        closed = part.closed and number == 0
        world.add(replace(part, ref=(step, number), steady=False, closed=closed))


# == building


def _built(building: Building, arguments: dict[str, Any], stream: Any) -> Any:
    call, place = arguments["call"], arguments["place"]
    operator = getattr(stream, call)
    match call:
        case "filter" | "filter_not":
            return operator(functions.predicate_in_context(arguments, place=place))
        case "peek" | "foreach":
            return operator(_see(building, place))
        case "branch" | "split":
            predicates = [
                functions.predicate_in_context(each, place=place) for each in arguments["predicates"]
            ]
            if call == "branch":
                return operator(*predicates)
            named = {f"b{number}": predicate for number, predicate in enumerate(predicates)}
            default = "rest" if arguments["default"] else None
            return [*operator(default=default, **named).values()]
    return operator(_mapper(arguments, call, place))


def _mapper(arguments: dict[str, Any], call: str, place: bool) -> Callable[..., Any]:
    def key_of(key: Any, value: Any, context: RecordContext) -> Any:
        return functions.key_in_context(arguments["key"], context, key, value, place=place)

    def value_of(value: Any, context: RecordContext, copy: int = 0) -> Any:
        return functions.value_in_context(arguments["value"], context, value, copy, place=place)

    def copies(value: Any) -> range:
        return range(functions.copy_count(arguments["copies"])(value))

    match call:
        case "select_key":
            return key_of
        case "map":
            return lambda key, value, context: (key_of(key, value, context), value_of(value, context))
        case "flat_map":
            return lambda key, value, context: [
                (key_of(key, value, context), value_of(value, context, copy)) for copy in copies(value)
            ]
    return lambda value, context: [value_of(value, context, copy) for copy in copies(value)]


def _see(building: Building, place: bool) -> InContext:
    look = building.see()

    def look_in_context(key: Any, value: Any, *, context: RecordContext) -> None:
        number = functions.number_of_context(context, place=place)
        look(key, value if functions.closes(value) else f"{functions.shown(value)}#{number}")

    return look_in_context


OPERATORS: dict[str, Operator] = {
    "stateless_with_context": Operator(takes=STREAM, extend=_stateless, build=_built, weight=4),
}
