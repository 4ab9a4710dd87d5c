"""The stages of a bound subtopology, as a pipeline needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_kstreams.streams.codegen.source_loop import CommitRequests
from airflow_kstreams.streams.figures.record_counts import Counters
from airflow_kstreams.streams.graph.stages import Stages
from airflow_kstreams.streams.records.partition_group import RecordRun
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.stream_clock import StreamClock
from airflow_kstreams.streams.records.wall_clock import TaskWallClock
from airflow_kstreams.streams.runtime.pipeline.retries import Retries
from airflow_kstreams.streams.runtime.pipeline.stage_handoff import StageHandoff

#: Nodes and their callbacks for one event, in topological order.
NodeCallbacks = Sequence[tuple[str, Callable[[], None]]]


class StagedTopology(NamedTuple):
    """The stages of a bound subtopology, and what belongs to each.

    :param clocks: stream time of each stage.
    :param wall_clocks: wall-clock timers of each stage.
    :param stores: every store by name.
    :param early_stores: the logged stores of each stage but the last, by name.
    :param cached: node -> stage, of the nodes that emit at commit points.
    :param flushes: emit at commit points.
    :param opens: let the processors start.
    :param closes: let the processors close.
    :param requests: whether user code asks for a commit.
    :param retries: what is called again.
    :param begin: runs a record through the first stage.
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
