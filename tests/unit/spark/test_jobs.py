from __future__ import annotations

import json

from airflow_kstreams.spark.jobs import dependencies, error_in, spread
from airflow_kstreams.streams.errors import ERROR_MARKER, TaskFencedError
from airflow_kstreams.streams.topology.plan import SubtopologyPlan, TopologyPlan


def plan(*edges: tuple[int, tuple[str, ...], tuple[str, ...]]) -> TopologyPlan:
    return TopologyPlan(
        application_id="app",
        topology_hash="h",
        subtopologies=tuple(
            SubtopologyPlan(id=i, sources=sources, sinks=sinks) for i, sources, sinks in edges
        ),
    )


def test_subtopology_waits_for_every_writer_when_it_reads_an_intermediate_topic() -> None:
    diamond = plan(
        (0, ("in",), ("l", "r")), (1, ("l",), ("out",)), (2, ("r",), ("out",)), (3, ("out",), ("end",))
    )
    assert dependencies(diamond) == {0: set(), 1: {0}, 2: {0}, 3: {1, 2}}


def test_each_group_has_a_partition_of_its_own_when_one_thread_is_allowed() -> None:
    assert spread([0, 2, 5], 1) == ((0,), (2,), (5,))


def test_groups_share_partitions_when_more_threads_are_allowed() -> None:
    assert spread([0, 1, 2, 3, 4], 2) == ((0, 3), (1, 4), (2,))
    assert sorted(group for part in spread(range(7), 3) for group in part) == list(range(7))


def test_last_noted_error_is_found_when_spark_wraps_it_in_a_trace() -> None:
    def noted(cause: str) -> str:
        error = TaskFencedError(cause, fix="wait", task_id="0_1")
        return f"  TaskFencedError: {cause}\n{ERROR_MARKER}{json.dumps(error.to_dict())}"

    text = (
        f"An exception was thrown\n{noted('first')}\n\tat org.apache.spark\n{noted('second')}\n\tat java.lang"
    )
    found = error_in(text)
    assert found is not None
    assert (found.error_type, found.cause, found.fix) == ("TaskFencedError", "second", "wait")


def test_no_error_is_found_when_the_trace_is_sparks_own() -> None:
    assert error_in("java.lang.OutOfMemoryError\n\tat x.y") is None
