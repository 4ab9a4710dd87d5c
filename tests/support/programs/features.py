"""What is counted of programs at depth 3 or more: operators, and how they are used.

An operator is as deep as the longest way to it. What belongs to a source, as how it reads its topic, is as
deep as the longest way from there; so are the sources of streams.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.programs.program import STREAM_SOURCES, UNDECODABLE, Program, Step

#: The least depth that counts.
DEEP = 3


def _handled(operators: tuple[str, ...], handler: str) -> Callable[[Program, Step], bool]:
    return lambda program, step: step.operator in operators and program.handler == handler


def _undecodable(handler: str) -> Callable[[Program, Step], bool]:
    def has(program: Program, step: Step) -> bool:
        read = step.reads()
        unread = any(topic in read and value == UNDECODABLE for topic, _, value, _ in program.records)
        return unread and program.handler == handler

    return has


def _extracted(invalid: str) -> Callable[[Program, Step], bool]:
    return lambda program, step: step.arguments.get("timestamps", {}).get("invalid") == invalid


_PRODUCING = ("send_to_failing", "send_to_refused")
#: What fails for some records, and needs a handler.
FAILING = ("failing", *_PRODUCING)

#: Operators whose mapper or joiner of values may declare the key too.
_OF_VALUES = {
    "mapper": ("map_values", "flat_map_values", "table_map_values"),
    "joiner": (
        *("stream_join", "stream_left_join", "stream_outer_join", "table_join", "table_left_join"),
        *("versioned_join", "versioned_left_join", "global_join", "global_left_join"),
    ),
}


def _keyed(*operators: str) -> Callable[[Program, Step], bool]:
    return lambda program, step: step.operator in operators and step.arguments.get("keyed", False)


#: What says whether a step has what is counted.
OF_STEPS: dict[str, Callable[[Program, Step], bool]] = {
    "processing handler: skip": _handled(("failing",), "skip"),
    "processing handler: dead-letter": _handled(("failing",), "dead-letter"),
    "production handler: skip": _handled(_PRODUCING, "skip"),
    "production handler: dead-letter": _handled(_PRODUCING, "dead-letter"),
    **{f"{name} with key": _keyed(*operators) for name, operators in _OF_VALUES.items()},
    "name=": lambda program, step: "name" in step.arguments,
    "repartition(n)": lambda program, step: step.arguments.get("partitions", 1) > 1,
    "versions kept by a table of a table": lambda program, step: (
        "history" in step.arguments and "kept" in step.arguments
    ),
}
#: The same of sources.
OF_SOURCES: dict[str, Callable[[Program, Step], bool]] = {
    "deserialization handler: skip": _undecodable("skip"),
    "deserialization handler: dead-letter": _undecodable("dead-letter"),
    "timestamps of a stream": lambda program, step: (
        step.operator in STREAM_SOURCES and "timestamps" in step.arguments
    ),
    "timestamps of a table": lambda program, step: (
        step.operator not in STREAM_SOURCES and "timestamps" in step.arguments
    ),
    "timestamps: invalid=skip": _extracted("skip"),
    "timestamps: invalid=partition_time": _extracted("partition_time"),
}

FEATURES = (*OF_STEPS, *OF_SOURCES)


def deep_in(program: Program) -> set[str]:
    """Return what a program has at depth 3 or more."""
    depths, heights = program.depths(), program.heights()
    found: set[str] = set()
    for number, step in enumerate(program.steps):
        if depths[number] >= DEEP:
            found.add(step.operator)
            found |= {feature for feature, has in OF_STEPS.items() if has(program, step)}
        if step.reads() and heights[number] >= DEEP:
            found |= {feature for feature, has in OF_SOURCES.items() if has(program, step)}
            if step.operator in STREAM_SOURCES:
                found.add(step.operator)
    return found
