"""A topology bound by hand, without tasks, partitions or a broker: what a sink writes, the next source reads
at once.

Internal and ``through`` topics carry bytes, so a missing or wrong serde shows. ``flush`` is a commit point.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from airflow_kstreams.streams.codegen.loop_code import Inlining, NodeCode, TaskLoopCode, closure_of
from airflow_kstreams.streams.figures.record_counts import Counters, Rule
from airflow_kstreams.streams.graph.components import parents, table_changes
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode
from airflow_kstreams.streams.graph.services import (
    Forward,
    LoopCode,
    ProcessorServices,
    StreamTimer,
    TableView,
    Taking,
    WriteCode,
)
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.processor.processor_outputs import SendTarget
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.stream_clock import StreamClock, TaskWallClock
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.streams.topology.topology import Topology
from tests.support.topology.records import FakeRecord


class Output(NamedTuple):
    """What a sink wrote."""

    key: Any
    value: Any
    timestamp_ms: int


@dataclass(slots=True)
class NodeServices:
    """What a node under test may use."""

    owner: BoundTopology
    node: str
    connected: tuple[str, ...]
    task_id: str = "0_0"
    purpose: str = "a node"

    @property
    def tables(self) -> dict[str, TableView]:
        return self.owner.tables

    @property
    def taking_changes(self) -> frozenset[str]:
        return table_changes(self.owner.topology.nodes).takers

    @property
    def old_needed(self) -> bool:
        return self.node in table_changes(self.owner.topology.nodes).old_needed

    alone = False
    hands_to_functions = True

    @property
    def goes_on(self) -> bool:
        return False

    @property
    def record_context(self) -> TaskRecordContext:
        return self.owner.context

    def store(self, name: str) -> Any:
        if name not in self.connected:
            raise KeyError(name)
        return self.owner.stores[name]

    def on_open(self, callback: Callable[[], None]) -> None:
        self.owner.opens.setdefault(self.node, []).append(callback)

    def on_flush(self, callback: Callable[[], None]) -> None:
        self.owner.flushes.setdefault(self.node, []).append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        self.owner.closes.setdefault(self.node, []).append(callback)

    def stream_time(self) -> Callable[[], int]:
        return self.owner.clock.node_time(["all"])

    def closing_time(self, store: str, open_ms: int, stream_time: Callable[[], int]) -> Callable[[], int]:
        return stream_time

    def stream_timer(self, callback: Callable[[int], None], *, behind: bool = False) -> StreamTimer:
        return self.owner.clock.timer(self.node, ["all"], callback, behind=behind)

    def guarded(self, run: Forward) -> Forward:
        return run

    def written(
        self,
        write: WriteCode,
        forward: Forward,
        children: Mapping[str, Forward],
        *,
        taking: Taking | None = None,
    ) -> Forward:
        return closure_of(
            Inlining(self.owner.context, self.owner.counters), NodeCode(self.node, children, write), forward
        )

    def flush_code(self, children: Mapping[str, Forward], *, timestamp_ms: str) -> LoopCode:
        inlining, place = Inlining(self.owner.context, self.owner.counters), {"timestamp_ms": timestamp_ms}
        return TaskLoopCode(inlining, self.node, children, place, headers="None")

    def counting(self, rule: Rule) -> Callable[[], None]:
        return self.owner.counters.counting(self.node, rule)

    def wall_clock(self) -> TaskWallClock:
        return TaskWallClock(lambda: 0, self.owner.context)

    def allow_commit_requests(self) -> None:
        """Every record is followed by a look at the requests anyway."""

    def send_target(self, topic: str) -> SendTarget:
        return SendTarget(topic=topic, key_serde=serdes.bytes(), value_serde=serdes.bytes())

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, placed_by: bytes | None = None
    ) -> None:
        self.owner.outputs.setdefault(topic, []).append(Output(key, value, self.owner.context.timestamp_ms))

    def request_commit(self) -> None:
        self.owner.commits_requested += 1


@dataclass(slots=True)
class BoundTopology:
    """Runs a topology in one go; ``outputs`` holds what each sink wrote, decoded with the sink's own
    serdes.
    """

    topology: Topology
    context: TaskRecordContext = field(default_factory=TaskRecordContext)
    stores: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, TableView] = field(default_factory=dict)
    outputs: dict[str, list[Output]] = field(default_factory=dict)
    opens: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    flushes: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    closes: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    dropped_before: int = 0
    commits_requested: int = 0
    _sources: dict[str, tuple[SourceNode, Forward]] = field(default_factory=dict)
    clock: StreamClock = field(init=False)
    _offsets: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.clock = StreamClock(["all"], [node.name for node in self.topology.nodes], self.context)
        self.stores = {spec.name: make_store(spec, self.context) for spec in self.topology.stores}
        bound: dict[str, Forward] = {}
        for node in reversed(self.topology.nodes):
            below = {n.name: bound[n.name] for n in self.topology.nodes if node.name in parents(n)}
            bound[node.name] = self._bind(node, below)
        self._run(self.opens)

    @property
    def dropped(self) -> int:
        """Records dropped by rule, by this attempt and before it."""
        return self.dropped_before + self.counters.dropped

    def pipe(
        self, topic: str, key: Any, value: Any, timestamp_ms: int = 0, headers: Headers | None = None
    ) -> None:
        """Process one record, given as objects of the source's serdes."""
        node, _ = self._sources[topic]
        self._read(
            FakeRecord(
                at=next(self._offsets),
                in_topic=topic,
                key_bytes=None if key is None else node.key_serde.serialize(key),
                value_bytes=None if value is None else node.value_serde.serialize(value),
                timestamp_ms=timestamp_ms,
                header_list=headers,
            )
        )

    def flush(self) -> None:
        """Pass a commit point."""
        self.context.record = None
        self._run(self.flushes)

    def close(self) -> None:
        """Come to the clean end."""
        self._run(self.closes)

    def read(self, topic: str) -> list[Output]:
        """Return and forget what was written to a topic."""
        return self.outputs.pop(topic, [])

    def _run(self, callbacks: dict[str, list[Callable[[], None]]]) -> None:
        for node in self.topology.nodes:
            for callback in callbacks.get(node.name, []):
                callback()

    def _read(self, record: FakeRecord) -> None:
        node, forward = self._sources[record.topic()]
        clock = self.clock.topics["all"]
        if record.timestamp_ms > clock.time_ms:
            self.clock.pass_time(clock, record.timestamp_ms)
        self.context.record, self.context.timestamp_ms = record, record.timestamp_ms
        key, value = record.key_bytes, record.value_bytes
        forward(
            None if key is None else node.key_serde.deserialize(key),
            None if value is None else node.value_serde.deserialize(value),
        )
        if clock.time_ms >= clock.due_ms:
            self.clock.fire()

    def _bind(self, node: Node, below: dict[str, Forward]) -> Forward:
        if isinstance(node, SinkNode):
            return self._sink(node)

        def forward(key: Any, value: Any) -> None:
            for child in below.values():
                child(key, value)

        if isinstance(node, ProcessorNode):
            # Nodes under test use no more of what a task offers than these.
            services = cast(
                "ProcessorServices", NodeServices(owner=self, node=node.name, connected=node.stores)
            )
            return node.operator.bind(forward, services, below)
        for topic in node.topics:
            self._sources[topic] = (node, forward)
        return forward

    def _sink(self, node: SinkNode) -> Forward:
        def write(key: Any, value: Any) -> None:
            record = FakeRecord(
                at=next(self._offsets),
                in_topic=node.topic,
                key_bytes=None if key is None else node.key_serde.serialize(key),
                value_bytes=None if value is None else node.value_serde.serialize(value),
                timestamp_ms=self.context.timestamp_ms,
            )
            written = Output(
                None if record.key_bytes is None else node.key_serde.deserialize(record.key_bytes),
                None if record.value_bytes is None else node.value_serde.deserialize(record.value_bytes),
                record.timestamp_ms,
            )
            self.outputs.setdefault(node.topic, []).append(written)
            if node.topic in self._sources:
                before = (self.context.record, self.context.timestamp_ms)
                self._read(record)
                self.context.record, self.context.timestamp_ms = before

        return write
