from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.ledger.run_summary import RunSummary, SubtopologyTopics
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.replay_records import Replay
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, LedgerSeen, RunPlan, Slice
from airflow_kstreams.batch.report.results import (
    MAX_RESULT_BYTES,
    new_data_result,
    replay_result,
    reset_result,
    result_of_slice,
    result_of_summary,
    stop_offsets_result,
)
from airflow_kstreams.batch.reset.reset_plan import OffsetChange, ResetPlan, ResetRequest
from airflow_kstreams.streams.figures.record_counts import LeftOut, RecordCounts
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan

pytestmark = pytest.mark.promise("results-are-small")


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
    reading = SubtopologyPlan(id=0, sources=tuple(sorted({part.topic for part in inputs})), sinks=("out",))
    plan = RunPlan(
        topology=TopologyPlan(application_id="app", topology_hash="h", subtopologies=(reading,)),
        partitions={},
        topic_ids={},
        tasks={},
        stop_hash="s",
        begun_ms=1,
        ledger=LedgerSeen(topic_id="id", end=0),
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


@pytest.mark.parametrize("topics", [1, 700])
def test_every_kind_of_result_fits_when_there_are_many_topics_and_partitions(topics: int) -> None:
    inputs = _inputs(topics, partitions=20)
    tasks = tuple(TaskReport(task_id=f"0_{group}", records_in=1) for group in range(500))
    run_id = "manual__" + "\N{SNOWMAN}" * 150
    summary = RunSummary(
        run_id=run_id,
        application_id="app",
        begun_ms=1,
        finished_ms=2,
        generation=1,
        empty=False,
        inputs=inputs,
        tasks=tasks,
    )
    known = RecordCounts(
        read={topic: 1_000_000 + n for n, topic in enumerate({part.topic for part in inputs})},
        written={f"{'long-topic-name-' * 10}out-{n}": 1 for n in range(topics)},
        left_out=tuple(LeftOut(f"{'long-node-name-' * 10}{n}", "late", 7) for n in range(topics)),
    )
    counts = {part.topic: part.stop_offset for part in inputs}
    replay = Replay(
        replay_id=run_id,
        dead_letter_topic="app-dead-letter",
        topic_id="t",
        begun_ms=1,
        stops={},
        records_per_topic=counts,
    )
    changes = tuple(OffsetChange(partition=p.topic_partition, before=0, asked=1, after=1) for p in inputs)
    done = ResetPlan(request=ResetRequest(application_id="app"), offsets=changes)
    stops = {part.topic_partition: part.stop_offset for part in inputs}
    results: list[Any] = [
        result_of_slice(_slice(inputs), tasks),
        result_of_summary(summary),
        result_of_summary(msgspec.structs.replace(summary, counts=known)),
        replay_result("app", replay),
        reset_result(done),
        new_data_result("app", counts, 1),
        stop_offsets_result("app", run_id, 0, stops),
    ]

    for result in results:
        assert len(json.dumps(result).encode()) <= MAX_RESULT_BYTES
        if "topics_omitted" in result:
            per_topic = next(value for name, value in result.items() if name.endswith("_per_topic"))
            assert len(per_topic) + result["topics_omitted"] in (topics, topics - 1)
            assert per_topic
    assert results[3]["records"] == sum(counts.values())
    assert (results[0]["records_in"], results[1]["records_in"]) == (None, None), "not known"
    assert (results[1]["records_late"], results[1]["left_out"]) == (None, None), "not known"
    assert results[2]["records_late"] == 7 * topics
    told = sum(len(results[2][name]) for name in ("left_out", "read_per_topic", "written_per_topic"))
    assert told + results[2]["counts_omitted"] == 3 * topics


def test_records_of_all_tasks_count_when_a_run_is_finished() -> None:
    summary = RunSummary(
        run_id="r",
        application_id="app",
        begun_ms=1,
        finished_ms=2,
        generation=1,
        empty=False,
        inputs=_inputs(2),
        topics=(
            SubtopologyTopics(id=0, sources=("in",), sinks=("between", "out")),
            SubtopologyTopics(id=1, sources=("between", "more"), sinks=("out",)),
        ),
        counts=RecordCounts(read={"in": 4, "between": 3, "more": 2}, written={"between": 3, "out": 2}),
    )

    result = result_of_summary(summary)

    assert result["finished"]
    assert (result["records_in"], result["records_out"]) == (6, 2)
