"""What reads and writes topics: how each is drawn and built, as in ``operators.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.support.programs import functions
from tests.support.programs.building import STREAM, Operator, serdes_of, timestamps_in
from tests.support.programs.drawing import INPUTS, PATTERNS, Part, World
from tests.support.programs.program import TABLES

# == drawing


def _stream(world: World, _: None) -> bool:
    topic = world.pick("a", "b", "n")
    world.origins[topic] = frozenset({topic})
    chosen = world.timestamps_of(topic, "fail", "skip", "partition_time")
    ref = world.step("stream", topic=topic, key="text", value=INPUTS[topic], **chosen)
    # The latest time of a topic may lie far behind that of others.
    punctual = chosen.get("timestamps", {}).get("invalid") != "partition_time"
    part = Part(ref=ref, value=INPUTS[topic], topics=frozenset({topic}), null_keys=True, null_values=True)
    world.add(replace(part, punctual=punctual))
    return True


def _stream_pattern(world: World, _: None) -> bool:
    pattern = world.pick(*PATTERNS)
    topics = PATTERNS[pattern]
    value = INPUTS[topics[0]]
    world.origins[pattern] = frozenset({pattern})
    # Java's test driver has one partition, and one time, for all topics of a pattern.
    chosen = world.timestamps_of(pattern, "fail", "skip")
    ref = world.step("stream_pattern", pattern=pattern, topics=topics, key="text", value=value, **chosen)
    world.add(Part(ref=ref, value=value, topics=frozenset({pattern}), null_keys=True, null_values=True))
    return True


def _table(world: World, _: None) -> bool:
    unread = [topic for topic in TABLES if topic not in world.origins]
    if not unread:
        return False
    topic = world.pick(*unread)
    world.origins[topic] = frozenset({topic})
    chosen = world.timestamps_of(topic, "fail", "skip")
    ref = world.step("table", topic=topic, key="text", value=INPUTS[topic], **chosen)
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


def _repartition(world: World, part: Part) -> bool:
    if part.key != "text":
        return False
    partitions = world.pick(1, 1, 2, 3)
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


def _send_to(operator: str) -> Callable[[World, Part], bool]:
    def extend(world: World, part: Part) -> bool:
        topic = f"out-{len(world.steps)}"
        world.step(operator, part, topic=topic, key=part.key, value=part.value)
        return True

    return extend


# == building


OPERATORS: dict[str, Operator] = {
    "stream": Operator(
        takes=(),
        extend=_stream,
        build=lambda building, arguments: building.builder.stream(
            arguments["topic"], timestamps=timestamps_in(arguments), **serdes_of(arguments)
        ),
        weight=1,
    ),
    "stream_pattern": Operator(
        takes=(),
        extend=_stream_pattern,
        build=lambda building, arguments: building.builder.stream(
            pattern=arguments["pattern"], timestamps=timestamps_in(arguments), **serdes_of(arguments)
        ),
        weight=1,
    ),
    "table": Operator(
        takes=(),
        extend=_table,
        build=lambda building, arguments: building.builder.table(
            arguments["topic"],
            store=building.spec(arguments["value"]),
            timestamps=timestamps_in(arguments),
        ),
        weight=1,
    ),
    "through": Operator(
        takes=STREAM,
        extend=_through,
        build=lambda building, arguments, stream: stream.through(arguments["topic"], **serdes_of(arguments)),
    ),
    "repartition": Operator(
        takes=STREAM,
        extend=_repartition,
        build=lambda building, arguments, stream: stream.repartition(
            arguments.get("partitions", 1), name=f"r{building.number}", **serdes_of(arguments)
        ),
        weight=3,
    ),
    "send_to": Operator(
        takes=STREAM,
        extend=_send_to("send_to"),
        build=lambda building, arguments, stream: stream.send_to(arguments["topic"], **serdes_of(arguments)),
        weight=1,
    ),
    "send_to_by": Operator(
        takes=STREAM,
        extend=_send_to("send_to_by"),
        build=lambda building, arguments, stream: stream.send_to(
            arguments["topic"], partitioner=functions.partition, **serdes_of(arguments)
        ),
        weight=1,
    ),
}
