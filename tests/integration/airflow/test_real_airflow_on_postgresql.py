"""The example DAGs on a real scheduler, triggerer, DAG processor and API server, with PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.postgres import postgres
from tests.integration.airflow.deployment import Deployment, deployed
from tests.integration.airflow.scenarios import (
    backfill_goes_on_beside_the_live_schedule,
    failed_run_ends_at_its_own_stops_when_cleared,
    nothing_changes_when_a_finished_run_is_cleared,
    repeated_event_is_the_same_and_ignored,
    sensor_and_watcher_go_on,
    three_increments_add_up_and_are_told_once,
)

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
        with deployed(folder, airflow_database, database=address, **database) as running:
            yield running


def test_results_add_up_and_each_run_is_told_once_when_three_past_increments_run(
    deployment: Deployment,
) -> None:
    three_increments_add_up_and_are_told_once(deployment)


def test_nothing_is_lost_or_told_twice_when_the_triggerer_is_killed(deployment: Deployment) -> None:
    sensor_and_watcher_go_on(deployment, "while-dead")
    repeated_event_is_the_same_and_ignored(deployment, "while-dead")


def test_failed_run_ends_at_its_own_stop_offsets_when_it_is_cleared(deployment: Deployment) -> None:
    failed_run_ends_at_its_own_stops_when_cleared(deployment)


def test_backfill_gives_the_same_results_elsewhere_while_the_live_schedule_goes_on(
    deployment: Deployment,
) -> None:
    backfill_goes_on_beside_the_live_schedule(deployment)


def test_nothing_changes_when_a_finished_run_is_cleared(deployment: Deployment) -> None:
    nothing_changes_when_a_finished_run_is_cleared(deployment)
