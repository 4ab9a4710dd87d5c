"""The example DAGs on a real scheduler, triggerer, DAG processor and API server, each started by itself, with
PostgreSQL.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.flight_demo.publisher import create_topics
from dev.servers.postgres import postgres
from tests.conftest import Row, read_rows
from tests.integration.airflow.deployment import COPIED, SIDE_BY_SIDE, Deployment, deployed
from tests.integration.airflow.scenarios import (
    backfill_goes_on_beside_the_live_schedule,
    failed_run_ends_at_its_own_stops_when_cleared,
    increments_add_up_and_are_told_once,
    nothing_changes_when_a_finished_run_is_cleared,
    pages_show_what_kafka_has,
    repeated_event_is_the_same_and_ignored,
    sensor_and_watcher_go_on,
)
from tests.support.airflow.airflow_environment import DAG_FOLDERS

_DAY_MS = 86_400_000
#: The first two days of 2013.
_START_MS, _END_MS = 1_356_998_400_000, 1_356_998_400_000 + 2 * _DAY_MS

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, airflow_database: Path) -> Iterator[Deployment]:
    with postgres() as address:
        database = {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": address,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": address,
        }
        subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            check=True,
            capture_output=True,
            env=os.environ | database,
            timeout=180,
        )
        folder = tmp_path_factory.mktemp("real-airflow-postgresql")
        meeting = tmp_path_factory.mktemp("meeting")
        with deployed(
            folder,
            airflow_database,
            database=address,
            dag_folders=DAG_FOLDERS,
            more={"KSTREAMS_TEST_MEETING": str(meeting), **database},
        ) as running:
            yield running


@pytest.fixture(autouse=True)
def _between_scheduled_runs(deployment: Deployment) -> None:
    deployment.await_no_scheduled_run()


def test_results_add_up_and_each_run_is_told_once_when_past_increments_run(
    deployment: Deployment,
) -> None:
    increments_add_up_and_are_told_once(deployment)


def test_pages_show_what_kafka_has(deployment: Deployment) -> None:
    pages_show_what_kafka_has(deployment)


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


@pytest.mark.prove  # dev/test has watchers that were down (unit/airflow/test_finished_runs.py)
@pytest.mark.promise("watchers-miss-nothing")
def test_nothing_is_lost_or_told_twice_when_the_triggerer_is_killed(deployment: Deployment) -> None:
    sensor_and_watcher_go_on(deployment, "while-dead")
    repeated_event_is_the_same_and_ignored(deployment, "while-dead")


@pytest.mark.prove  # dev/test clears a failed run of the example DAG (test_examples.py)
def test_failed_run_ends_at_its_own_stop_offsets_when_it_is_cleared(deployment: Deployment) -> None:
    failed_run_ends_at_its_own_stops_when_cleared(deployment)


@pytest.mark.prove  # dev/test has it in test_backfills.py
def test_backfill_gives_the_same_results_elsewhere_while_the_live_schedule_goes_on(
    deployment: Deployment,
) -> None:
    backfill_goes_on_beside_the_live_schedule(deployment)


def test_nothing_changes_when_a_finished_run_is_cleared(deployment: Deployment) -> None:
    nothing_changes_when_a_finished_run_is_cleared(deployment)


@pytest.mark.prove  # dev/test backfills hours beside live runs, and in order, in test_backfills.py
@pytest.mark.promise("backfills-keep-to-their-interval")
def test_days_of_a_stateless_topology_are_backfilled_right_when_their_runs_overlap(
    deployment: Deployment,
) -> None:
    while deployment.days < 2:
        deployment.publish_day()
    create_topics(deployment.bootstrap, [COPIED])

    deployment.create_backfill(SIDE_BY_SIDE, days=2, max_active_runs=2)
    deployment.backfilled(SIDE_BY_SIDE, days=2)

    # Each run is the only one of an application of its own, and began before the other had finished.
    ledgers = deployment.ledgers(f"{COPIED}-backfill-")
    assert len(ledgers) == 2
    first, second = sorted(
        (run for ledger in ledgers.values() for run in ledger.all_runs().values()),
        key=lambda run: run.interval_ms or (),
    )
    assert (first.interval_ms, second.interval_ms) == (
        (_START_MS, _START_MS + _DAY_MS),
        (_START_MS + _DAY_MS, _END_MS),
    )
    assert max(first.begun_ms, second.begun_ms) < min(first.finished_ms, second.finished_ms)

    def of_both_days(rows: list[Row]) -> list[tuple[object, ...]]:
        return sorted((row.timestamp_ms, row.key, row.value) for row in rows if row.timestamp_ms < _END_MS)

    copied = read_rows(deployment.bootstrap, COPIED)
    assert len(copied) > 1_000
    assert of_both_days(copied) == of_both_days(read_rows(deployment.bootstrap, "flights"))
    assert len(of_both_days(copied)) == len(copied), "nothing of a later day"
