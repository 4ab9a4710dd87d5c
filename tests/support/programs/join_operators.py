"""Joins of two streams: how each is drawn and built, as in ``operators.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams import SlidingWindow
from tests.support.programs import functions
from tests.support.programs.building import STREAM, TEXT, Building, Operator, serde_of
from tests.support.programs.drawing import LATEST_MS, LONG_MS, Part, World, steady_together

# == drawing


def _stream_join(operator: str) -> Callable[[World, Part], bool]:
    outer = operator != "stream_join"

    def extend(world: World, part: Part) -> bool:
        def usable(side: Part) -> bool:
            inner = side.key == "text" and not side.timed and not side.unordered
            return inner and (not outer or side.closed)

        if not usable(part):
            return False
        number = len(world.steps)
        left = world.arrivals(part, f"join-{number}-left", by_time=True)
        other = world.some(
            "stream",
            lambda other: (
                usable(other)
                and world.may_meet(left, world.arrivals(other, f"join-{number}-right", by_time=True))
            ),
        )
        if other is None:
            return False
        right = world.arrivals(other, f"join-{number}-right", by_time=True)
        both = (left, right)
        steady, punctual = steady_together(both), all(side.punctual for side in both)
        in_order = punctual and not world.late
        sizes = [world.pick(2, 4, 10, 40) if in_order or not outer else LONG_MS for _ in both]
        # ``join-late``, ``join-equal-times``: records are less late than size and grace together, and mostly
        # later than the grace.
        short = steady and (in_order or (punctual and not outer))
        grace_ms = world.grace_ms(short, least=max(0, LATEST_MS + 1 - min(sizes)) if world.late else 0)
        gives = world.pick("text", "text", "number")
        ref = world.step(
            operator,
            part,
            other,
            left=sizes[0],
            right=sizes[1],
            grace=grace_ms,
            gives=gives,
            value=part.value,
            other=other.value,
            **world.key_beside(),
        )
        world.add(
            Part(
                ref=ref,
                value=gives,
                topics=left.topics | right.topics,
                null_keys=outer and any(side.null_keys for side in both),
                steady=False,
                punctual=punctual and not outer,
                single=False,
                timed=outer,
                closed=all(side.closed for side in both),
                unordered=outer,
            )
        )
        return True

    return extend


# == building


def _join_windows(arguments: dict[str, Any], left: Any, right: Any) -> tuple[Any, Any]:
    return tuple(
        stream.with_window(SlidingWindow(size_ms=arguments[side], grace_ms=arguments["grace"]))
        for stream, side in ((left, "left"), (right, "right"))
    )


def _built_join(call: str) -> Callable[..., Any]:
    def built(building: Building, arguments: dict[str, Any], left: Any, right: Any) -> Any:
        one, other = _join_windows(arguments, left, right)
        return getattr(one, call)(
            other,
            functions.joiner(arguments),
            key_serde=TEXT,
            value_serde=serde_of(arguments["value"]),
            other_value_serde=serde_of(arguments["other"]),
            **building.join_name(arguments),
        )

    return built


OPERATORS: dict[str, Operator] = {
    "stream_join": Operator(
        takes=STREAM, extend=_stream_join("stream_join"), build=_built_join("join"), weight=4
    ),
    "stream_left_join": Operator(
        takes=STREAM, extend=_stream_join("stream_left_join"), build=_built_join("left_join"), weight=6
    ),
    "stream_outer_join": Operator(
        takes=STREAM, extend=_stream_join("stream_outer_join"), build=_built_join("outer_join"), weight=6
    ),
}
