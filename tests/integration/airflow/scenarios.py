"""What must be so on any deployment, whatever its database."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from dev.flight_demo import oracle
from dev.flight_demo.publisher import create_topics
from tests.integration.airflow.deployment import (
    APPLICATION_ID,
    BACKFILL,
    BACKFILLED,
    FOLLOWED,
    HOURLY,
    REPORT,
    TELL,
    Deployment,
)
from tests.support.kafka.kafka_tools import group_lag


def increments_add_up_and_are_told_once(deployment: Deployment) -> None:
    """Run the hourly DAG on two days, one after the other, with logical dates in the past."""
    run_ids = ["past-1", "past-2"]
    for run_id in run_ids:
        deployment.publish_day()
        summary = deployment.succeeds(deployment.trigger(run_id))
        assert summary.run_id == run_id

    assert deployment.differences(deployment.days) == ()
    deployment.airflow.wait(lambda: set(run_ids) <= set(deployment.told()), "every run is told")
    assert {deployment.told()[run_id] for run_id in run_ids} == {1}


def pages_show_what_kafka_has(deployment: Deployment) -> None:
    """Read the pages while a day waits: their figures are those of Kafka's own tool, and of the run."""
    airflow, run = deployment.airflow, deployment.finished_run()
    deployment.publish_day()
    application = f"/kstreams/applications/{HOURLY}/{APPLICATION_ID}"
    page = airflow.page(application)
    waiting = re.search(r"Offsets that wait in inputs: ([\d,]+)", page)
    assert waiting is not None, page
    inputs = {part.topic for part in run.inputs}
    assert int(waiting[1].replace(",", "")) == group_lag(deployment.bootstrap, APPLICATION_ID, inputs) > 0
    of_run = airflow.page(f"{application}/runs/{run.run_id}")
    assert f"{run.records_in:,} in, {run.records_out:,} out" in of_run
    of_dag_run = airflow.page(f"/kstreams/dags/{HOURLY}/runs/{run.run_id}")
    assert f"{run.records_in:,} in, {run.records_out:,} out" in of_dag_run
    assert f'href="{application}"' in airflow.page("/kstreams/")


def failed_run_ends_at_its_own_stops_when_cleared(deployment: Deployment) -> None:
    """Fail a run after its stop offsets are frozen, let more arrive, mend the cause, and clear it."""
    airflow = deployment.airflow
    deployment.forget_spark()
    deployment.publish_day()
    run_id = deployment.trigger("failing")
    assert deployment.ended(HOURLY, run_id) == "failed"
    tasks = airflow.task_states(HOURLY, run_id)
    assert tasks["flight_delays.capture_stop_offsets"] == "success"
    assert tasks["flight_delays.run_topology"] == "failed"
    cause = "\n".join(airflow.task_log(HOURLY, run_id, "flight_delays.run_topology"))
    assert "connection 'spark_default' is not defined in Airflow" in cause
    captured = deployment.result(HOURLY, run_id, "flight_delays.capture_stop_offsets")
    days = deployment.days
    deployment.publish_day()
    deployment.define_spark()

    deployment.clear(run_id, only_failed=True)
    summary = deployment.succeeds(run_id)

    assert sum(part.stop_offset - part.start_offset for part in summary.inputs) == captured["record_span"]
    assert deployment.differences(days) == (), "the day that came later belongs to the next run"


def sensor_and_watcher_go_on(deployment: Deployment, run_id: str) -> None:
    """Finish a run while the triggerer is dead: a sensor and a watcher that waited for it hear of it."""
    airflow = deployment.airflow
    report = f"report of {run_id}".replace(" ", "-")
    airflow.trigger(REPORT, report, {"run_id": run_id})
    airflow.wait(
        lambda: airflow.task_states(REPORT, report)["wait_for_run"] == "deferred", "the sensor is deferred"
    )
    airflow.kill_component("triggerer")

    deployment.succeeds(deployment.trigger(run_id))
    assert airflow.run_state(REPORT, report) == "running"
    assert deployment.announced(run_id) == []
    airflow.start_component("triggerer")

    assert deployment.ended(REPORT, report) == "success", airflow.log_tail(REPORT, report)
    assert deployment.result(REPORT, report, "wait_for_run")["run_id"] == run_id
    airflow.wait(lambda: deployment.told()[run_id] > 0, f"run {run_id} is told")


def repeated_event_is_the_same_and_ignored(deployment: Deployment, run_id: str) -> None:
    """Kill the triggerer, and let the next one announce a run again that was announced and told."""
    airflow = deployment.airflow
    known = set(deployment.followers())
    airflow.kill_component("triggerer")
    deployment.set_cursor_back(run_id)

    airflow.start_component("triggerer")
    airflow.wait(lambda: len(deployment.announced(run_id)) > 1, f"run {run_id} is announced again")

    first, *others = deployment.announced(run_id)
    assert all(other == first for other in others), "the same run id and offsets"
    airflow.wait(lambda: bool(set(deployment.followers()) - known), "the follower runs again")
    for follower in set(deployment.followers()) - known:
        assert deployment.ended(FOLLOWED, follower) == "success"
        # On the full hour the schedule itself may have got a run in between, which is news.
        news = deployment.result(FOLLOWED, follower, TELL) or []
        assert news or airflow.task_states(FOLLOWED, follower)[TELL] == "skipped"
        assert run_id not in news
    assert deployment.told()[run_id] == 1


def backfill_goes_on_beside_the_live_schedule(deployment: Deployment) -> None:
    """Backfill two days while a live run takes a third; each has its own results."""
    while deployment.days < 2:
        deployment.publish_day()
    create_topics(deployment.bootstrap, [BACKFILLED])
    deployment.create_backfill(BACKFILL, days=2, dag_run_conf={"backfill": "first-days"})
    deployment.publish_day()
    live = deployment.trigger("beside-a-backfill")

    summary = deployment.succeeds(live)
    deployment.backfilled(BACKFILL, days=2)

    assert not summary.empty
    assert deployment.differences(deployment.days) == ()
    end = datetime(2013, 1, 3, tzinfo=UTC)
    backfilled = oracle.judge(deployment.bootstrap, deployment.days, topic=BACKFILLED, before=end)
    assert backfilled.flights > 1_000
    assert backfilled.differences == ()


def nothing_changes_when_a_finished_run_is_cleared(deployment: Deployment) -> None:
    """Clear all tasks of a finished run; they find it finished."""
    first = deployment.finished_run()
    before = deployment.results()

    deployment.clear(first.run_id, only_failed=False)

    assert deployment.succeeds(first.run_id) == first
    assert deployment.results() == before
