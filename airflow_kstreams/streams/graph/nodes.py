"""The frozen topology model: three kinds of node. Definitions only; nothing runs here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_kstreams.streams.hints.call_site import CallSite
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.timestamps import TimestampExtractor
from airflow_kstreams.streams.type_variables import K, V

#: How a node hands a key and a value to its children (a leaf has none).
Forward = Callable[[Any, Any], None]

#: ``partitioner(topic, key, value, partitions)`` gives the partition of a result among so many, from 0 on;
#: None leaves it to the key.
Partitioner = Callable[[str, K, V, int], int | None]


class Operator(Protocol):
    """What a processor node does. Implementations are frozen dataclasses; ``bind`` makes the closure that
    runs.

    The returned closure must take ``(key, value, _node=<the node's name>)``: the default argument lets an
    error's traceback show at which node it happened, at no cost per record.
    """

    @property
    def type(self) -> str:
        """Stable name of the kind, e.g. ``filter``; part of the topology hash."""
        ...

    def bind(self, forward: Forward, context: Any, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task.

        :param forward: hands a record to every child.
        :param context: the task's services for this node, a :class:`NodeContext`.
        :param children: child name -> hands a record to that child only.
        """
        ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A repartition topic that the engine creates; its real name is ``<application id>-<name>``.

    :param name: logical name, ends with ``-repartition``.
    :param partitions: fixed count, or None for as many as the largest source of the writing subtopology.
    """

    name: str
    partitions: int | None = None
