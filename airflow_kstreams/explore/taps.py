"""Copies a topology with taps, which report the records that reach and leave every node.

Rule: node names, their order, the edges and the stores are those of the topology, so a task runs the copy as
it would run the original. There are three kinds of tap:

* one more node behind each source sees the records that the source decoded;
* each processor's operator is wrapped;
* one more node before each sink sees the records for the sink. It has the sink's name, so that
  ``forward(to=...)`` finds it.

An error at a node is kept as a finding and ends there: the nodes before it go on as if the node had taken the
record, and its earlier effects remain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, ParamSpec

from airflow_kstreams.explore.node_records import Findings
from airflow_kstreams.streams.figures.record_counts import Rule
from airflow_kstreams.streams.graph.calls import CallSpec
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, SourceNode
from airflow_kstreams.streams.graph.operator_traits import Operator, OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, NodeContext, ProcessorServices, StreamTimer
from airflow_kstreams.streams.processor.processor_outputs import SendTarget
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.changed import OldAndNew
from airflow_kstreams.streams.topology.topology import Topology

P = ParamSpec("P")


def tapped(topology: Topology, findings: Findings) -> Topology:
    """Return the copy, whose taps report to ``findings``."""
    taken = {node.name for node in topology.nodes}
    behind: dict[str, str] = {}
    nodes: list[Node] = []

    def hidden(name: str) -> str:
        free = f"{name} (tapped)"
        while free in taken:
            free += "'"
        taken.add(free)
        return free

    for node in topology.nodes:
        findings.add_node(node.name)
        if isinstance(node, SourceNode):
            behind[node.name] = hidden(node.name)
            tap = SourceTap(node=node.name, findings=findings)
            nodes += [node, ProcessorNode(name=behind[node.name], parents=(node.name,), operator=tap)]
            continue
        parents = tuple(behind.get(parent, parent) for parent in node.parents)
        if isinstance(node, ProcessorNode):
            operator = OperatorTap(node=node.name, findings=findings, operator=node.operator)
            nodes.append(dataclasses.replace(node, parents=parents, operator=operator))
            continue
        sink = SinkTap(node=node.name, topic=node.topic, findings=findings)
        guard = ProcessorNode(name=node.name, parents=parents, operator=sink, site=node.site)
        nodes += [guard, dataclasses.replace(node, name=hidden(node.name), parents=(guard.name,))]
    return dataclasses.replace(topology, nodes=tuple(nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTap:
    """Reports the records that a source decoded."""

    node: str
    findings: Findings

    type: ClassVar[str] = "source_tap"
    traits: ClassVar[OperatorTraits] = OperatorTraits()

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        name, findings, record_context = self.node, self.findings, context.record_context

        def run(key: Any, value: Any, _node: str = name) -> None:
            findings.arrived(name)
            findings.forwarded(name, key, value, record_context.timestamp_ms)
            forward(key, value)

        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTap:
    """Reports the records for a sink, and the error of a sink that cannot encode one."""

    node: str
    topic: str
    findings: Findings

    type: ClassVar[str] = "sink_tap"
    traits: ClassVar[OperatorTraits] = OperatorTraits()

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        name, topic, findings, record_context = self.node, self.topic, self.findings, context.record_context

        def run(key: Any, value: Any, _node: str = name) -> None:
            findings.arrived(name)
            try:
                forward(key, value)
            except Exception as error:
                findings.failed(name, error)
            else:
                findings.forwarded(name, key, value, record_context.timestamp_ms)
                findings.written(topic, key, value, record_context.timestamp_ms)

        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTap:
    """Runs an operator and reports the records that reach and leave it."""

    node: str
    findings: Findings
    operator: Operator

    @property
    def type(self) -> str:
        """Kind of node: the operator's own."""
        return self.operator.type

    @property
    def traits(self) -> OperatorTraits:
        """The operator's own traits, but that errors end here, so records are missing from its flow, and that
        it stays on the task's thread.
        """
        return dataclasses.replace(self.operator.traits, flow="free", on_threads=None)

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        name, findings, record_context = self.node, self.findings, context.record_context
        # A table with tables below it hands each change to one child after another.
        is_table = not context.taking_changes.isdisjoint(children)

        def seen(target: Forward) -> Forward:
            def pass_on(key: Any, value: Any) -> None:
                shown = value.new if is_table and isinstance(value, OldAndNew) else value
                findings.forwarded(name, key, shown, record_context.timestamp_ms)
                target(key, value)

            return pass_on

        inner = self.operator.bind(
            seen(forward),
            _TappedContext(context, name, findings),
            {
                child: seen(target) if place == 0 or not is_table else target
                for place, (child, target) in enumerate(children.items())
            },
        )

        def run(key: Any, value: Any, _node: str = name) -> None:
            findings.arrived(name)
            try:
                inner(key, value)
            except Exception as error:
                findings.failed(name, error)

        return run


class _TappedContext:
    """The task's services for a node, which also report errors of callbacks, dropped records, and records
    that are sent to a topic by name.

    An error of ``on_open`` is raised: without its processor a topology cannot be explored.
    """

    def __init__(self, context: ProcessorServices, node: str, findings: Findings) -> None:
        self._context = context
        self._name = node
        self._findings = findings
        self._targets: dict[str, tuple[str, SendTarget]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def on_flush(self, callback: Callable[[], None]) -> None:
        self._context.on_flush(self._noted(callback))

    def on_close(self, callback: Callable[[], None]) -> None:
        self._context.on_close(self._noted(callback))

    def stream_timer(self, callback: Callable[[int], None], *, behind: bool = False) -> StreamTimer:
        return self._context.stream_timer(self._noted(callback), behind=behind)

    def send_target(self, topic: str) -> SendTarget:
        target: SendTarget = self._context.send_target(topic)
        self._targets[target.topic] = (topic, target)
        return target

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, placed_by: bytes | None = None
    ) -> None:
        self._context.send(topic, key, value, placed_by)
        name, target = self._targets[topic]
        shown_key = None if key is None else _decoded(target.key_serde, key)
        shown_value = None if value is None else _decoded(target.value_serde, value)
        self._findings.written(name, shown_key, shown_value, self._context.record_context.timestamp_ms)

    def calls(
        self,
        spec: CallSpec,
        give: Callable[[Any, Any, Any], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> Forward:
        def note(error: Exception) -> None:
            self._findings.failed(self._name, error)

        return self._context.calls(spec, self._noted(give), failed or note)

    def counting(self, rule: Rule) -> Callable[[], None]:
        count = self._context.counting(rule)

        def counted() -> None:
            self._findings.dropped(self._name)
            count()

        return counted

    def _noted(self, callback: Callable[P, None]) -> Callable[P, None]:
        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                callback(*args, **kwargs)
            except Exception as error:
                self._findings.failed(self._name, error)

        return call


def _decoded(serde: Serde, data: bytes) -> Any:
    """Return the object that was sent; its bytes if the sender named a serde of its own."""
    try:
        return serde.deserialize(data)
    except Exception:
        return data
