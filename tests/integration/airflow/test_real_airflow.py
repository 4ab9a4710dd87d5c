"""The example DAGs on ``airflow standalone``: a real scheduler, triggerer, DAG processor and API server, with
SQLite. One deployment for all tests; each adds days of its own, so they need no order.

``dev/test`` runs the whole path once, and each further story on PostgreSQL; ``dev/prove`` these here, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.airflow.deployment import Deployment, deployed
from tests.integration.airflow.scenarios import (
    backfill_goes_on_beside_the_live_schedule,
    failed_run_ends_at_its_own_stops_when_cleared,
    increments_add_up_and_are_told_once,
    nothing_changes_when_a_finished_run_is_cleared,
    repeated_event_is_the_same_and_ignored,
    sensor_and_watcher_go_on,
)

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, airflow_database: Path) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("real-airflow"), airflow_database, standalone=True) as running:
        yield running


def test_results_add_up_and_each_run_is_told_once_when_past_increments_run(
    deployment: Deployment,
) -> None:
    increments_add_up_and_are_told_once(deployment)


@pytest.mark.prove
def test_nothing_is_lost_or_told_twice_when_the_triggerer_is_killed(deployment: Deployment) -> None:
    sensor_and_watcher_go_on(deployment, "while-dead")
    repeated_event_is_the_same_and_ignored(deployment, "while-dead")


@pytest.mark.prove
def test_failed_run_ends_at_its_own_stop_offsets_when_it_is_cleared_and_more_has_arrived(
    deployment: Deployment,
) -> None:
    failed_run_ends_at_its_own_stops_when_cleared(deployment)


@pytest.mark.prove
def test_nothing_changes_when_a_finished_run_is_cleared(deployment: Deployment) -> None:
    nothing_changes_when_a_finished_run_is_cleared(deployment)


def test_openlineage_is_told_topics_offsets_and_counts_when_tasks_end(deployment: Deployment) -> None:
    run = deployment.finished_run()

    # Airflow tells the listener after the task's state is stored.
    deployment.airflow.wait(
        lambda: [event["eventType"] for event in deployment.lineage(run.run_id).values()] == ["COMPLETE"] * 3,
        "all three tasks told that they are complete",
    )

    told = deployment.lineage(run.run_id)
    assert set(told) == {"capture_stop_offsets", "run_topology", "finish_run"}
    for event in told.values():
        offsets = {one["name"]: one["inputFacets"]["kstreams_offsets"]["offsets"] for one in event["inputs"]}
        assert offsets == {
            topic: {
                str(part.partition): [part.start_offset, part.stop_offset]
                for part in run.inputs
                if part.topic == topic
            }
            for topic in ("airlines", "flights", "weather")
        }
        assert [one["name"] for one in event["outputs"]] == ["carrier-delays"]
        assert event["outputs"][0]["namespace"] == f"kafka://{deployment.bootstrap}"
    (output,) = told["finish_run"]["outputs"]
    written = sum(task.records_out for task in run.tasks if task.task_id.startswith("1_"))
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == written
    facet = told["finish_run"]["run"]["facets"]["kstreams_run"]
    assert (facet["run_id"], facet["records_in"]) == (run.run_id, run.records_in)


@pytest.mark.prove
def test_backfill_gives_the_same_results_elsewhere_while_the_live_schedule_goes_on(
    deployment: Deployment,
) -> None:
    backfill_goes_on_beside_the_live_schedule(deployment)
