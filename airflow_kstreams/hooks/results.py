"""What operators and sensors leave in XCom: small, typed, never read back to decide anything (Kafka is asked
for that).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import TypedDict

from airflow_kstreams.batch.model import FrozenPartition, RunSummary, Slice

__all__ = ["RunResult"]

#: Largest result in bytes of JSON: what lies in Airflow's database and travels with every look at the task.
MAX_RESULT_BYTES = 4_000


class RunResult(TypedDict):
    """A run as one operator saw it.

    :param run_id: the run.
    :param application_id: whose run it is.
    :param generation: number of drivers that have taken it.
    :param finished: whether the finished marker is written.
    :param empty: whether there was nothing new.
    :param record_span: sum of stop - start offsets over the inputs, an upper bound of the records to read.
    :param records_per_topic: the same per input topic, largest first.
    :param topics_omitted: how many topics did not fit.
    :param records_in: records that the tasks consumed, 0 until finished.
    :param records_out: records that the tasks sent, 0 until finished.
    """

    run_id: str
    application_id: str
    generation: int
    finished: bool
    empty: bool
    record_span: int
    records_per_topic: dict[str, int]
    topics_omitted: int
    records_in: int
    records_out: int


def result_of_slice(slice_: Slice) -> RunResult:
    """Describe a slice that has begun."""
    return _fitted(
        RunResult(
            run_id=slice_.run_id,
            application_id=slice_.plan.topology.application_id,
            generation=slice_.generation,
            finished=False,
            empty=slice_.plan.empty,
            record_span=slice_.record_span,
            records_per_topic=_per_topic(slice_.inputs),
            topics_omitted=0,
            records_in=0,
            records_out=0,
        )
    )


def result_of_summary(summary: RunSummary) -> RunResult:
    """Describe a finished run."""
    per_topic = _per_topic(summary.inputs)
    return _fitted(
        RunResult(
            run_id=summary.run_id,
            application_id=summary.application_id,
            generation=summary.generation,
            finished=True,
            empty=summary.empty,
            record_span=sum(per_topic.values()),
            records_per_topic=per_topic,
            topics_omitted=0,
            records_in=summary.records_in,
            records_out=summary.records_out,
        )
    )


def _per_topic(inputs: Iterable[FrozenPartition]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for partition in inputs:
        totals[partition.topic] += partition.stop_offset - partition.start_offset
    return dict(totals.most_common())


def _fitted(result: RunResult) -> RunResult:
    topics = list(result["records_per_topic"].items())
    while topics and len(json.dumps(result)) > MAX_RESULT_BYTES:
        topics.pop()
        result["records_per_topic"] = dict(topics)
        result["topics_omitted"] += 1
    return result
