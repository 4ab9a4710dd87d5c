"""The loop that runs a batch of one topic's records through the topology, whatever the topology needs.

It decodes and forwards; it lets stream time pass ahead of each record and punctuations come behind it, hands
undecodable records to a handler, and stops after the record that asked for a commit. A task that asks for no
commits, has one stage and reads no timestamps from values has the loop of ``fused_loop.py`` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

from airflow_kstreams.streams.graph.nodes import SourceNode
from airflow_kstreams.streams.graph.services import Forward
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.records.error_handling import ErrorHandling
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.stream_clock import StreamClock, TopicClock
from airflow_kstreams.streams.records.timestamp_reading import ReadRecord, as_consumed

#: Runs records with their timestamps and stream times, and returns how many of them it ran: all, unless one
#: asked for a commit.
RunBatch = Callable[[Sequence[Record], Sequence[int], Sequence[int]], int]


class CommitRequests(Protocol):
    """Whether user code asked for a commit."""

    commit_requested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepping:
    """What the stepping loop looks after between two records.

    :param clock: of the task.
    :param topic_clock: of the topic.
    :param requests: the loop stops after the record that made a request.
    :param errors: takes records that cannot be decoded.
    :param count_undated: counts what a timestamp extractor skips.
    :param read_ahead: whether records come decoded, as :class:`ReadRecord`.
    """

    clock: StreamClock
    topic_clock: TopicClock
    requests: CommitRequests
    errors: ErrorHandling
    count_undated: Callable[[], None]
    read_ahead: bool


def stepping_loop(
    node: SourceNode, forward: Forward, context: TaskRecordContext, stepping: Stepping
) -> RunBatch:
    """Make the loop; what a task does not ask for costs it little more than time."""
    deserialize_key = node.key_serde.deserialize
    deserialize_value = node.value_serde.deserialize
    clock, topic_clock, requests = stepping.clock, stepping.topic_clock, stepping.requests
    undecodable, count_undated = stepping.errors.undecodable, stepping.count_undated
    read_ahead = stepping.read_ahead

    def run_batch(
        records: Sequence[Any],
        timestamps_ms: Sequence[int],
        stream_times_ms: Sequence[int],
        _node: str = node.name,
    ) -> int:
        count = 0
        for record, timestamp_ms, time_ms in zip(
            records, timestamps_ms, stream_times_ms or repeat(-1), strict=False
        ):
            count += 1
            context.timestamp_ms = timestamp_ms
            if time_ms > topic_clock.time_ms:
                if time_ms >= topic_clock.due_ms:
                    clock.pass_time(topic_clock, time_ms)
                else:
                    topic_clock.time_ms = time_ms
            try:
                if read_ahead:
                    context.record = record.raw
                    key, value, skipped = decoded_ahead(record)
                else:
                    context.record = record
                    key = record.key()
                    key = None if key is None else deserialize_key(key)
                    value = record.value()
                    value = None if value is None else deserialize_value(value)
                    skipped = False
            except Exception as error:
                context.record = as_consumed(record)
                undecodable(error, _node)
            else:
                if skipped:
                    count_undated()
                else:
                    forward(key, value)
            if topic_clock.time_ms >= topic_clock.due_ms:
                clock.fire()
            if requests.commit_requested:
                break
        return count

    return run_batch


def decoded_ahead(record: ReadRecord) -> tuple[Any, Any, bool]:
    """Return key, value, and whether the record is to be skipped.

    :raises Exception: whatever kept it from being decoded.
    """
    if record.error is not None:
        raise record.error
    return record.key, record.value, record.skipped
