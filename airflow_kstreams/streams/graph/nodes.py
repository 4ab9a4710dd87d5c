"""Defines the frozen topology model: three kinds of node, the protocol of operators, and the serdes of a
task's topics that nodes are bound to. Nothing runs here.

Rule: an operator is a frozen dataclass of three members. ``type`` names its kind; ``traits`` say everything
that the engine has to know while it builds, divides and checks a topology; ``bind`` makes the closure of one
task. The engine reads nothing else of an operator.

**One way to write an operator.** What a node does with a record needs what belongs to one task: its stores,
its counters, its timers. ``bind`` is given all of that, so every operator is written as ``bind``. The closure
that it returns is a function of Python, or it is made of lines of code by ``context.written`` (see
``services.py``). The caller of a closure sees no difference; the loop of a source holds the lines in place of
a call. Operators that run for nearly every record are made of lines, those with much control flow and those
that call a user's object are functions.

**A trait is checked.** A trait that is wrong would mislead the engine without a sign, so binding refuses an
operator that does what its traits do not say (``runtime/node_context.py``), and the counts of every commit
refuse a ``flow`` that does not hold (``runtime/flow_check.py``).

**Serdes know their topic** (see :meth:`Serde.bound`). Rule: the serdes of a source know the topic they read,
those of a sink the topic they write, and those of a store its changelog. Operators that hold a store's spec
get the bound one, so that the bytes of a key are the same whether the operator or the store writes them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.graph.store_specs import GlobalTableDef, StoreSpec
from airflow_kstreams.streams.hints.function_checks import CallSite
from airflow_kstreams.streams.plan import GivenAt
from airflow_kstreams.streams.serde.base import Serde, Side
from airflow_kstreams.streams.tables.table_rows import TableSpec
from airflow_kstreams.streams.timestamps import TimestampExtractor
from airflow_kstreams.streams.type_variables import K, V
from airflow_kstreams.streams.windows import SessionWindow, SlidingWindow, TimeWindow

#: The number of results of a record that arrives at a node.
#:
#: - ``kept``: the node passes it on once, to every child, or counts it as left out.
#: - ``parted``: the node passes it on once, to one of its children, or counts it as left out.
#: - ``free``: the node gives any number of records.
Flow = Literal["kept", "parted", "free"]

#: What a node that takes a :class:`~airflow_kstreams.streams.serde.internal_serdes.OldAndNew` of each key
#: does with old values.
#:
#: - ``needs``: it computes with them.
#: - ``passes on``: it needs them only if a node below it does.
#: - ``ignores``: it takes changes for another reason.
OldValues = Literal["needs", "passes on", "ignores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTraits:
    """The facts of an operator that the engine uses; the defaults fit a function of one record.

    :param flow: number of results of a record. Each commit compares the node's counts with it.
    :param passes_on: True if the operator does nothing but pass records on, and so binds to its children.
    :param calls: options of its calls, where calls run beside each other; it then binds through
        ``context.calls``. None for an operator that makes no such calls.
    :param on_threads: function that takes options of calls and returns the operator that calls the same
        function on threads, or None if this one cannot; used where a task has several threads. None for an
        operator that stays on the task's own thread.
    :param asks_for_commits: True if the node may ask for a commit behind a record.
    :param old_values: its use of old values, if it takes a table's changes. None for an operator that
        takes values.
    :param global_table: the global table that it reads; None if it reads none.
    :param held_back_ms: most milliseconds by which its results may be dated behind stream time, because it
        waits for stream time; 0 if it gives each record at once. At the end of a run, stream time of the
        nodes below stays behind by that. None for an operator that does not go by stream time: a result has
        the time of its record.
    :param free_times: True if a user's code goes by stream time here, and dates its results as it likes;
        windows below need a grace for that.
    :param redates: True if it gives records new timestamps, so that the end of a run's data interval bounds
        none of them.
    :param stores_of_user: names of the stores in which a user's code keeps entries, under keys of its own
        choice; ``all`` for all stores of the node.
    :param windows: name of a store with an entry for each window -> its windows. Entries of other windows
        would be misread.
    :param windows_go: True if a window may be deleted before it closes: a session that grows, or an aggregate
        that becomes None.
    :param closing: name of a store whose windows this node holds back -> the time at which the node gives
        them.
    :param table: the table that it writes rows to; None if it writes none.
    """

    flow: Flow = "free"
    passes_on: bool = False
    calls: CallOptions | None = None
    on_threads: Callable[[CallOptions], Operator | None] | None = None
    asks_for_commits: bool = False
    old_values: OldValues | None = None
    global_table: GlobalTableDef | None = None
    held_back_ms: int | None = None
    free_times: bool = False
    redates: bool = False
    stores_of_user: Collection[str] | Literal["all"] = ()
    windows: Mapping[str, TimeWindow | SessionWindow | SlidingWindow] = field(default_factory=dict)
    windows_go: bool = False
    closing: Mapping[str, GivenAt] = field(default_factory=dict)
    table: TableSpec | None = None


@runtime_checkable
class Operator(Protocol):
    """The work of a processor node on a record. Implementations are frozen dataclasses.

    The closure that ``bind`` makes must take ``(key, value, _node=<the node's name>)``: the default argument
    lets an error's traceback show at which node it happened, at no cost per record.
    """

    @property
    def type(self) -> str:
        """Stable name of the kind, e.g. ``filter``; part of the topology hash."""
        ...

    @property
    def traits(self) -> OperatorTraits:
        """The facts of the operator that the engine uses."""
        ...

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task.

        :param forward: function that hands a record to every child.
        :param context: the task's services for this node.
        :param children: child name -> function that hands a record to that child only.
        :raises TopologyError: the operator does what its traits do not say.
        """
        ...


#: ``partitioner(topic, key, value, partitions)`` gives the partition of a result, from 0 to
#: ``partitions - 1``; None leaves it to the key.
Partitioner = Callable[[str, K, V, int], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """Reads topics.

    :param name: name of the node, unique in the topology.
    :param topics: logical names of the topics (see :class:`Topology`).
    :param key_serde: serde of keys.
    :param value_serde: serde of values.
    :param timestamps: extractor of the records' timestamps; None for the records' own.
    :param pattern: regular expression of the topics' names; empty if they are named. A placeholder of the
        pattern is the only topic until the matching topics are known (``streams/topic_patterns.py``).
    :param site: the user's file and line.
    """

    name: str
    topics: tuple[str, ...]
    key_serde: Serde
    value_serde: Serde
    timestamps: TimestampExtractor | None = None
    pattern: str = ""
    site: CallSite | None = None


@runtime_checkable
class TableOperator(Operator, Protocol):
    """An operator that writes rows to a table."""

    def with_table(self, table: TableSpec) -> Operator:
        """Return the operator that writes to another table."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorNode:
    """Runs an operator on the records that its parents forward.

    :param name: name of the node, unique in the topology.
    :param parents: names of its parents.
    :param operator: the operator.
    :param stores: names of the stores that it is connected to.
    :param site: the user's file and line.
    """

    name: str
    parents: tuple[str, ...]
    operator: Operator
    stores: tuple[str, ...] = ()
    site: CallSite | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """Writes the records that its parents forward to one topic.

    :param name: name of the node, unique in the topology.
    :param parents: names of its parents.
    :param topic: logical name of the topic.
    :param key_serde: serde of keys.
    :param value_serde: serde of values.
    :param partitioner: function that gives a record's partition; None to choose it as Java's producer does.
    :param site: the user's file and line.
    """

    name: str
    parents: tuple[str, ...]
    topic: str
    key_serde: Serde
    value_serde: Serde
    partitioner: Partitioner | None = None
    site: CallSite | None = None


Node = SourceNode | ProcessorNode | SinkNode

_NO_TRAITS = OperatorTraits()
#: Parameters in the type of an operator: sizes of windows, a topic.
_PARAMETERS = re.compile(r"\(.*|_-?\d+(?=_|$)")


def traits_of(node: Node) -> OperatorTraits:
    """Return the traits of a node's operator; the defaults for a source or a sink."""
    return node.operator.traits if isinstance(node, ProcessorNode) else _NO_TRAITS


def purpose_of(node: Node) -> str:
    """Return what a node does and the user's line that made it: ``filter at orders.py:17``."""
    match node:
        case SourceNode():
            what = "source"
        case ProcessorNode():
            what = _PARAMETERS.sub("", node.operator.type).replace("_", " ")
        case SinkNode():
            what = "sink"
    return what if node.site is None else f"{what} at {node.site.short}"


def options_of(node: Node) -> CallOptions | None:
    """Return the options of a node's calls, None if it makes none."""
    return traits_of(node).calls


def global_tables_of(nodes: Iterable[Node]) -> dict[str, GlobalTableDef]:
    """Return the global tables that these nodes read: topic -> table."""
    tables = (traits_of(node).global_table for node in nodes)
    return {table.topic: table for table in tables if table is not None}


def table_of(node: Node) -> TableSpec | None:
    """Return the table that a node writes rows to, None if it writes none: such a node is a sink."""
    return traits_of(node).table


def tables_of(nodes: Iterable[Node]) -> dict[str, TableSpec]:
    """Return the tables that these nodes write to: name -> table."""
    return {table.name: table for table in map(table_of, nodes) if table is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A repartition topic that the engine creates; its real name is ``<application id>-<name>``.

    :param name: logical name, ends with ``-repartition``.
    :param partitions: fixed count, or None for as many as the largest source of the writing subtopology.
    """

    name: str
    partitions: int | None = None


_Holder = TypeVar("_Holder", bound=SourceNode | SinkNode | StoreSpec | GlobalTableDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class SerdeOfTopic:
    """A serde that an operator itself uses for objects inside the records of an internal topic.

    :param topic: logical name of the topic.
    :param side: ``key`` or ``value``.
    :param serde: the serde.
    """

    topic: str
    side: Side
    serde: Serde


def bound_to(topic: str, holder: _Holder) -> _Holder:
    """Return a source, sink or store spec with the serdes to use for a topic.

    :param topic: the topic's real name; a source of several topics is bound once for each.
    :param holder: the source, sink, store spec or global table.
    :raises ConfigError: a library that a serde needs is not installed, or a serde is not configured.
    """
    key_serde = holder.key_serde.bound(topic, "key")
    value_serde = holder.value_serde.bound(topic, "value")
    if key_serde is holder.key_serde and value_serde is holder.value_serde:
        return holder
    return dataclasses.replace(holder, key_serde=key_serde, value_serde=value_serde)


def bound_operator(
    operator: Operator, specs: Mapping[str, StoreSpec], real_topic: Callable[[str], str]
) -> Operator:
    """Return an operator with bound specs and serdes in place of those that it, or an operator inside it, was
    defined with.

    :param specs: store name -> its bound spec.
    :param real_topic: function that gives the real name of a topic's logical name.
    """
    unbound: Any = operator
    bound: dict[str, Any] = {}
    for part in dataclasses.fields(unbound) if dataclasses.is_dataclass(unbound) else ():
        held = getattr(operator, part.name)
        found = held
        if isinstance(held, StoreSpec):
            found = specs.get(held.name, held)
        elif isinstance(held, GlobalTableDef):
            found = bound_to(held.topic, held)
        elif isinstance(held, SerdeOfTopic):
            serde = held.serde.bound(real_topic(held.topic), held.side)
            found = held if serde is held.serde else dataclasses.replace(held, serde=serde)
        elif hasattr(type(held), "bind"):
            found = bound_operator(held, specs, real_topic)
        if found is not held:
            bound[part.name] = found
    return dataclasses.replace(unbound, **bound) if bound else operator
