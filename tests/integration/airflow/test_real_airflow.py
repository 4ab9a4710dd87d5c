"""The example DAGs on ``airflow standalone``: a real scheduler, triggerer, DAG processor and API server, with
SQLite. One deployment for all tests; each adds days of its own, so they need no order.

``dev/test`` tells these stories on PostgreSQL.
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

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(400), pytest.mark.prove]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, airflow_database: Path) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("real-airflow"), airflow_database, standalone=True) as running:
        yield running


@pytest.fixture(autouse=True)
def _between_scheduled_runs(deployment: Deployment) -> None:
    deployment.await_no_scheduled_run()


def test_results_add_up_and_each_run_is_told_once_when_past_increments_run(
    deployment: Deployment,
) -> None:
    increments_add_up_and_are_told_once(deployment)


def test_nothing_is_lost_or_told_twice_when_the_triggerer_is_killed(deployment: Deployment) -> None:
    sensor_and_watcher_go_on(deployment, "while-dead")
    repeated_event_is_the_same_and_ignored(deployment, "while-dead")


def test_failed_run_ends_at_its_own_stop_offsets_when_it_is_cleared_and_more_has_arrived(
    deployment: Deployment,
) -> None:
    failed_run_ends_at_its_own_stops_when_cleared(deployment)


def test_nothing_changes_when_a_finished_run_is_cleared(deployment: Deployment) -> None:
    nothing_changes_when_a_finished_run_is_cleared(deployment)


def test_backfill_gives_the_same_results_elsewhere_while_the_live_schedule_goes_on(
    deployment: Deployment,
) -> None:
    backfill_goes_on_beside_the_live_schedule(deployment)
