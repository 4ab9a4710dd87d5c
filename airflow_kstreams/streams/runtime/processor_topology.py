"""Binds one subtopology into closures, which a task runs for each record.

Nodes are bound from the leaves up, so that every closure holds its children directly and a record travels by
plain calls; where a node is written as lines, the loop of its source holds them instead
(``sources_and_sinks.py``). A closure takes ``(key, value, _node=<name>)``; the default argument costs nothing
per call and lets :func:`~airflow_kstreams.streams.records.user_traceback.failing_node` read from a traceback
the node at which an error happened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, Call
from airflow_kstreams.streams.codegen.loop_code import Inlining, NodeCode, closure_of, forward_only
from airflow_kstreams.streams.figures.record_counts import Counters
from airflow_kstreams.streams.graph.calls import CallSpec, RetryPolicy, retry_store
from airflow_kstreams.streams.graph.components import (
    connected_stores,
    handing_to_functions,
    parents,
    table_changes,
)
from airflow_kstreams.streams.graph.nodes import Node, ProcessorNode, SinkNode, bound_operator, bound_to
from airflow_kstreams.streams.graph.services import Forward, TableView, TakeRecords, ignore_updates
from airflow_kstreams.streams.graph.stages import on_threads, stages_of
from airflow_kstreams.streams.graph.store_specs import RetryStoreSpec
from airflow_kstreams.streams.ports import ColumnsOf, Record, TopicPartition
from airflow_kstreams.streams.processor.processor_outputs import SendTarget
from airflow_kstreams.streams.records.dead_letter_format import (
    DeadLetters,
    Produce,
    RefusedResultError,
    leaving_out,
)
from airflow_kstreams.streams.records.error_handling import ErrorHandling
from airflow_kstreams.streams.records.kept_values import given_alone
from airflow_kstreams.streams.records.partition_group import MixedRun, RecordRun
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.record_queue import Closing, PartitionTimes, ReadTimestamps
from airflow_kstreams.streams.records.stream_clock import StreamClock, TaskWallClock
from airflow_kstreams.streams.records.timestamp_reading import ExtractedTimestamps, LatestAllowed, no_bound
from airflow_kstreams.streams.runtime.node_context import BoundNodeContext
from airflow_kstreams.streams.runtime.pipeline.call_nodes import delivery, plain_calls, refuse_long_calls
from airflow_kstreams.streams.runtime.pipeline.parking import Parking
from airflow_kstreams.streams.runtime.pipeline.repeated_calls import InPlace, Repeating
from airflow_kstreams.streams.runtime.pipeline.retries import Retries
from airflow_kstreams.streams.runtime.pipeline.stage_handoff import StageHandoff
from airflow_kstreams.streams.runtime.pipeline.stage_runner import NodeCallbacks, StagedTopology
from airflow_kstreams.streams.runtime.shared_values import watched
from airflow_kstreams.streams.runtime.sources_and_sinks import (
    KeyPlaces,
    RunBatch,
    RunMixed,
    Source,
    Time,
    mixed_loop,
    sink_code,
    source_loop,
)
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment, fan_out, topics_above
from airflow_kstreams.streams.runtime.window_closings import WindowClosings
from airflow_kstreams.streams.serde.serdes import plain_form
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.streams.topology.sending import send_target
from airflow_kstreams.streams.topology.topology import Subtopology, Topology, fed_by


class ProcessorTopology:
    """A bound subtopology.

    :param topology: the whole topology.
    :param subtopology: the part to bind.
    :param settings: the application's settings.
    :param task_id: id of the task, ``<subtopology>_<group>``.
    :param produce: function that sends one record.
    :param environment: clock, partition counts and limits.
    :param closings: name of a windowed store -> its closing in the last commit.
    """

    def __init__(
        self,
        topology: Topology,
        subtopology: Subtopology,
        *,
        settings: ApplicationSettings,
        task_id: str,
        produce: Produce,
        environment: TaskEnvironment,
        closings: Mapping[str, Closing],
    ) -> None:
        self.closings = WindowClosings(closings)
        self._topology = topology
        self._subtopology = subtopology
        self._application_id = settings.application_id
        self.task_id = task_id
        self.produce = produce
        #: Sends results; raises for a refused result where ``production.exception.handler`` leaves it out.
        self._send_result = (
            produce
            if settings.production_exception_handler == "fail"
            else leaving_out(produce, environment.refused)
        )
        self._places = KeyPlaces(environment)
        self._topic_ids = environment.topic_ids
        self.global_entries = environment.global_entries
        self.run_id = environment.run_id
        self.table_rows = environment.table_rows
        self._latest_allowed = environment.latest_allowed
        self._pause = environment.pause
        self._say_shared = environment.say_shared
        self._steady_ms = environment.steady_ms or environment.now_ms
        self.record_context = TaskRecordContext()
        if settings.num_threads_per_task > 1:
            subtopology = dataclasses.replace(
                subtopology, nodes=on_threads(subtopology.nodes, plain_calls(settings))
            )
            self._subtopology = subtopology
        #: The stages into which asynchronous nodes divide it; one stage if there are no such nodes.
        self.stages = stages_of(subtopology.nodes)
        #: Name of a table's node -> the table.
        self.tables: dict[str, TableView] = {}
        self.table_changes = table_changes(subtopology.nodes)
        self.handoff = StageHandoff(
            self.record_context,
            self.stages.last,
            task_id=task_id,
            implicit=settings.num_threads_per_task > 1,
        )
        self._settings = settings
        #: Its asynchronous nodes.
        self.async_nodes: list[AsyncNode] = []
        self._specs = {
            spec.name: bound_to(topology.changelog_topic(spec.name, self._application_id), spec)
            for spec in subtopology.stores
        }
        self.stores: dict[str, Any] = {
            name: make_store(spec, self.record_context) for name, spec in self._specs.items()
        }
        #: True if a node emits at commit points.
        self.cached = False
        #: Names of the nodes that go by stream time.
        self.timed_nodes: set[str] = set()
        #: True if a node may ask for commits.
        self.asks_for_commits = False
        self.commit_requested = False
        #: Name of the node that asked for a commit last.
        self.commit_asked_by = ""
        self.counters = Counters(self.stages.early)
        self._order = [node.name for node in subtopology.nodes]
        self._opens: dict[str, list[Callable[[], None]]] = {}
        self._flushes: dict[str, list[Callable[[], None]]] = {}
        self._closes: dict[str, list[Callable[[], None]]] = {}
        #: Node name -> real names of the source topics above it.
        self.topics_above = topics_above(topology, subtopology, self._application_id)
        topics = sorted(set().union(*self.topics_above.values()))
        #: The stream clock of each stage.
        self.clocks = [
            StreamClock(topics, self._order, self.record_context) for _ in range(self.stages.last + 1)
        ]
        self.wall_clocks = [
            TaskWallClock(environment.now_ms, self.record_context) for _ in range(self.stages.last + 1)
        ]
        #: The clock of the last stage, whose stream time is committed.
        self.clock = self.clocks[-1]
        self.wall_clock = self.wall_clocks[-1]
        self.errors = ErrorHandling(
            settings,
            task_id=task_id,
            nodes={node.name: node for node in subtopology.nodes},
            context=self.record_context,
            letters=DeadLetters(
                produce,
                topic=settings.dead_letter_topic,
                topic_ids=environment.topic_ids,
                fed_by=fed_by(topology, self._application_id),
                limit_bytes=environment.dead_letter_bytes,
            ),
            counters=self.counters,
            later=self._later if self.stages.last else None,
        )
        #: The state that the task's loops share.
        self.inlining = Inlining(self.record_context, self.counters)
        #: Makes columns of the records that come; None if nothing does.
        self.columns_of: ColumnsOf | None = None
        #: Real name of a topic -> (source node with the topic's serdes, its children).
        self._sources: dict[str, Source] = {}
        #: Names of the sources with one child.
        self._alone = given_alone(subtopology.nodes)
        self.handing_to_functions = handing_to_functions(subtopology.nodes)
        self._parkings: list[Parking] = []
        self._in_place: list[InPlace] = []
        self._parents = {node.name: parents(node) for node in subtopology.nodes}
        self._bind()
        for clock in self.clocks:
            clock.steps = len(self.timed_nodes) > 1 or self.stages.last > 0
        self._batches = {topic: self._loop(topic, source) for topic, source in self._sources.items()}
        self._run_mixed: RunMixed | None = None
        if len(self._sources) > 1 and not self._looks_at_each_record:
            self._run_mixed = mixed_loop(self._sources, self.errors, self.inlining)

    def read_timestamps(
        self, times: Mapping[TopicPartition, PartitionTimes], partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ReadTimestamps]:
        """Return partition -> the function that reads its records' timestamps, where an extractor gives them.

        :param times: partition -> its times as committed by earlier attempts and runs.
        :param partitions: the task's partitions.
        """
        reading: dict[TopicPartition, ReadTimestamps] = {}
        for partition in partitions:
            node, _ = self._sources[partition.topic]
            if node.timestamps is not None:
                latest_ms = times[partition].latest_ms if partition in times else -1
                reading[partition] = ExtractedTimestamps(
                    node,
                    node.timestamps,
                    latest_ms=latest_ms,
                    now_ms=self.wall_clock.now_ms,
                    allowed=self.latest_allowed(partition),
                    timed=self.timed,
                )
        return reading

    def latest_allowed(self, partition: TopicPartition) -> LatestAllowed:
        """Return the function that gives the latest timestamp that a partition's records may have."""
        node, _ = self._sources[partition.topic]
        if node.timestamps is not None and node.timestamps.function is None:
            return no_bound  # the wall clock's own time
        return self._latest_allowed(partition.topic)

    def run(self, chosen: RecordRun) -> int:
        """Run records through the topology.

        :return: their number: all of them, unless one asked for a commit.
        """
        run_batch = self._batches[chosen.partition.topic]
        return run_batch(chosen.records, chosen.timestamps_ms, chosen.stream_times_ms)

    @property
    def timed(self) -> bool:
        """True if a node goes by stream time."""
        return bool(self.timed_nodes)

    @property
    def mixes(self) -> bool:
        """True if records of several topics may be run together."""
        return self._run_mixed is not None

    def run_mixed(self, chosen: MixedRun) -> None:
        """Run records of several topics through the topology, if it :attr:`mixes`."""
        if self._run_mixed is None:
            raise RuntimeError(
                f"task {self.task_id} cannot run records of several topics together: it looks at each "
                "record's stream time"
            )
        self._run_mixed(chosen.records, chosen.timestamps_ms, chosen.topics)

    def open(self, time_ms: int) -> None:
        """Start every node, in topological order.

        :param time_ms: timestamp of their results, epoch milliseconds.
        """
        self.record_context.timestamp_ms = time_ms
        self._call(self._opens)

    def flush(self) -> None:
        """Make every cached node emit, in topological order."""
        self._call(self._flushes)

    def close(self, time_ms: int) -> None:
        """End every node, in topological order.

        :param time_ms: timestamp of their results, epoch milliseconds.
        """
        self.record_context.timestamp_ms = time_ms
        self._call(self._closes)

    @property
    def staged(self) -> StagedTopology:
        """The stages, for a pipeline."""
        of, last = self.stages.of, self.stages.last
        early: list[dict[str, Any]] = [{} for _ in range(last)]
        for node in self._subtopology.nodes:
            for name in connected_stores(node):
                parks = isinstance(self._specs[name], RetryStoreSpec)
                stage = self.stages.gives_in[node.name] if parks else of[node.name]
                if stage < last:
                    early[stage][name] = self.stores[name]
        return StagedTopology(
            stages=self.stages,
            handoff=self.handoff,
            context=self.record_context,
            clocks=self.clocks,
            wall_clocks=self.wall_clocks,
            stores=self.stores,
            early_stores=early,
            counters=self.counters,
            cached={node: of[node] for node in self._flushes},
            flushes=self._callbacks(self._flushes),
            opens=self._callbacks(self._opens),
            closes=self._callbacks(self._closes),
            requests=self,
            retries=Retries(
                self._parkings,
                self._in_place,
                now_ms=self._steady_ms,
                pause=self._pause,
                budget_ms=self._settings.retry_run_budget_ms,
            ),
            begin=self.run,
        )

    def clock_of(self, node: str) -> StreamClock:
        """Return the stream clock of a node's stage."""
        return self.clocks[self.stages.of[node]]

    def wall_clock_of(self, node: str) -> TaskWallClock:
        """Return the wall-clock timers of a node's stage."""
        return self.wall_clocks[self.stages.of[node]]

    def alone(self, node: str) -> bool:
        """Return True if sources decode a node's records for it alone."""
        return self._alone.issuperset(self._parents[node])

    def calls(
        self,
        node: str,
        spec: CallSpec,
        give: Callable[[Any, Any, Any], None],
        failed: Callable[[Exception], None] | None,
    ) -> Forward:
        """Make the closure of an asynchronous node.

        :param node: name of the node.
        :param spec: the function to call, with its options.
        :param give: function that takes key, value and the call's answer.
        :param failed: function that takes the error of a failed call; None for the processing handler.
        :raises ConfigError: its calls may take longer than ``run.stall.timeout.ms``.
        """
        refuse_long_calls(node, spec, self._settings, self.task_id)
        async_node = AsyncNode(
            node,
            spec,
            key_prefix=self._settings.key_prefix,
            topic_ids=self._topic_ids,
            task_id=self.task_id,
        )
        self.async_nodes.append(async_node)
        delivered = delivery(node, give, failed, self.errors.handle)
        async_node.failure_ends_task = failed is None and self.errors.handle is None
        if spec.options.retry is not None:
            return self._repeated(async_node, spec.options.retry, delivered)
        return self.handoff.calling(async_node, delivered, alone=self.alone(node))

    def _repeated(
        self, async_node: AsyncNode, policy: RetryPolicy, delivered: Callable[[Call], None]
    ) -> Forward:
        """Make the closure of an asynchronous node whose calls are made again."""
        node, context = async_node.name, self.record_context
        repeating = Repeating(
            async_node=async_node,
            policy=policy,
            stage=self.stages.gives_in[node],
            now_ms=self._steady_ms,
            context=context,
            delivered=delivered,
            letter=lambda error: self.errors.dead_letter(error, node),
        )
        if not async_node.options.parks:
            budget_ms = self._settings.retry_run_budget_ms
            in_place = InPlace(repeating, handoff=self.handoff, context=context, budget_ms=budget_ms)
            self._in_place.append(in_place)
            return in_place.forward()
        name = retry_store(node)
        spec = self._specs[name]
        if not isinstance(spec, RetryStoreSpec):
            raise TypeError(f"store {name!r} of a retrying node is a {spec.type} store")
        parking = Parking(
            repeating,
            spec=spec,
            topic=self._topology.changelog_topic(name, self._application_id),
            store=self.stores[name],
            handoff=self.handoff,
            context=context,
        )
        self._parkings.append(parking)
        return parking.forward()

    def send(
        self, node: str, topic: str, key: bytes | None, value: bytes | None, placed_by: bytes | None = None
    ) -> None:
        """Produce a record of a node to a topic, when the record being processed is released."""
        partition = self._places.partition(topic, key, placed_by)
        if not (self.stages.last and self._later(self._send, node, topic, key, value, partition)):
            self._send(node, topic, key, value, partition)

    def add_flush(self, node: str, callback: Callable[[], None]) -> None:
        """Register a commit point callback of a node; the task then has cached results."""
        self.cached = True
        self._flushes.setdefault(node, []).append(callback)

    def add_open(self, node: str, callback: Callable[[], None]) -> None:
        """Register a start callback of a node."""
        self._opens.setdefault(node, []).append(_ending(callback, node))

    def add_close(self, node: str, callback: Callable[[], None]) -> None:
        """Register an end callback of a node."""
        self._closes.setdefault(node, []).append(_ending(callback, node))

    def send_target(self, topic: str, node: str) -> SendTarget:
        """Return the target of a processor's records for a topic: its real name and serdes."""
        return send_target(self._topology, self._subtopology, self._application_id, topic, node)

    def _send(self, node: str, topic: str, key: bytes | None, value: bytes | None, partition: int) -> None:
        context = self.record_context
        try:
            self._send_result(topic, value, key, partition, context.timestamp_ms, context.headers())
        except RefusedResultError as error:
            self.errors.refused_result(error, node)
        else:
            self.counters.sent(topic)[0] += 1

    def _later(self, function: Callable[..., None], *arguments: Any) -> bool:
        """Postpone a call until the current record is released; return False if the record is in the last
        stage, where the caller calls at once.
        """
        handoff = self.handoff
        if handoff.early:
            handoff.later(handoff.last, function, *arguments)
        return handoff.early

    def _callbacks(self, callbacks: Mapping[str, Sequence[Callable[[], None]]]) -> NodeCallbacks:
        return [(name, callback) for name in self._order for callback in callbacks.get(name, ())]

    def _call(self, callbacks: Mapping[str, Sequence[Callable[[], None]]]) -> None:
        self.record_context.record = None
        for name in self._order:
            for callback in callbacks.get(name, ()):
                callback()

    def _bind(self) -> None:
        children: dict[str, dict[str, Forward]] = {node.name: {} for node in self._subtopology.nodes}
        for node in reversed(self._subtopology.nodes):
            below = dict(reversed(children[node.name].items()))
            if self._say_shared is not None and len(below) > 1:
                below = watched(node.name, below, self.inlining, self._say_shared)
            bound = self._bind_node(node, below)
            if isinstance(node, ProcessorNode | SinkNode):
                for parent in node.parents:
                    children[parent][node.name] = self._reached(parent, node.name, bound)

    def _reached(self, parent: str, node: str, bound: Forward) -> Forward:
        """Return the function that hands a parent's results to a node, perhaps of a later stage."""
        stage = self.stages.of[node]
        if self.stages.gives_in[parent] == stage or bound is ignore_updates:
            return bound
        return self.handoff.into(stage, bound, node, alone=parent in self._alone)

    def _bind_node(self, node: Node, below: dict[str, Forward]) -> Forward:
        forward = fan_out(tuple(below.values()))
        if isinstance(node, SinkNode):
            topic = self._topology.real_topic(node.topic, self._application_id)
            write = sink_code(bound_to(topic, node), topic, produce=self._send_result, places=self._places)
            return self._guarded(node, closure_of(self.inlining, NodeCode(node.name, {}, write), forward))
        # A node may bind to its only child, whose lines are known already.
        self.inlining.codes.setdefault(forward, NodeCode(node.name, below, forward_only))
        if isinstance(node, ProcessorNode):
            operator = bound_operator(
                node.operator,
                self._specs,
                lambda topic: self._topology.real_topic(topic, self._application_id),
            )
            context = BoundNodeContext(self, node)
            bound = operator.bind(forward, context, below)
            context.check_bound(passes_on=bound is forward)
            # A node that binds to its children, or to nothing, has no code of its own that could fail.
            quiet = bound is forward or bound is ignore_updates
            return bound if quiet else self._guarded(node, bound)
        for topic in node.topics:
            real_topic = self._topology.real_topic(topic, self._application_id)
            bound_source = bound_to(real_topic, node)
            self.errors.sources[real_topic] = bound_source
            self._sources[real_topic] = (bound_source, below)
        return forward

    @property
    def _looks_at_each_record(self) -> bool:
        """True if records are decoded ahead, or wait for others, or there may be a commit behind each."""
        ahead = any(node.timestamps is not None for node, _ in self._sources.values())
        return self.timed or self.asks_for_commits or ahead or self.stages.last > 0

    def _guarded(self, node: Node, run: Forward) -> Forward:
        guarded = self.errors.guarded(node.name, run)
        self.inlining.guarded(run, guarded, self.errors.handle_at(node.name))
        return guarded

    def _loop(self, topic: str, source: Source) -> RunBatch:
        """Make a source's loop, after every node is bound, so that the needs of all nodes are known."""
        clock, node = self.clocks[0], source[0]
        run_batch = source_loop(
            source,
            self.errors,
            self.inlining,
            time=Time(clock, clock.topics[topic]) if self.timed else None,
            requests=self if self.asks_for_commits else None,
            count_undated=None if node.timestamps is None else self.counters.counting(node.name, "undated"),
        )
        take = self._taking(source)
        if take is None:
            return run_batch
        context = self.record_context

        def run_in_columns(
            records: Sequence[Record], timestamps_ms: Sequence[int], stream_times_ms: Sequence[int]
        ) -> int:
            if self.columns_of is None or not take(records, timestamps_ms, self.columns_of):
                return run_batch(records, timestamps_ms, stream_times_ms)
            context.record, context.timestamp_ms = records[-1], timestamps_ms[-1]
            return len(records)

        return run_in_columns

    def _taking(self, source: Source) -> TakeRecords | None:
        """Return what takes the records of a source at once, in place of its loop: where all records are
        those of one topic, and one node below takes all of them and nothing else, as bytes or as text.
        """
        node, children = source
        if len(self._sources) > 1 or len(children) > 1 or self._looks_at_each_record:
            return None
        (child,) = children.values() or (ignore_updates,)
        code = self.inlining.codes.get(child)
        key_form, value_form = plain_form(node.key_serde), plain_form(node.value_serde)
        if code is None or code.taking is None or key_form is None or value_form is None:
            return None
        return code.taking(key_form == "text", value_form == "text")


def _ending(callback: Callable[[], None], node: str) -> Callable[[], None]:
    """Return a callback that starts or ends a node, with the node's name on an error's traceback."""

    def run(_ends: str = node) -> None:
        callback()

    return run
