"""One subtopology bound into closures: what a task runs for each record.

Nodes are bound from the leaves up, so that every closure holds its children directly and a record travels by
plain calls. A closure takes ``(key, value, _node=<name>)``; the default argument costs nothing per call and
lets
:func:`failing_node` read from a traceback at which node an error happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.runtime.record_context import TaskRecordContext
from airflow_kstreams.streams.runtime.stream_clock import StreamClock, TopicClock
from airflow_kstreams.streams.state import KeyValueStore, make_store
from airflow_kstreams.streams.topology.nodes import (
    Forward,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    StreamTimer,
)
from airflow_kstreams.streams.topology.serde_binding import bound_operator, bound_to
from airflow_kstreams.streams.topology.topology import Subtopology, Topology

#: Runs a batch of records of one source topic through the topology and returns their largest timestamp.
RunBatch = Callable[[Sequence[Record]], int]

#: ``produce(topic, value, key, partition, timestamp_ms, headers)``, see ``WriterPort``.
Produce = Callable[..., None]


class BoundNodeContext:
    """What a node may use while and after it is bound into a task."""

    def __init__(self, owner: ProcessorTopology, node: ProcessorNode) -> None:
        self.task_id = owner.task_id
        self.node = node.name
        self.record_context = owner.record_context
        self._owner = owner
        self._stores = node.stores
        self._topics = owner.topics_above[node.name]

    def store(self, name: str) -> KeyValueStore:
        """Return the task's instance of a connected store.

        :raises KeyError: the node is not connected to a store of this name.
        """
        if name not in self._stores:
            raise KeyError(f"processor {self.node!r} is not connected to store {name!r}")
        return self._owner.stores[name]

    def on_open(self, callback: Callable[[], None]) -> None:
        """Register a callback for the start, once the stores are restored."""
        self._owner.add_open(self.node, callback)

    def on_flush(self, callback: Callable[[], None]) -> None:
        """Register a callback for every commit point."""
        self._owner.add_flush(self.node, callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a callback for the orderly end."""
        self._owner.add_close(self.node, callback)

    def stream_time(self) -> Callable[[], int]:
        """Return a function that gives the node's stream time."""
        self._owner.timed = True
        return self._owner.clock.node_time(self._topics)

    def stream_timer(self, callback: Callable[[int], None]) -> StreamTimer:
        """Make a timer on the node's stream time."""
        self._owner.timed = True
        return self._owner.clock.timer(self.node, self._topics, callback)

    def count_dropped(self) -> None:
        """Count one record dropped by rule."""
        self._owner.dropped += 1

    def request_commit(self) -> None:
        """Ask for a commit after the record being processed."""
        self._owner.commit_requested = True


class ProcessorTopology:
    """A bound subtopology.

    :param topology: the whole topology.
    :param subtopology: the part to bind.
    :param application_id: gives internal topics their real names.
    :param task_id: printed ``<subtopology>_<group>``.
    :param produce: sends one record.
    """

    def __init__(
        self,
        topology: Topology,
        subtopology: Subtopology,
        *,
        application_id: str,
        task_id: str,
        produce: Produce,
    ) -> None:
        self.task_id = task_id
        self.record_context = TaskRecordContext()
        self._specs = {
            spec.name: bound_to(topology.changelog_topic(spec.name, application_id), spec)
            for spec in subtopology.stores
        }
        self.stores = {name: make_store(spec, self.record_context) for name, spec in self._specs.items()}
        self.cached = False
        self.commit_requested = False
        self.dropped = 0
        self._sent = [0]
        self._opens: dict[str, list[Callable[[], None]]] = {}
        self._flushes: dict[str, list[Callable[[], None]]] = {}
        self._closes: dict[str, list[Callable[[], None]]] = {}
        self._order = [node.name for node in subtopology.nodes]
        self._sources: dict[str, tuple[SourceNode, Forward]] = {}
        self._batches: dict[str, RunBatch] = {}
        #: Whether a node asks for stream time.
        self.timed = False
        #: Real names of the source topics that lead to each node.
        self.topics_above = topics_above(topology, subtopology, application_id)
        self.clock = StreamClock(
            sorted(set().union(*self.topics_above.values())), self._order, self.record_context
        )
        self._bind(topology, subtopology, application_id, produce)

    @property
    def sent(self) -> int:
        """Records handed to sinks so far."""
        return self._sent[0]

    @sent.setter
    def sent(self, count: int) -> None:
        self._sent[0] = count

    def run_batch(self, topic: str, records: Sequence[Record]) -> int:
        """Process records of one source topic in order.

        :return: their largest timestamp, -1 if there are none.
        :raises RecordError: a record could not be decoded, processed or encoded.
        """
        return self._batches[topic](records)

    def open(self) -> None:
        """Let every processor start, in topological order; the stores are restored."""
        for name in self._order:
            for callback in self._opens.get(name, ()):
                callback()

    def flush(self) -> None:
        """Let every cached node emit, in topological order."""
        self.record_context.record = None
        for name in self._order:
            for callback in self._flushes.get(name, ()):
                callback()

    def close(self) -> None:
        """Let every processor close, in topological order."""
        for name in self._order:
            for callback in self._closes.get(name, ()):
                callback()

    def add_flush(self, node: str, callback: Callable[[], None]) -> None:
        """Register a commit point callback of a node; the task then has cached results."""
        self.cached = True
        self._flushes.setdefault(node, []).append(callback)

    def add_open(self, node: str, callback: Callable[[], None]) -> None:
        """Register a start callback of a node."""
        self._opens.setdefault(node, []).append(callback)

    def add_close(self, node: str, callback: Callable[[], None]) -> None:
        """Register an end callback of a node."""
        self._closes.setdefault(node, []).append(callback)

    def _bind(
        self, topology: Topology, subtopology: Subtopology, application_id: str, produce: Produce
    ) -> None:
        children: dict[str, dict[str, Forward]] = {node.name: {} for node in subtopology.nodes}
        for node in reversed(subtopology.nodes):
            below = dict(reversed(children[node.name].items()))
            bound = self._bind_node(node, below, topology, application_id, produce)
            if isinstance(node, ProcessorNode | SinkNode):
                for parent in node.parents:
                    children[parent][node.name] = bound
        for topic, (source, forward) in self._sources.items():
            loop = source_loop(source, forward, self.record_context)
            if self.timed:
                loop = timed_source_loop(
                    source, forward, self.record_context, self.clock.topics[topic], self.clock
                )
            self._batches[topic] = loop

    def _bind_node(
        self, node: Node, below: dict[str, Forward], topology: Topology, application_id: str, produce: Produce
    ) -> Forward:
        if isinstance(node, SinkNode):
            return self._sink(node, topology.real_topic(node.topic, application_id), produce)
        forward = fan_out(tuple(below.values()))
        if isinstance(node, ProcessorNode):
            operator = bound_operator(node.operator, self._specs)
            return operator.bind(forward, BoundNodeContext(self, node), below)
        for topic in node.topics:
            real_topic = topology.real_topic(topic, application_id)
            self._sources[real_topic] = (bound_to(real_topic, node), forward)
        return forward

    def _sink(self, node: SinkNode, topic: str, produce: Produce) -> Forward:
        bound = bound_to(topic, node)
        serialize_key = bound.key_serde.serialize
        serialize_value = bound.value_serde.serialize
        context = self.record_context
        headers_of = context.headers
        sent = self._sent

        def sink(key: Any, value: Any, _node: str = node.name) -> None:
            produce(
                topic,
                None if value is None else serialize_value(value),
                None if key is None else serialize_key(key),
                -1,
                context.timestamp_ms,
                headers_of(),
            )
            sent[0] += 1

        return sink


def source_loop(node: SourceNode, forward: Forward, context: TaskRecordContext) -> RunBatch:
    """Make the loop over a batch of one source: decode and forward, record by record."""
    deserialize_key = node.key_serde.deserialize
    deserialize_value = node.value_serde.deserialize

    def run_batch(records: Sequence[Record], _node: str = node.name) -> int:
        latest = -1
        for record in records:
            context.record = record
            context.timestamp_ms = timestamp_ms = record.timestamp()[1]
            if timestamp_ms > latest:
                latest = timestamp_ms
            key = record.key()
            value = record.value()
            forward(
                None if key is None else deserialize_key(key),
                None if value is None else deserialize_value(value),
            )
        return latest

    return run_batch


def timed_source_loop(
    node: SourceNode,
    forward: Forward,
    context: TaskRecordContext,
    topic_clock: TopicClock,
    clock: StreamClock,
) -> RunBatch:
    """Make the loop of a task whose nodes ask for stream time."""
    deserialize_key = node.key_serde.deserialize
    deserialize_value = node.value_serde.deserialize

    def run_batch(records: Sequence[Record], _node: str = node.name) -> int:
        latest = -1
        for record in records:
            context.record = record
            context.timestamp_ms = timestamp_ms = record.timestamp()[1]
            if timestamp_ms > latest:
                latest = timestamp_ms
            if timestamp_ms > topic_clock.time_ms:
                topic_clock.time_ms = timestamp_ms
            key = record.key()
            value = record.value()
            forward(
                None if key is None else deserialize_key(key),
                None if value is None else deserialize_value(value),
            )
            if topic_clock.time_ms >= topic_clock.due_ms:
                clock.fire()
        return latest

    return run_batch


def topics_above(
    topology: Topology, subtopology: Subtopology, application_id: str
) -> dict[str, frozenset[str]]:
    """Return the real names of the source topics that lead to each node."""
    above: dict[str, frozenset[str]] = {}
    for node in subtopology.nodes:
        if isinstance(node, SourceNode):
            above[node.name] = frozenset(topology.real_topic(topic, application_id) for topic in node.topics)
        else:
            above[node.name] = frozenset().union(*(above[parent] for parent in node.parents))
    return above


def fan_out(targets: tuple[Forward, ...]) -> Forward:
    """Make one forward out of several; each child sees the same key and value, in build order."""
    if not targets:
        return _nowhere
    if len(targets) == 1:
        return targets[0]
    if len(targets) == 2:
        first, second = targets

        def forward_two(key: Any, value: Any) -> None:
            first(key, value)
            second(key, value)

        return forward_two

    def forward_all(key: Any, value: Any) -> None:
        for target in targets:
            target(key, value)

    return forward_all


def _nowhere(key: Any, value: Any) -> None:
    """Take a record that nobody asked for."""


def _frames(traceback: TracebackType | None) -> Iterator[str]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if "_node" in code.co_varnames[: code.co_argcount]:
            yield traceback.tb_frame.f_locals["_node"]
        traceback = traceback.tb_next


def failing_node(error: BaseException, default: str) -> str:
    """Return the name of the innermost node on an error's traceback."""
    names = list(_frames(error.__traceback__))
    return names[-1] if names else default


def record_error(error: Exception, bound: ProcessorTopology, nodes: dict[str, Node]) -> RecordError:
    """Describe what failed at which node and record.

    :param error: what user code or a serde raised.
    :param nodes: the nodes of the subtopology by name.
    """
    record = bound.record_context.record
    name = failing_node(error, "(commit point)")
    node = nodes.get(name)
    where = bound.record_context.where()
    if isinstance(node, SourceNode):
        what, fix = "cannot decode", "mend the source's serdes or the producer of the topic"
    elif isinstance(node, SinkNode):
        what, fix = (
            f"cannot encode the result for topic {node.topic!r} of",
            "mend the sink's serdes or its input",
        )
    else:
        what, fix = "processing failed for", "mend the function at that node"
    site = f" ({node.site})" if node is not None and node.site is not None else ""
    return RecordError(
        f"task {bound.task_id}: {what} {where} at node {name!r}{site}: {type(error).__name__}: {error}",
        fix=f"{fix}, then retry the run: its slice is kept and nothing of it was lost",
        topic=record.topic() if record is not None else "",
        partition=record.partition() if record is not None else -1,
        offset=record.offset() if record is not None else -1,
        node=name,
    )
