"""The operators of programs: how each is drawn, and how it is built with ``KStreamBuilder``.

A new operator is one entry in one of the files ``*_operators.py``, and one in ``KafkaStreamsPeer.java``,
``Programs.made``. An entry says what it takes, extends a part of that kind by a step, and builds the step.
What of its results is compared, if not all, goes into ``facts.py``; what is counted beside the operator, into
``features.py``. A new kind of table that is read from a topic is such an entry, too, beside ``table``; its
name stands in ``program.TABLE_SOURCES`` and its topics in ``drawing.INPUTS`` and ``TABLES``.

Rules of emission, each with its reason:

- Without caches, Kafka Streams emits the deletion of a key that is not in the table, and a session twice
  that takes a record without changing its bounds; with caches it emits once per key and commit, as this
  engine always does. So folds that delete, tables with deletions, and sessions are drawn with caches alone.
- Of what a cached table emits at one commit point, Kafka Streams emits first what changed longest ago, and
  this engine what began to change first. So where records are folded by windows, one comes at a time; a
  record that was dated anew comes by a topic of its own here alone, so there is one commit point for several
  in Kafka Streams.
- A fold without a cache that tells what it takes back begins, in Kafka Streams, with the initial aggregate
  (``first-old-value``), and what ``suppress`` gives takes back what it never gave (``suppressed-old-value``),
  so such a table is not grouped anew.
- With a cache, Kafka Streams dates a deletion by the record that was last; without, by the latest record of
  the key, as this engine always does. So folds delete where records come in the order of their times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_kstreams.streams import Topology
from tests.support.programs import (
    context_operators,
    failing_operators,
    folding_operators,
    join_operators,
    lookup_operators,
    stateless_operators,
    stream_operators,
    table_operators,
    topic_operators,
)
from tests.support.programs.building import Building, Naming, Operator
from tests.support.programs.drawing import World
from tests.support.programs.features import FEATURES
from tests.support.programs.program import Program, Step


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
        naming: Any = Naming(building.builder, name)
        building = replace(building, builder=naming)
    return OPERATORS[step.operator].build(building, step.arguments, *taken)


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

OPERATORS: dict[str, Operator] = {
    **topic_operators.OPERATORS,
    **stateless_operators.OPERATORS,
    **folding_operators.OPERATORS,
    **join_operators.OPERATORS,
    **stream_operators.OPERATORS,
    **failing_operators.OPERATORS,
    **context_operators.OPERATORS,
    **lookup_operators.OPERATORS,
    **table_operators.OPERATORS,
}

#: What programs begin with.
BEGINNINGS = ("stream", "stream", "stream", "stream_pattern", "table", "table")
WEIGHTS = {name: operator.weight for name, operator in OPERATORS.items()}

#: What must occur at depth 3 or more: all that take something, tables, as deep as their joins, and features.
DEEP = (*(name for name in OPERATORS if name != "stream"), *FEATURES)

#: Those that others make needful, so that they are deep often enough without being sought.
_COMMON = {"table", "filter", "group_by_key", "group_by", "count", "reduce", "aggregate", "to_stream"}
_COMMON |= {"send_to", "send_to_by", "table_group_by", "global_table", "versioned_table"}


def sought(name: str, world: World) -> bool:
    """Draw an operator, or what else is sought, and say whether that could be."""
    return _SEEKING[name](world) if name in _SEEKING else OPERATORS[name].draw(world)


def _drawing(*operators: str) -> Callable[[World], bool]:
    return lambda world: OPERATORS[world.pick(*operators)].draw(world)


#: How programs get what is no operator and else is seldom.
_SEEKING: dict[str, Callable[[World], bool]] = {
    "processing handler: skip": _drawing("failing"),
    "processing handler: dead-letter": _drawing("failing"),
    "production handler: skip": _drawing("send_to_failing", "send_to_refused"),
    "production handler: dead-letter": _drawing("send_to_failing", "send_to_refused"),
    "versions kept by a table of a table": table_operators.derive_versions,
    "repartition(n)": _drawing("repartition"),
}
#: Those that are seldom in programs for others, so that they are sought twice.
_SELDOM = (
    *("versioned_to_table", "versions kept by a table of a table", "production handler: dead-letter"),
    *("processing handler: dead-letter", "versioned_left_join", "versioned_join", "foreign_key_join"),
)
#: What programs are drawn for, one by one.
SOUGHT = (*(name for name in OPERATORS if name not in {*_COMMON, "stream"}), *_SEEKING, *_SELDOM)
