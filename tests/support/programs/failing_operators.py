"""What fails for some records, and leaves them to a handler: how each is drawn and built, as in
``operators.py``.

- ``failing``: a function raises (``processing.exception.handler``).
- ``send_to_failing``: a result cannot be written. It is Kafka Streams' production handler that takes it,
  and ``processing.exception.handler`` here.
- ``send_to_refused``: the client refuses a result for what it is (``production.exception.handler``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_kstreams.streams import Processor, ProcessorContext, Serde
from tests.support.programs import functions
from tests.support.programs.building import STREAM, Building, Operator, serde_of, serdes_of
from tests.support.programs.drawing import Part, World
from tests.support.programs.refusing import SMALL

# == drawing


def _letters_agree(world: World, part: Part) -> bool:
    """Return whether failures of a part's records may be handled: a dead letter is the record that led to a
    failure, so where that is known, and the same in both engines.
    """
    return world.handler == "skip" or world.facts(part).letters


def _agreeing(world: World, part: Part) -> Part | None:
    """Return a part, or another one, whose failures may be handled."""
    if _letters_agree(world, part):
        return part
    return world.some("stream", lambda other: _letters_agree(world, other))


def _failing(world: World, part: Part) -> bool:
    found = _agreeing(world, part)
    if found is None:
        return False
    call = world.pick("map_values", "filter", "select_key", "peek", "process_values")
    modulus = world.pick(2, 3, 5)
    ref = world.step("failing", found, call=call, modulus=modulus, rest=world.pick(0, 1))
    rekeyed = found.rekeyed or call == "select_key"
    world.add(replace(found, ref=ref, steady=False, rekeyed=rekeyed))
    return True


def _send_to_failing(world: World, part: Part) -> bool:
    found = _agreeing(world, part)
    if found is None:
        return False
    chosen = {"modulus": world.pick(2, 3, 5), "rest": world.pick(0, 1)}
    topic = f"out-{len(world.steps)}"
    world.step("send_to_failing", found, topic=topic, key=found.key, value=found.value, **chosen)
    return True


def _send_to_refused(world: World, part: Part) -> bool:
    found = _agreeing(world, part)
    if found is None:
        return False
    topic = f"{SMALL}{len(world.steps)}"
    world.step("send_to_refused", found, topic=topic, key=found.key, value=found.value)
    return True


# == building


def _built_failing(building: Building, arguments: dict[str, Any], stream: Any) -> Any:
    check = functions.failing(arguments)

    def checked(value: Any, result: Any) -> Any:
        check(value)
        return result

    match arguments["call"]:
        case "map_values":
            return stream.map_values(lambda value: checked(value, value))
        case "filter":
            return stream.filter(lambda key, value: checked(value, True))
        case "select_key":
            return stream.select_key(lambda key, value: checked(value, key))
        case "peek":
            return stream.peek(lambda key, value: check(value))
    return stream.process_values(lambda: _Checking(check))


class _Checking(Processor):
    """Forwards what does not fail."""

    def __init__(self, check: Callable[[Any], None]) -> None:
        self._check = check

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        self._check(record.value)
        self._context.forward(record.key, record.value)


def _built_send_to_failing(building: Building, arguments: dict[str, Any], stream: Any) -> None:
    check, serde = functions.failing(arguments), serde_of(arguments["value"])

    def serialize(value: Any) -> bytes:
        check(value)
        return serde.serialize(value)

    failing = Serde(id=f"failing {serde.id}", serialize=serialize, deserialize=serde.deserialize)
    stream.send_to(arguments["topic"], **{**serdes_of(arguments), "value_serde": failing})


OPERATORS: dict[str, Operator] = {
    "failing": Operator(takes=STREAM, extend=_failing, build=_built_failing),
    "send_to_failing": Operator(takes=STREAM, extend=_send_to_failing, build=_built_send_to_failing),
    "send_to_refused": Operator(
        takes=STREAM,
        extend=_send_to_refused,
        build=lambda building, arguments, stream: stream.send_to(arguments["topic"], **serdes_of(arguments)),
    ),
}
