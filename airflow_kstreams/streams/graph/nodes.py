"""The frozen topology model: three kinds of node. Definitions only; nothing runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.global_tables import GlobalTableDef
from airflow_kstreams.streams.graph.operator_traits import Operator, OperatorTraits
from airflow_kstreams.streams.hints.call_site import CallSite
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.timestamps import TimestampExtractor
from airflow_kstreams.streams.type_variables import K, V

#: ``partitioner(topic, key, value, partitions)`` gives the partition of a result among so many, from 0 on;
#: None leaves it to the key.
Partitioner = Callable[[str, K, V, int], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """Reads topics.

    :param name: unique in the topology.
    :param topics: the topics, logical names (see :class:`Topology`).
    :param timestamps: where the records' timestamps come from; None for the records' own.
    :param pattern: of the topics' names, a regular expression; empty if they are named. What stands for it is
        the only topic until the topics that match are known (``streams/topic_patterns.py``).
    """

    name: str
    topics: tuple[str, ...]
    key_serde: Serde
    value_serde: Serde
    timestamps: TimestampExtractor | None = None
    pattern: str = ""
    site: CallSite | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorNode:
    """Runs an operator on what its parents forward.

    :param stores: names of the stores it is connected to.
    """

    name: str
    parents: tuple[str, ...]
    operator: Operator
    stores: tuple[str, ...] = ()
    site: CallSite | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """Writes what its parents forward to one topic, partitioned as Java's producer would, or by a function.

    :param partitioner: the function; None for Java's way.
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


def traits_of(node: Node) -> OperatorTraits:
    """Return the traits of a node's operator; of a source and of a sink the defaults."""
    return node.operator.traits if isinstance(node, ProcessorNode) else _NO_TRAITS


def options_of(node: Node) -> CallOptions | None:
    """Return how a node calls, None if it makes no calls."""
    return traits_of(node).calls


def global_tables_of(nodes: Iterable[Node]) -> dict[str, GlobalTableDef]:
    """Return the global tables that some nodes read, by topic."""
    tables = (traits_of(node).global_table for node in nodes)
    return {table.topic: table for table in tables if table is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A repartition topic that the engine creates; its real name is ``<application id>-<name>``.

    :param name: logical name, ends with ``-repartition``.
    :param partitions: fixed count, or None for as many as the largest source of the writing subtopology.
    """

    name: str
    partitions: int | None = None
