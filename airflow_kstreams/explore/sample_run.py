"""Runs a sample through the real tasks of a topology, on topics in memory, with taps that report the records
that reach and leave every node.

Rule: the records come in a run's order, and each is processed and committed with all its results before the
next, as in the test driver. Cached tables therefore show every change, where a run folds many into one. The
wall clock shows the time at which the sample was taken.

The tasks run a copy of the topology. Rule: node names, their order, the edges and the stores are those of the
topology, so a task runs the copy as it would run the original. There are two kinds of tap:

* each processor's operator is wrapped, and so is that of one more node behind each source, which hands on the
  records that the source decoded;
* one more node before each sink sees the records for the sink. It has the sink's name, so that
  ``forward(to=...)`` finds it. A node that writes to a table is wrapped, and its rows are taken.

An error at a node is kept as a finding and ends there: the nodes before it go on as if the node had taken the
record, and its earlier effects remain. An error outside the taps (a record that its source cannot decode, a
store's value that its serde cannot encode) leaves the driver unusable; then a new driver gets the records
before it again, without findings, and the record is left out. Records that the source cannot decode, the
usual case, are recognised before, at no such cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, ParamSpec

from airflow_kstreams.explore.node_records import Findings
from airflow_kstreams.explore.sample import Sample, SampleRecord
from airflow_kstreams.streams.errors import KStreamsError, RecordError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import Rule
from airflow_kstreams.streams.graph.calls import CallSpec
from airflow_kstreams.streams.graph.nodes import (
    Node,
    Operator,
    OperatorTraits,
    ProcessorNode,
    SourceNode,
    table_of,
)
from airflow_kstreams.streams.graph.services import Forward, NodeContext, ProcessorServices, StreamTimer
from airflow_kstreams.streams.kstream.operators.stateless import PassThrough
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.processor.processor_outputs import SendTarget
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.internal_serdes import OldAndNew
from airflow_kstreams.streams.table_plan import table_label
from airflow_kstreams.streams.tables.table_rows import DeletedRow, Row
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing import TopologyTestDriver

P = ParamSpec("P")
#: Number of drivers that are replaced before the rest of the sample is given up; each new one repeats all
#: records before.
MOST_RESTARTS = 20


class SampleRun:
    """Runs a sample through a topology: processes all records, then lets the processors close.

    :ivar findings: the findings at every node.
    :ivar notes: remarks on the sample for the user, a line each.
    :raises ConfigError: the application id cannot name topics.
    :raises TopologyError: the topology cannot run with these partition counts.
    :raises RecordError: a processor's ``init`` failed.
    """

    def __init__(self, topology: Topology, sample: Sample, application_id: str) -> None:
        self._topology = topology = topology.matched(sample.partitions)
        self._sample = sample
        self._application_id = application_id
        self._plan = topology.plan(application_id)
        self._partitions = _partition_counts(self._plan, sample)
        self._sources = {
            topic: node.name
            for node in topology.nodes
            if isinstance(node, SourceNode)
            for topic in node.topics
        } | {topic: f"global table {topic}" for topic in self._plan.globals}
        self.findings = Findings()
        for topic in self._plan.globals:
            self.findings.add_node(self._sources[topic])
        self._good: list[SampleRecord] = []
        self._restarts = 0
        self.findings.begin(None)
        self._driver = self._new_driver()
        self.findings.keep()
        self._run()

    def _run(self) -> None:
        # A run sees the global tables of its beginning.
        ordered = [*self._sample.in_run_order()]
        records = [
            record
            for topics in (self._plan.globals, self._plan.inputs)
            for record in ordered
            if record.topic in topics
        ]
        self.notes = _notes(self._plan, self._sample)
        for number, record in enumerate(records):
            if self._restarts == MOST_RESTARTS:
                self.notes.append(
                    f"stopped after {MOST_RESTARTS} records that left a task unusable: not run were "
                    f"the last {counted(len(records) - number, 'record')} of the sample"
                )
                break
            self.findings.begin(record)
            if self._decodes(record):
                self._process(record)
            else:
                self.findings.keep()
        self._close()

    def _decodes(self, record: SampleRecord) -> bool:
        try:
            self._driver.decode_input(record.topic, key=record.key, value=record.value)
        except Exception as error:
            self.findings.failed(self._sources[record.topic], error)
            return False
        return True

    def _process(self, record: SampleRecord) -> None:
        try:
            _pipe(self._driver, record)
        except KStreamsError as error:
            self.findings.failed(self._node_of(error), error)
            self.findings.keep_failures_only()
            self._restart()
        else:
            self.findings.keep()
            self._good.append(record)

    def _close(self) -> None:
        self.findings.begin(None)
        try:
            self._driver.close()
        except KStreamsError as error:
            self.findings.failed(self._node_of(error), error)
        self.findings.keep()

    def _restart(self) -> None:
        """Bring a new driver to the state of the last one before the record that broke it."""
        self._restarts += 1
        self._driver = self._new_driver()
        for record in self._good:
            _pipe(self._driver, record)
        self.findings.forget()

    def _new_driver(self) -> TopologyTestDriver:
        return TopologyTestDriver(
            tapped(self._topology, self.findings),
            application_id=self._application_id,
            partitions=self._partitions,
            # With a clock of its own, two explorations of one sample would differ.
            wall_clock_ms=self._sample.taken_ms,
        )

    def _node_of(self, error: KStreamsError) -> str:
        """Return the node that an error names, or the first source where it names none of the topology."""
        name = error.node if isinstance(error, RecordError) else ""
        return name if name in self.findings.counts else next(iter(self.findings.counts))


def _pipe(driver: TopologyTestDriver, record: SampleRecord) -> None:
    driver.pipe_bytes(
        record.topic,
        key=record.key,
        value=record.value,
        timestamp_ms=record.timestamp_ms,
        partition=record.partition,
        headers=record.headers,
    )


def _partition_counts(plan: TopologyPlan, sample: Sample) -> Mapping[str, int]:
    """Return the partition counts of the topics that a user makes.

    A topic that does not exist yet has as many as the largest input, as co-partitioning requires.
    """
    known = dict(sample.partitions)
    for record in sample.records:
        known[record.topic] = max(known.get(record.topic, 1), record.partition + 1)
    largest = max((known[topic] for topic in plan.inputs if topic in known), default=1)
    topics = {*plan.sources, *plan.outputs, *plan.globals} - {*plan.repartition_topics}
    return {topic: known.get(topic, largest) for topic in topics}


def _notes(plan: TopologyPlan, sample: Sample) -> list[str]:
    counts = sample.topics()
    notes = [f"the sample has no record of {topic!r}" for topic in plan.inputs if not counts.get(topic)]
    notes += [
        f"the topology does not read {topic!r}, of which the sample has {counted(count, 'record')}"
        for topic, count in counts.items()
        if count and topic not in plan.inputs and topic not in plan.globals
    ]
    return notes


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
            tap = OperatorTap(node=node.name, findings=findings, operator=PassThrough(type="source"))
            nodes += [node, ProcessorNode(name=behind[node.name], parents=(node.name,), operator=tap)]
            continue
        parents = tuple(behind.get(parent, parent) for parent in node.parents)
        if isinstance(node, ProcessorNode):
            tap_of = OperatorTap if table_of(node) is None else TableTap
            operator = tap_of(node=node.name, findings=findings, operator=node.operator)
            nodes.append(dataclasses.replace(node, parents=parents, operator=operator))
            continue
        sink = SinkTap(node=node.name, topic=node.topic, findings=findings)
        guard = ProcessorNode(name=node.name, parents=parents, operator=sink, site=node.site)
        nodes += [guard, dataclasses.replace(node, name=hidden(node.name), parents=(guard.name,))]
    return dataclasses.replace(topology, nodes=tuple(nodes))


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
class TableTap:
    """Reports the rows that an operator writes to its table, and the error of a record that makes none."""

    node: str
    findings: Findings
    operator: Operator

    @property
    def type(self) -> str:
        """Kind of node: the operator's own."""
        return self.operator.type

    @property
    def traits(self) -> OperatorTraits:
        """The operator's own traits, but that errors end here, so records are missing from its flow."""
        return dataclasses.replace(self.operator.traits, flow="free")

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        name, findings, record_context = self.node, self.findings, context.record_context
        table = self.operator.traits.table
        if table is None:
            raise ValueError(f"node {name!r} writes to no table")
        place, columns = table_label(table.name), [column.name for column in table.plan.columns]
        tapped = _TappedContext(context, name, findings)
        inner = self.operator.bind(forward, tapped, children)

        def run(key: Any, value: Any, _node: str = name) -> None:
            findings.arrived(name)
            tapped.rows.clear()
            try:
                inner(key, value)
            except Exception as error:
                findings.failed(name, error)
                return
            for row in tapped.rows:
                shown = None if isinstance(row, DeletedRow) else dict(zip(columns, row, strict=True))
                findings.forwarded(name, key, shown, record_context.timestamp_ms)
                findings.written(place, key, shown, record_context.timestamp_ms)

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
        """The operator's own traits, but that errors end here, so records are missing from its flow, that it
        looks at what an operator passes on, and that it stays on the task's thread.
        """
        return dataclasses.replace(self.operator.traits, flow="free", passes_on=False, on_threads=None)

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
        #: The rows that the node has added.
        self.rows: list[Row] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def add_row(self, table: str) -> Callable[[Row], None]:
        add = self._context.add_row(table)

        def added(row: Row) -> None:
            add(row)
            self.rows.append(row)

        return added

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
