"""Runs one stage of a bound subtopology for one record.

Rule: first time passes (``stream_clock.py``): effects of timers that earlier stages called back ahead of the
record come among the stage's own timers in the order of their moments, with the stream time of these. Then
come the pending effects of the record itself, in their order; then those of timers behind it; then those that
waited for a commit point. After a stage before the last, its changes of stores and its counts are taken out,
and kept with the record until its release.

Invariant: outside of :meth:`StageRunner.run`, every change of a store of an early stage is with its record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_kstreams.streams.errors import KStreamsError, TopologyError
from airflow_kstreams.streams.figures.record_counts import Counters
from airflow_kstreams.streams.graph.stages import Stages
from airflow_kstreams.streams.records.partition_group import RecordRun
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.stream_clock import StreamClock, TaskWallClock, TopicClock
from airflow_kstreams.streams.runtime.pipeline.in_flight_record import InFlightRecord, PendingEffect
from airflow_kstreams.streams.runtime.pipeline.retries import Retries
from airflow_kstreams.streams.runtime.pipeline.stage_handoff import StageHandoff
from airflow_kstreams.streams.runtime.sources_and_sinks import CommitRequests


class StageRunner:
    """Runs the stages of one task.

    :param topology: the stages.
    :ivar failing: True if a record in flight will fail the task.
    """

    def __init__(self, topology: StagedTopology) -> None:
        self._topology = topology
        self._handoff = topology.handoff
        self._context = topology.context
        self._last = topology.stages.last
        self._clocks = topology.clocks
        self._take_early = topology.counters.take_early
        self._early_stores = [*(tuple(stores.items()) for stores in topology.early_stores), ()]
        self._requests = topology.requests
        self.failing = False

    def run(self, flight: InFlightRecord, stage: int, chosen: RecordRun | None = None) -> None:
        """Run a stage for a record in flight.

        :param flight: the record in flight.
        :param stage: number of the stage.
        :param chosen: the consumed record for the first stage; None in later ones.
        """
        handoff, context = self._handoff, self._context
        clock = self._clocks[stage]
        handoff.flight, handoff.stage, handoff.clock = flight, stage, clock
        try:
            effects = flight.effects
            handoff.effects = flight.effects = []
            context.branch = ""
            topic_clock = clock.topics.get(flight.topic)
            if topic_clock is not None and flight.time_ms > topic_clock.time_ms:
                effects = self._pass_time(effects, stage, topic_clock)
            if chosen is not None:
                self._topology.begin(chosen)
            if effects:
                for effect in effects:
                    if effect.moment is not None:
                        self._do_with_timed(effects, stage)
                        break
                else:
                    self._do(effects, stage)
                    context.timestamp_ms = flight.timestamp_ms
            else:
                handoff.moment, context.replaced_headers, context.branch = None, None, ""
                context.timestamp_ms = flight.timestamp_ms
            if topic_clock is not None and topic_clock.time_ms >= topic_clock.due_ms:
                clock.fire()
            if flight.point or flight.at_end or self._requests.commit_requested:
                self._at_end(flight, stage)
        except KStreamsError:
            raise
        except Exception as error:
            if stage == self._last:
                raise
            # The records before this one are released, and committed if that is due, before the task fails.
            self.failing = True
            handoff.later(self._last, _fail, error)
        self._take_effects(flight, stage)

    def _do(self, effects: Sequence[PendingEffect], stage: int) -> None:
        handoff, context = self._handoff, self._context
        later = handoff.effects
        for effect in effects:
            if effect.stage == stage:
                handoff.moment = effect.moment
                effect.run(context)
            else:
                later.append(effect)
        handoff.moment = None
        context.replaced_headers = None
        context.branch = ""

    def _pass_time(
        self, effects: list[PendingEffect], stage: int, topic_clock: TopicClock
    ) -> list[PendingEffect]:
        """Bring stream time to the record's, and run the effects of timers of earlier stages ahead of it,
        among the timers of this stage in the order of their moments.

        :return: the effects that are left to run.
        """
        flight, clock = self._handoff.flight, self._clocks[stage]
        to_ms, number = flight.time_ms, 0
        for effect in effects:
            if effect.moment is None or effect.moment[0]:
                break
            self._context.replaced_headers = None
            clock.pass_time(topic_clock, to_ms, effect.moment)
            self._do([effect], stage)
            number += 1
        if to_ms < topic_clock.due_ms:
            topic_clock.time_ms = to_ms
        else:
            self._context.replaced_headers = None
            clock.pass_time(topic_clock, to_ms)
        return effects[number:] if number else effects

    def _do_with_timed(self, effects: Sequence[PendingEffect], stage: int) -> None:
        """Run the record's own effects, then those of timers of earlier stages behind it, among the timers of
        this stage in the order of their moments.
        """
        context, clock = self._context, self._clocks[stage]
        timestamp_ms = self._handoff.flight.timestamp_ms
        self._do([effect for effect in effects if effect.moment is None], stage)
        context.timestamp_ms = timestamp_ms
        for effect in effects:
            if effect.moment is not None:
                clock.fire(effect.moment)
                self._do([effect], stage)
                context.timestamp_ms = timestamp_ms

    def _at_end(self, flight: InFlightRecord, stage: int) -> None:
        """End a stage behind a record: emit the results that waited for a commit point."""
        topology, context = self._topology, self._context
        of = topology.stages.of
        at_end, later = [*flight.at_end], list[PendingEffect]()
        flight.at_end = self._handoff.effects = later
        requested = topology.requests.commit_requested
        if requested:
            topology.requests.commit_requested = False
            flight.commit = True
        if (requested and not flight.point) or (flight.point and stage == 0):
            self._refuse_unready_flush(stage)
            flight.point = True
            context.record = None
            at_end += [
                PendingEffect(of[node], context, flush, ())
                for node, flush in topology.flushes
                if of[node] >= stage
            ]
        self._do(at_end, stage)
        if topology.requests.commit_requested:
            topology.requests.commit_requested = False
            flight.commit = True

    def _refuse_unready_flush(self, stage: int) -> None:
        topology = self._topology
        ahead = [(node, at) for node, at in topology.cached.items() if at < stage]
        if not ahead:
            return
        table, table_stage = ahead[0]
        stages = topology.stages
        calling = [
            repr(node)
            for node, at in stages.of.items()
            if table_stage <= at < stage and stages.gives_in[node] > at
        ]
        raise TopologyError(
            f"processor {topology.requests.commit_asked_by!r} asks for a commit below "
            f"the asynchronous {', '.join(calling)}, and above that {table!r} emits at commit points: by "
            "then it has seen later records",
            fix="give the table's store cached=False, or ask for the commit above what is asynchronous",
        )

    def _take_effects(self, flight: InFlightRecord, stage: int) -> None:
        """Keep the changes and counts of a stage before the last until the flight is released."""
        counts = self._take_early()
        if counts:
            flight.counts = [*flight.counts, *counts]
        for name, store in self._early_stores[stage]:
            if store.undrained_count():
                changes = list(store.drain_changes())
                flight.changes = [*flight.changes, (name, changes)]
                flight.size_bytes += sum(len(key) + len(value or b"") for key, value, _ in changes)


def _fail(error: Exception) -> None:
    raise error


#: Nodes and their callbacks for one event, in topological order.
NodeCallbacks = Sequence[tuple[str, Callable[[], None]]]


class StagedTopology(NamedTuple):
    """The stages of a bound subtopology, with the parts of each.

    :param stages: the stage of each node.
    :param handoff: the work kept for later stages.
    :param context: the record being processed.
    :param clocks: the stream clock of each stage.
    :param wall_clocks: the wall-clock timers of each stage.
    :param stores: store name -> the store.
    :param early_stores: for each stage but the last, name of a logged store -> the store.
    :param counters: the task's counters.
    :param cached: node that emits at commit points -> its stage.
    :param flushes: callbacks that emit at commit points.
    :param opens: callbacks that start the processors.
    :param closes: callbacks that close the processors.
    :param requests: the requests of user code for commits.
    :param retries: the calls that are made again.
    :param begin: function that runs records through the first stage and returns their number.
    """

    stages: Stages
    handoff: StageHandoff
    context: TaskRecordContext
    clocks: Sequence[StreamClock]
    wall_clocks: Sequence[TaskWallClock]
    stores: Mapping[str, Any]
    early_stores: Sequence[Mapping[str, Any]]
    counters: Counters
    cached: Mapping[str, int]
    flushes: NodeCallbacks
    opens: NodeCallbacks
    closes: NodeCallbacks
    requests: CommitRequests
    retries: Retries
    begin: Callable[[RecordRun], int]
