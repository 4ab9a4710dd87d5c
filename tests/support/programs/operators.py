"""The operators of programs: how each is drawn, and how it is built with ``KStreamBuilder``.

A new operator is one entry here, in ``stream_operators.py``, ``context_operators.py``,
``lookup_operators.py`` or ``table_operators.py``, and one in ``KafkaStreamsPeer.java``, ``Programs.made``. An
entry says what it takes, extends a part of that kind by a step, and builds the step. What of its results is
compared, if not all, goes into ``facts.py``. A new kind of table that is read from a topic is such an entry,
too, beside ``table``; its name stands in ``program.TABLE_SOURCES`` and its topics in ``drawing.INPUTS`` and
``TABLES``.

Rules of emission, each with its reason:

- Without caches, Kafka Streams emits the deletion of a key that is not in the table, and a session twice
  that takes a record without changing its bounds; with caches it emits once per key and commit, as this
  engine always does. So folds that delete, tables with deletions, and sessions are drawn with caches alone.
- Of what a cached table emits at one commit point, Kafka Streams emits first what changed longest ago, and
  this engine what began to change first. So where records are folded by windows, one comes at a time; a
  record that was dated anew comes by a topic of its own here alone, so there is one commit point for several
  in Kafka Streams.
- A fold without a cache that tells what it takes back begins, in Kafka Streams, with the initial aggregate
  (``first-old-value``), so such a table is not grouped anew.
- With a cache, Kafka Streams dates a deletion by the record that was last; without, by the latest record of
  the key, as this engine always does. So folds delete where records come in the order of their times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_kstreams.streams import (
    HoppingWindow,
    Serde,
    SessionWindow,
    SlidingWindow,
    Topology,
    TumblingWindow,
)
from tests.support.programs import (
    context_operators,
    functions,
    lookup_operators,
    stream_operators,
    table_operators,
)
from tests.support.programs.building import STREAM, TEXT, Building, Naming, Operator, mapped, serde_of
from tests.support.programs.drawing import (
    ENDLESS_MS,
    INPUTS,
    LATEST_MS,
    LONG_MS,
    TABLES,
    Part,
    World,
    goes_by_its_times,
    steady_together,
)
from tests.support.programs.program import FEATURES, Program, Step


def build(program: Program) -> tuple[Topology, list[tuple[int, str, str]]]:
    """Build a program, and return its topology with what its actions will have seen."""
    building = Building(cached=program.cached)
    made: list[Any] = []
    for number, step in enumerate(program.steps):
        building.number = number
        taken = [made[parent][branch] for parent, branch in step.of]
        result = _built(building, step, taken)
        made.append(result if isinstance(result, list) else [result])
    return building.builder.build(), building.seen


def _built(building: Building, step: Step, taken: list[Any]) -> Any:
    name = step.arguments.get("name")
    if name is not None and taken:
        taken = [Naming(taken[0], name), *taken[1:]]
    elif name is not None:
        building = replace(building, builder=Naming(building.builder, name))
    return OPERATORS[step.operator].build(building, step.arguments, *taken)


# == drawing and building, operator by operator


#: What makes a part of each kind but streams.
MAKERS = {
    "stream": ("stream",),
    "grouped": ("group_by_key", "group_by"),
    "windowed": ("tumbling_window", "hopping_window", "session_window", "session_window", "sliding_window"),
    "table": ("table", "table", "versioned_table", "count", "reduce", "aggregate", "to_table"),
    "windows": ("count", "reduce", "aggregate"),
    "grouped_table": ("table_group_by",),
}

#: What completes a part that nothing takes, in the order of the kinds.
COMPLETING = {
    "grouped": ("count", "reduce", "aggregate"),
    "windowed": ("count", "reduce", "aggregate"),
    "grouped_table": ("table_count", "table_reduce", "table_aggregate"),
    "windows": ("to_stream",),
    "table": ("to_stream",),
}


def _stream(world: World, _: None) -> bool:
    topic = world.pick("a", "b", "n")
    world.origins[topic] = frozenset({topic})
    ref = world.step("stream", topic=topic, key="text", value=INPUTS[topic])
    world.add(Part(ref=ref, value=INPUTS[topic], topics=frozenset({topic}), null_keys=True, null_values=True))
    return True


def _table(world: World, _: None) -> bool:
    unread = [topic for topic in TABLES if topic not in world.origins]
    if not unread:
        return False
    topic = world.pick(*unread)
    world.origins[topic] = frozenset({topic})
    ref = world.step("table", topic=topic, key="text", value=INPUTS[topic])
    world.add(
        Part(
            ref=ref,
            kind="table",
            value=INPUTS[topic],
            topics=frozenset({topic}),
            null_values=True,
            steady=False,
        )
    )
    return True


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
    world.add(mapped(part, None, value, ref=world.step("map_values", part, value=value)))
    return True


def _flat_map(world: World, part: Part) -> bool:
    key, value, copies = (world.arguments_of(what) for what in ("key", "value", "copies"))
    ref = world.step("flat_map", part, key=key, value=value, copies=copies)
    steady = part.steady and copies["least"] > 0
    world.add(mapped(part, key, value, ref=ref, steady=steady, single=False))
    return True


def _flat_map_values(world: World, part: Part) -> bool:
    value, copies = world.arguments_of("value"), world.arguments_of("copies")
    ref = world.step("flat_map_values", part, value=value, copies=copies)
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
    read = {
        world.steps[part.ref[0]].arguments["topic"]
        if world.steps[part.ref[0]].operator == "stream"
        else part.ref
        for part in (one, other)
    }
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


def _repartition(world: World, part: Part) -> bool:
    if part.key != "text":
        return False
    partitions = world.pick(1, 1, 1, 2, 3)
    ref = world.step("repartition", part, key="text", value=part.value, partitions=partitions)
    topics = world.topic(f"repartition-{ref[0]}", part)
    scattered = part.scattered or partitions > 1
    world.add(
        replace(
            part,
            ref=ref,
            topics=topics,
            # They pass only ahead of a left or outer join.
            null_keys=part.null_keys,
            rekeyed=False,
            redated=False,
            single=True,
            # Of several partitions, time reaches each by its own records, and closers come to one.
            steady=not scattered,
            closed=part.closed and not scattered,
            scattered=scattered,
        )
    )
    return True


def _through(world: World, part: Part) -> bool:
    if part.key != "text":
        return False
    topic = f"through-{len(world.steps)}"
    ref = world.step("through", part, topic=topic, key="text", value=part.value)
    topics = world.topic(topic, part)
    world.add(
        replace(
            part,
            ref=ref,
            topics=topics,
            rekeyed=False,
            redated=False,
            single=True,
            steady=not part.scattered,
        )
    )
    return True


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
        # A record without value: ``window-null-value``. Sessions: see above.
        if part.null_values or (operator == "session_window" and not world.cached):
            return False
        # Where a cached table emits several windows at once: see above.
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
        arguments: dict[str, Any] = {}
        if operator != "count":
            gives = part.value if operator == "reduce" else world.pick("text", "number")
            # Vain deletions: see above.
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
    if not part.closed or part.timed or part.derived or deleting:
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
        # ``join-late``: no record is later than the grace.
        short = steady and (in_order or (punctual and not outer))
        grace_ms = world.grace_ms(short, least=LATEST_MS if world.late else 0)
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


def _send_to(operator: str) -> Callable[[World, Part], bool]:
    def extend(world: World, part: Part) -> bool:
        topic = f"out-{len(world.steps)}"
        world.step(operator, part, topic=topic, key=part.key, value=part.value)
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
        )

    return built


def _built_aggregate(building: Building, arguments: dict[str, Any], grouped: Any) -> Any:
    folds = [functions.initializer(arguments), functions.aggregator(arguments)]
    if arguments["sessions"]:
        folds.append(functions.merger(arguments))
    return grouped.aggregate(*folds, store=building.spec(arguments["gives"]))


def _built_flat_map(building: Building, arguments: dict[str, Any], stream: Any) -> Any:
    key_of = functions.key_maker(arguments["key"])
    count_of = functions.copy_count(arguments["copies"])
    makers = [functions.value_maker(arguments["value"], number) for number in range(4)]
    return stream.flat_map(
        lambda key, value: [(key_of(key, value), make(value)) for make in makers[: count_of(value)]]
    )


def _built_flat_map_values(building: Building, arguments: dict[str, Any], stream: Any) -> Any:
    count_of = functions.copy_count(arguments["copies"])
    makers = [functions.value_maker(arguments["value"], number) for number in range(4)]
    return stream.flat_map_values(lambda value: [make(value) for make in makers[: count_of(value)]])


def _built_map(building: Building, arguments: dict[str, Any], stream: Any) -> Any:
    key_of, value_of = functions.key_maker(arguments["key"]), functions.value_maker(arguments["value"])
    return stream.map(lambda key, value: (key_of(key, value), value_of(value)))


def _serdes(arguments: dict[str, Any]) -> dict[str, Serde]:
    return {"key_serde": serde_of(arguments["key"]), "value_serde": serde_of(arguments["value"])}


FOLDED = ("grouped", "windowed")

OPERATORS: dict[str, Operator] = {
    "stream": Operator(
        takes=(),
        extend=_stream,
        build=lambda building, arguments: building.builder.stream(arguments["topic"], **_serdes(arguments)),
        weight=1,
    ),
    "table": Operator(
        takes=(),
        extend=_table,
        build=lambda building, arguments: building.builder.table(
            arguments["topic"], store=building.spec(arguments["value"])
        ),
        weight=1,
    ),
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
        build=lambda building, arguments, stream: stream.map_values(
            functions.value_maker(arguments["value"])
        ),
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
    "repartition": Operator(
        takes=STREAM,
        extend=_repartition,
        build=lambda building, arguments, stream: stream.repartition(
            arguments.get("partitions", 1), name=f"r{building.number}", **_serdes(arguments)
        ),
        weight=3,
    ),
    "through": Operator(
        takes=STREAM,
        extend=_through,
        build=lambda building, arguments, stream: stream.through(arguments["topic"], **_serdes(arguments)),
    ),
    "group_by_key": Operator(
        takes=STREAM,
        extend=_group_by_key,
        build=lambda building, arguments, stream: stream.group_by_key(**_serdes(arguments)),
    ),
    "group_by": Operator(
        takes=STREAM,
        extend=_group_by,
        build=lambda building, arguments, stream: stream.group_by(
            functions.key_maker(arguments["by"]), **_serdes(arguments)
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
    "stream_join": Operator(
        takes=STREAM, extend=_stream_join("stream_join"), build=_built_join("join"), weight=4
    ),
    "stream_left_join": Operator(
        takes=STREAM, extend=_stream_join("stream_left_join"), build=_built_join("left_join"), weight=6
    ),
    "stream_outer_join": Operator(
        takes=STREAM, extend=_stream_join("stream_outer_join"), build=_built_join("outer_join"), weight=6
    ),
    "send_to": Operator(
        takes=STREAM,
        extend=_send_to("send_to"),
        build=lambda building, arguments, stream: stream.send_to(arguments["topic"], **_serdes(arguments)),
        weight=1,
    ),
    "send_to_by": Operator(
        takes=STREAM,
        extend=_send_to("send_to_by"),
        build=lambda building, arguments, stream: stream.send_to(
            arguments["topic"], partitioner=functions.partition, **_serdes(arguments)
        ),
        weight=1,
    ),
    **stream_operators.OPERATORS,
    **context_operators.OPERATORS,
    **lookup_operators.OPERATORS,
    **table_operators.OPERATORS,
}

#: What programs begin with.
BEGINNINGS = ("stream", "stream", "stream", "table", "table")
WEIGHTS = {name: operator.weight for name, operator in OPERATORS.items()}

#: What must occur at depth 3 or more: all that take something, tables, as deep as their joins, and features.
DEEP = (*(name for name in OPERATORS if name != "stream"), *FEATURES)

#: Those that others make needful, so that they are deep often enough without being sought.
_COMMON = {"table", "filter", "group_by_key", "group_by", "count", "reduce", "aggregate", "to_stream"}
_COMMON |= {"send_to", "send_to_by", "table_group_by", "global_table", "versioned_table"}
#: Those that programs are drawn for, one by one.
SOUGHT = tuple(name for name in DEEP if name not in {*_COMMON, *FEATURES})
