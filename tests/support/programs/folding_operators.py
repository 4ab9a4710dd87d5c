"""Groups of streams, their windows and what is folded from them: how each is drawn and built, as in
``operators.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_kstreams.streams import HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow
from tests.support.programs import functions
from tests.support.programs.building import STREAM, Building, Operator, mapped, may_be_folded, serdes_of
from tests.support.programs.drawing import ENDLESS_MS, LATEST_MS, Part, World, goes_by_its_times

FOLDED = ("grouped", "windowed")

# == drawing


def _group_by_key(world: World, part: Part) -> bool:
    if part.key != "text" or part.unordered:
        return False
    ref = world.step("group_by_key", part, key="text", value=part.value)
    world.add(replace(part, ref=ref, kind="grouped"))
    return True


def _group_by(world: World, part: Part) -> bool:
    if part.unordered or part.scattered:
        return False
    key = world.arguments_of("key")
    ref = world.step("group_by", part, by=key, key="text", value=part.value)
    world.add(mapped(part, key, None, ref=ref, kind="grouped"))
    return True


def _windowed(operator: str) -> Callable[[World, Part], bool]:
    def extend(world: World, part: Part) -> bool:
        # A record without value: ``window-null-value``. Sessions: see ``operators.py``.
        if part.null_values or (operator == "session_window" and not world.cached):
            return False
        # Where a cached table emits several windows at once: see ``operators.py``.
        if world.cached and not (part.single or part.rekeyed):
            return False
        steady = goes_by_its_times(part)
        # ``sliding-late``, and a session that Kafka Streams' store has forgotten, and its cache has not:
        # records are less late than the grace.
        bounded = operator in ("sliding_window", "session_window")
        least = LATEST_MS + 1 if bounded and world.late else 0
        if bounded and not part.punctual:
            steady = False
        grace_ms = ENDLESS_MS - 1 if part.timed and not steady else world.grace_ms(steady, least=least)
        closed = part.closed and grace_ms < ENDLESS_MS - 1
        size_ms = world.pick(1, 6, 10, 40)
        match operator:
            case "tumbling_window":
                chosen, window = {"size": size_ms}, f"windows:{size_ms}"
            case "hopping_window":
                advance_ms = max(1, size_ms // world.pick(1, 2, 3))
                chosen, window = {"size": size_ms, "advance": advance_ms}, f"windows:{size_ms}"
            case "sliding_window":
                # Both are odd: see ``draw_records``.
                grace_ms += 1 - grace_ms % 2
                chosen, window = {"size": 2 * (size_ms // 2) + 1}, f"windows:{2 * (size_ms // 2) + 1}"
            case _:
                # Their sum is odd: see ``draw_records``.
                gap_ms = 2 * world.pick(1, 4, 12) + (1 - grace_ms % 2)
                chosen, window = {"gap": gap_ms}, "sessions"
        ref = world.step(operator, part, **chosen, grace=grace_ms)
        world.add(replace(part, ref=ref, kind="windowed", window=window, closed=closed))
        return True

    return extend


def _folded(operator: str) -> Callable[[World, Part], bool]:
    def extend(world: World, part: Part) -> bool:
        if not may_be_folded(world, part):
            return False
        arguments: dict[str, Any] = {}
        if operator != "count":
            gives = part.value if operator == "reduce" else world.pick("text", "number")
            # Vain deletions: see ``operators.py``.
            deleting = world.cached and not world.late and part.punctual
            arguments = {"gives": gives, "deletes": world.pick(0, 7, 7) if deleting else 0}
        windowed = part.kind == "windowed"
        sessions = part.window == "sessions"
        ref = world.step(operator, part, **arguments, sessions=sessions)
        topic = f"s{ref[0]}-repartition"
        arrived = world.arrivals(part, topic, without_nulls=True, by_time=windowed)
        world.add(
            replace(
                arrived,
                ref=ref,
                kind="windows" if windowed else "table",
                value=arguments.get("gives", "number"),
                null_keys=False,
                null_values=sessions or arguments.get("deletes", 0) > 0,
                steady=False,
                punctual=part.punctual and not sessions,
                derived=False,
                typed=True,
            )
        )
        return True

    return extend


def _suppress(world: World, part: Part) -> bool:
    arguments = world.steps[part.ref[0]].arguments
    # ``suppress-by-any-record``: one that leaves no window behind changes no table.
    deleting = any(fold.get("deletes") for fold in (arguments, *arguments.get("folds", ())))
    # Asked for twice it is one node, which cannot have a name of its own.
    again = any(step.operator == "suppress" and part.ref in step.of for step in world.steps)
    if not part.closed or part.timed or part.derived or deleting or again:
        return False
    world.add(
        replace(
            part,
            ref=world.step("suppress", part),
            timed=True,
            null_values=False,
            punctual=False,
            # ``session-order``
            unordered=part.window == "sessions",
        )
    )
    return True


def _to_stream(world: World, part: Part) -> bool:
    windowed = part.kind == "windows"
    stream = replace(
        part,
        ref=world.step("to_stream", part),
        kind="stream",
        key=part.window if windowed else "text",
        window="",
        rekeyed=windowed,
        # Windows of several partitions: of one key, they come in order.
        unordered=part.unordered or (windowed and part.scattered),
    )
    if stream.ends and not part.final and world.chance(0.7):
        world.add(stream)
        ref = world.step("filter", stream, by="present", modulus=1, rest=0, closer=True)
        stream = replace(stream, ref=ref, vain=False, null_values=False)
    world.add(stream)
    return True


# == building


def _built_aggregate(building: Building, arguments: dict[str, Any], grouped: Any) -> Any:
    folds = [functions.initializer(arguments), functions.aggregator(arguments)]
    if arguments["sessions"]:
        folds.append(functions.merger(arguments))
    return grouped.aggregate(*folds, store=building.spec(arguments["gives"]))


OPERATORS: dict[str, Operator] = {
    "group_by_key": Operator(
        takes=STREAM,
        extend=_group_by_key,
        build=lambda building, arguments, stream: stream.group_by_key(**serdes_of(arguments)),
    ),
    "group_by": Operator(
        takes=STREAM,
        extend=_group_by,
        build=lambda building, arguments, stream: stream.group_by(
            functions.key_maker(arguments["by"]), **serdes_of(arguments)
        ),
    ),
    "tumbling_window": Operator(
        takes=("grouped",),
        extend=_windowed("tumbling_window"),
        build=lambda building, arguments, grouped: grouped.windowed_by(
            TumblingWindow(size_ms=arguments["size"], grace_ms=arguments["grace"])
        ),
    ),
    "hopping_window": Operator(
        takes=("grouped",),
        extend=_windowed("hopping_window"),
        build=lambda building, arguments, grouped: grouped.windowed_by(
            HoppingWindow(
                size_ms=arguments["size"], advance_ms=arguments["advance"], grace_ms=arguments["grace"]
            )
        ),
    ),
    "session_window": Operator(
        takes=("grouped",),
        extend=_windowed("session_window"),
        build=lambda building, arguments, grouped: grouped.windowed_by(
            SessionWindow(gap_ms=arguments["gap"], grace_ms=arguments["grace"])
        ),
        weight=7,
    ),
    "sliding_window": Operator(
        takes=("grouped",),
        extend=_windowed("sliding_window"),
        build=lambda building, arguments, grouped: grouped.windowed_by(
            SlidingWindow(size_ms=arguments["size"], grace_ms=arguments["grace"])
        ),
    ),
    "count": Operator(
        takes=FOLDED,
        extend=_folded("count"),
        build=lambda building, arguments, grouped: grouped.count(store=building.spec("number")),
    ),
    "reduce": Operator(
        takes=FOLDED,
        extend=_folded("reduce"),
        build=lambda building, arguments, grouped: grouped.reduce(
            functions.reducer(arguments), store=building.spec(arguments["gives"])
        ),
    ),
    "aggregate": Operator(takes=FOLDED, extend=_folded("aggregate"), build=_built_aggregate),
    "suppress": Operator(
        takes=("windows",),
        extend=_suppress,
        build=lambda building, arguments, table: table.suppress(),
        weight=9,
    ),
    "to_stream": Operator(
        takes=("table", "windows"),
        extend=_to_stream,
        build=lambda building, arguments, table: table.to_stream(),
        weight=4,
    ),
}
