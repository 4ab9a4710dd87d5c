"""The yardstick for the loops of sources: a loop that calls the closures of nodes for each record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from airflow_kstreams.streams.codegen.loop_code import Inlining
from airflow_kstreams.streams.records.error_handling import ErrorHandling
from airflow_kstreams.streams.records.timestamp_reading import as_consumed
from airflow_kstreams.streams.runtime import sources_and_sinks as engine
from airflow_kstreams.streams.runtime.sources_and_sinks import (
    CommitRequests,
    RunBatch,
    Source,
    Time,
    decoded_ahead,
)


def record_by_record(
    source: Source,
    errors: ErrorHandling,
    inlining: Inlining,
    *,
    time: Time | None = None,
    requests: CommitRequests | None = None,
    count_undated: Callable[[], None] | None = None,
) -> RunBatch:
    """Make the loop, given what ``source_loop`` takes."""
    node, children = source
    context = inlining.context

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
            if time is not None and time_ms > time.topic_clock.time_ms:
                time.clock.pass_time(time.topic_clock, time_ms)
            skipped = False
            try:
                if count_undated is None:
                    context.record = record
                    key, value = record.key(), record.value()
                    key = None if key is None else node.key_serde.deserialize(key)
                    value = None if value is None else node.value_serde.deserialize(value)
                else:
                    context.record = record.raw
                    key, value = decoded_ahead(record)
                    skipped = record.skipped
            except Exception as error:
                context.record = as_consumed(record)
                errors.undecodable(error, _node)
            else:
                if skipped and count_undated is not None:
                    count_undated()
                else:
                    for child in children.values():
                        child(key, value)
            if time is not None and time.topic_clock.time_ms >= time.topic_clock.due_ms:
                time.clock.fire()
            if requests is not None and requests.commit_requested:
                break
        return count

    # A line of the engine, not of a user, for the texts of errors.
    run_batch.__code__ = run_batch.__code__.replace(co_filename=engine.__file__)
    return run_batch
