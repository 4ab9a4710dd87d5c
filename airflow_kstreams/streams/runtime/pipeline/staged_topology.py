"""What a record passes through that does not run through a bound subtopology at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from airflow_kstreams.streams.figures.record_counts import Counters
from airflow_kstreams.streams.graph.stages import Stages
from airflow_kstreams.streams.records.partition_group import RecordRun
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.stream_clock import StreamClock
from airflow_kstreams.streams.records.wall_clock import TaskWallClock
from airflow_kstreams.streams.runtime.pipeline.crossings import Crossings
from airflow_kstreams.streams.runtime.pipeline.retries import Retries

#: What each node does when something happens, in topological order.
NodeCallbacks = Sequence[tuple[str, Callable[[], None]]]


class CommitRequests(Protocol):
    """Where user code leaves that it asks for a commit."""

    commit_requested: bool
    commit_asked_by: str


class StagedTopology(NamedTuple):
    """The stages of a bound subtopology, and what belongs to each.

    :param clocks: stream time of each stage.
    :param wall_clocks: wall-clock timers of each stage.
    :param early_stores: the logged stores of each stage but the last, by name.
    :param cached: node -> stage, of the nodes that emit at commit points.
    :param flushes: emit at commit points.
    :param requests: whether user code asks for a commit.
    :param retries: what is called again.
    :param begin: runs a record through the first stage.
    """

    stages: Stages
    crossings: Crossings
    context: TaskRecordContext
    clocks: Sequence[StreamClock]
    wall_clocks: Sequence[TaskWallClock]
    early_stores: Sequence[Mapping[str, Any]]
    counters: Counters
    cached: Mapping[str, int]
    flushes: NodeCallbacks
    requests: CommitRequests
    retries: Retries
    begin: Callable[[RecordRun], int]
