"""Operators of streams that are more than one function, and of several streams: how each is drawn and built,
as in ``operators.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_kstreams.streams import (
    HoppingWindow,
    Processor,
    ProcessorContext,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    TumblingWindow,
    serdes,
)
from tests.support.programs import functions
from tests.support.programs.building import STREAM, TEXT, Building, Operator, mapped
from tests.support.programs.drawing import LATEST_MS, LONG_MS, Part, World, goes_by_its_times

# == one stream


def _split(world: World, part: Part) -> bool:
    predicates = [
        {**world.arguments_of("predicate"), "closer": number == 0} for number in range(world.pick(1, 2))
    ]
    default = world.chance(0.7)
    step, _ = world.step("split", part, predicates=predicates, default=default)
    for number in range(len(predicates) + default):
        closed = part.closed and number == 0
        world.add(replace(part, ref=(step, number), steady=False, closed=closed))
    return True


def _built_split(building: Building, arguments: dict[str, Any], stream: Any) -> list[Any]:
    predicates = {
        f"b{number}": functions.predicate(each) for number, each in enumerate(arguments["predicates"])
    }
    branches = stream.split(default="rest" if arguments["default"] else None, **predicates)
    return [*branches.values()]


def _with_context(world: World, part: Part) -> bool:
    if not world.facts(part).headers:
        return False
    value = world.arguments_of("value")
    world.add(mapped(part, None, value, ref=world.step("with_context", part, value=value)))
    return True


def _set_headers(world: World, part: Part) -> bool:
    world.add(replace(part, ref=world.step("set_headers", part)))
    return True


def _set_timestamp(world: World, part: Part) -> bool:
    # Later, by an even number: see ``draw_records``.
    ref = world.step("set_timestamp", part, modulus=world.pick(2, 4), unit=world.pick(2, 6))
    world.add(replace(part, ref=ref, redated=True, punctual=False))
    return True


def _process_values(world: World, part: Part) -> bool:
    counts = world.chance(0.5) and not part.unordered and not (part.scattered and part.null_keys)
    value, copies = world.arguments_of("value"), world.arguments_of("copies")
    ref = world.step("process_values", part, value=value, copies=copies, counts=counts)
    steady = part.steady and copies["least"] > 0
    world.add(mapped(part, None, value, ref=ref, steady=steady, single=False))
    return True


def _built_process_values(building: Building, arguments: dict[str, Any], stream: Any) -> Any:
    name = f"c{building.number}"
    stores = []
    if arguments["counts"]:
        stores.append(StoreSpec(name=name, key_serde=TEXT, value_serde=serdes.int64(), cached=False))
    return stream.process_values(lambda: _Processed(arguments, name), *stores)


class _Processed(Processor):
    """Forwards copies of a value, and in them how many records its key had, if asked for.

    :param store: name of the store that holds how many.
    """

    def __init__(self, arguments: dict[str, Any], store: str) -> None:
        self._copies = functions.copy_count(arguments["copies"])
        self._makers = [functions.counted_value_maker(arguments["value"], number) for number in range(4)]
        self._store = store if arguments["counts"] else None

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        self._counts = context.state_store(self._store) if self._store else None

    def process(self, record: Any) -> None:
        count = 0
        if self._counts is not None:
            key = functions.shown(record.key)
            count = (self._counts.get(key) or 0) + 1
            self._counts.put(key, count)
        for make in self._makers[: self._copies(record.value)]:
            self._context.forward(record.key, make(record.value, count))


# == several streams


def _cogroup(world: World, part: Part) -> bool:
    number = len(world.steps)
    groups = [part]
    windowed = world.chance(0.6)

    def arrived(group: Part) -> Part:
        topic = f"s{number}-{group.ref[0]}-repartition"
        return world.arrivals(group, topic, without_nulls=True, by_time=windowed)

    def fits(other: Part) -> bool:
        # Kafka Streams gives all the topics that it repartitions by one name.
        rekeyed = sum(group.rekeyed for group in (*groups, other))
        known = {group.ref for group in groups}
        usable = other.key == "text" and not (windowed and other.null_values) and fits_windows(other)
        meets = all(world.may_meet(arrived(group), arrived(other)) for group in groups)
        apart = rekeyed <= 1 and not named_twice(other)
        return other.ref not in known and apart and usable and meets

    def named_twice(group: Part) -> bool:
        """Say whether Kafka Streams may refuse it: what folds a group beside its cogroup makes another node
        of the name that the group's topic has.
        """
        return group.rekeyed and "name" in world.steps[group.ref[0]].arguments

    def fits_windows(group: Part) -> bool:
        """Say whether records come one at a time, see ``operators.py``."""
        single = group.single or group.rekeyed
        apart = all(group is one or not arrived(one).topics & arrived(group).topics for one in groups)
        return not (windowed and world.cached) or (single and apart)

    if part.scattered or (windowed and part.null_values) or not fits_windows(part) or named_twice(part):
        return False
    for _ in range(world.pick(1, 1, 2)):
        if other := world.some("grouped", fits):
            groups.append(other)
    gives = world.pick("text", "number")
    in_order = not world.late and all(group.punctual for group in groups)
    deleting = world.cached and in_order
    folds = [{"gives": gives, "deletes": world.pick(0, 7) if deleting else 0} for _ in groups]
    window, closed = _window_of(world, groups, in_order) if windowed else (None, True)
    sessions = window is not None and window["kind"] == "session"
    ref = world.step("cogroup", *groups, folds=folds, gives=gives, window=window, sessions=sessions)
    all_arrived = [arrived(group) for group in groups]
    world.add(
        Part(
            ref=ref,
            kind="table" if window is None else "windows",
            value=gives,
            window="" if window is None else "sessions" if sessions else f"windows:{window['size']}",
            topics=frozenset(topic for group in all_arrived for topic in group.topics),
            null_values=sessions or any(fold["deletes"] for fold in folds),
            steady=False,
            punctual=all(group.punctual for group in groups) and not sessions,
            timed=any(group.timed for group in groups),
            closed=closed and all(group.closed for group in groups),
            redated=any(group.redated for group in all_arrived),
        )
    )
    return True


def _window_of(world: World, groups: list[Part], in_order: bool) -> tuple[dict[str, Any], bool]:
    """Draw windows for several streams, and say whether closers close them.

    ``cogroup-stream-time``: no record is later than the grace.
    """
    kinds = ["tumbling", "hopping", "sliding"] + ["session"] * world.cached
    kind = world.pick(*kinds)
    short = all(goes_by_its_times(group) and group.punctual for group in groups)
    timed = any(group.timed for group in groups)
    grace_ms = world.grace_ms(short and not timed, least=0 if in_order else LATEST_MS + 1)
    size_ms = world.pick(1, 6, 10, 40)
    closed = not timed
    if not closed:
        grace_ms = LONG_MS * 100_000
    match kind:
        case "hopping":
            window = {"size": size_ms, "advance": max(1, size_ms // world.pick(1, 2, 3))}
        case "sliding":
            grace_ms += 1 - grace_ms % 2
            window = {"size": 2 * (size_ms // 2) + 1}
        case "session":
            window = {"gap": 2 * world.pick(1, 4, 12) + (1 - grace_ms % 2)}
        case _:
            window = {"size": size_ms}
    return {"kind": kind, "grace": grace_ms, **window}, closed


def _built_cogroup(building: Building, arguments: dict[str, Any], first: Any, *others: Any) -> Any:
    folds = [functions.aggregator(fold) for fold in arguments["folds"]]
    grouped = first.cogroup(folds[0])
    for other, fold in zip(others, folds[1:], strict=True):
        grouped = grouped.cogroup(other, fold)
    makers: list[Callable[..., Any]] = [functions.initializer(arguments)]
    if arguments["window"] is not None:
        grouped = grouped.windowed_by(_built_window(arguments["window"]))
        if arguments["sessions"]:
            makers.append(functions.merger(arguments))
    return grouped.aggregate(*makers, store=building.spec(arguments["gives"]))


def _built_window(window: dict[str, Any]) -> Any:
    grace_ms = window["grace"]
    match window["kind"]:
        case "tumbling":
            return TumblingWindow(size_ms=window["size"], grace_ms=grace_ms)
        case "hopping":
            return HoppingWindow(size_ms=window["size"], advance_ms=window["advance"], grace_ms=grace_ms)
        case "sliding":
            return SlidingWindow(size_ms=window["size"], grace_ms=grace_ms)
    return SessionWindow(gap_ms=window["gap"], grace_ms=grace_ms)


OPERATORS: dict[str, Operator] = {
    "split": Operator(takes=STREAM, extend=_split, build=_built_split),
    "with_context": Operator(
        takes=STREAM,
        extend=_with_context,
        build=lambda building, arguments, stream: stream.map_values(
            functions.context_value_maker(arguments["value"])
        ),
        weight=4,
    ),
    "set_headers": Operator(
        takes=STREAM,
        extend=_set_headers,
        build=lambda building, arguments, stream: stream.set_headers(functions.more_headers),
    ),
    "set_timestamp": Operator(
        takes=STREAM,
        extend=_set_timestamp,
        build=lambda building, arguments, stream: stream.set_timestamp(functions.later(arguments)),
    ),
    "process_values": Operator(takes=STREAM, extend=_process_values, build=_built_process_values),
    "cogroup": Operator(takes=("grouped",), extend=_cogroup, build=_built_cogroup, weight=3),
}
