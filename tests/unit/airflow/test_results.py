from __future__ import annotations

import json

import pytest

from airflow_kstreams.batch.model import FrozenPartition, RunPlan, RunSummary, Slice, TaskReport
from airflow_kstreams.hooks.results import MAX_RESULT_BYTES, result_of_slice, result_of_summary
from airflow_kstreams.streams.topology.plan import TopologyPlan


def _inputs(topics: int, partitions: int = 2) -> tuple[FrozenPartition, ...]:
    return tuple(
        FrozenPartition(
            topic=f"{'long-topic-name-' * 10}{topic}",
            partition=number,
            start_offset=10,
            stop_offset=10 + topic,
        )
        for topic in range(topics)
        for number in range(partitions)
    )


def _slice(inputs: tuple[FrozenPartition, ...]) -> Slice:
    plan = RunPlan(
        topology=TopologyPlan(application_id="app", topology_hash="h", subtopologies=()),
        partitions={},
        topic_ids={},
        tasks={},
        stop_hash="s",
        transactional_ids=(),
        begun_ms=1,
    )
    return Slice(run_id="r", generation=3, plan=plan, inputs=inputs)


def test_totals_are_per_topic_and_exact_when_a_slice_has_begun() -> None:
    result = result_of_slice(_slice(_inputs(3)))

    assert (result["run_id"], result["application_id"], result["generation"]) == ("r", "app", 3)
    assert result["record_span"] == 2 * (0 + 1 + 2)
    assert sorted(result["records_per_topic"].values()) == [0, 2, 4]
    assert not result["finished"]


@pytest.mark.parametrize("topics", [1, 15, 500])
def test_result_fits_and_keeps_the_largest_topics_when_there_are_many(topics: int) -> None:
    result = result_of_slice(_slice(_inputs(topics)))

    assert len(json.dumps(result).encode()) <= MAX_RESULT_BYTES
    assert result["topics_omitted"] + len(result["records_per_topic"]) == topics
    assert result["record_span"] == sum(2 * topic for topic in range(topics))
    assert max(result["records_per_topic"].values()) == 2 * (topics - 1)


def test_records_of_all_tasks_count_when_a_run_is_finished() -> None:
    summary = RunSummary(
        run_id="r",
        application_id="app",
        begun_ms=1,
        finished_ms=2,
        generation=1,
        empty=False,
        inputs=_inputs(2),
        tasks=(
            TaskReport(task_id="0_0", records_in=4, records_out=2),
            TaskReport(task_id="1_0", records_in=2),
        ),
    )

    result = result_of_summary(summary)

    assert result["finished"]
    assert (result["records_in"], result["records_out"]) == (6, 2)
