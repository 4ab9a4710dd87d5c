"""Operators and the sensor of finished runs, when a run leaves records parked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.sdk import DAG, task

from airflow_kstreams.hooks.airflow_versions import (
    AirflowRescheduleException,
    AirflowSensorTimeout,
    TaskDeferred,
)
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.operators.backfill import BackfillOperator
from airflow_kstreams.operators.incremental_batch import FinishRunOperator, incremental_batch
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.operators.work import run_settings
from airflow_kstreams.sensors.run_finished import RunFinishedSensor
from airflow_kstreams.streams.errors import ConfigError, RecordsParkedError
from airflow_kstreams.triggers import condition
from airflow_kstreams.triggers.cluster_watch import ClusterWatch
from tests.support.airflow.loaded_here import load_here
from tests.support.kafka.parking_scene import APP, DUE_MS, RETRY, ParkingScene, parking_scene

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

pytestmark = pytest.mark.promise("zero-parked-on-demand")

parked_before = pytest.fixture(parking_scene)
DUE = datetime.fromtimestamp(DUE_MS / 1000, tz=UTC).isoformat()
WHERE = f"2 at enrich ({RETRY}-1); the first is due at {DUE}, in the next run after that"


@pytest.fixture
def scene(parked_before: ParkingScene, monkeypatch: pytest.MonkeyPatch) -> ParkingScene:
    """Two records are parked, in a run ``r1`` that is processed and not finished; for every operator and
    sensor.
    """
    scene = parked_before
    watch = ClusterWatch(lambda: scene.kafka)
    monkeypatch.setattr(condition, "watch_of", lambda *_: watch)
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: scene.kafka)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://in-memory:9092")
    scene.down = {"bad"}
    scene.send("a")
    scene.send("bad", "behind", key="p", partition=1)
    application = scene.application()
    application.tasks(application.begin("r1"))
    return scene


def execute(operator: BaseOperator, run_id: str = "r1") -> Any:
    instance = SimpleNamespace(dag_id="d", task_id=operator.task_id, try_number=1, map_index=-1)
    dag_run = SimpleNamespace(run_id=run_id, clear_number=0, data_interval_start=None, data_interval_end=None)
    return operator.execute(cast("Context", {"ti": instance, "dag_run": dag_run}))


def finish(**arguments: Any) -> Any:
    return execute(FinishRunOperator(task_id="finish", application_id=APP, **arguments))


def run_topology(**arguments: Any) -> Any:
    given: dict[str, Any] = {"application": "-", "spark_conn_id": "none", **arguments}
    return execute(RunTopologyOperator(task_id="run", application_id=APP, **given))


# == operators


def test_result_and_log_say_what_is_parked_when_a_run_is_finished(
    scene: ParkingScene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    begun = run_topology()
    result = finish()

    assert (begun["state"], begun["parked"], begun["parked_due"]) == ("begun", {"enrich": 2}, DUE)
    assert (result["state"], result["parked"]) == ("completed_with_parked(2)", {"enrich": 2})
    assert (result["parked_due"], result["parked_omitted"], result["finished"]) == (DUE, 0, True)
    assert "completed_with_parked(2): 2 at enrich; the first is due at" in caplog.text


@pytest.mark.error_example("KS-RUN-003")
@pytest.mark.remedy("run_state.refuse_parked")
def test_task_fails_until_nothing_is_parked_when_zero_is_demanded(scene: ParkingScene) -> None:
    with pytest.raises(RecordsParkedError) as caught:
        finish(allow_parked=False)

    assert caught.value.run_id == "r1"
    assert f"run 'r1' of application {APP!r} is finished and all that it wrote is committed" in str(
        caught.value
    )
    assert WHERE in caught.value.cause
    assert scene.ledger.find("r1") is not None, "it is finished"
    with pytest.raises(RecordsParkedError, match="as of run 'r1'"):
        finish(allow_parked=False)
    with pytest.raises(RecordsParkedError, match="as of run 'r1'"):
        run_topology(finish=True, allow_parked=False)
    scene.run("r2")
    with pytest.raises(RecordsParkedError, match="as of run 'r2'"):
        finish(allow_parked=False)
    assert finish(allow_parked=True)["already_finished"]
    scene.down = set()
    scene.run("r3")
    assert finish(allow_parked=False)["already_finished"]
    assert run_topology(finish=True, allow_parked=False)["already_finished"]


def test_what_later_runs_park_does_not_count_when_all_that_was_parked_is_processed(
    scene: ParkingScene,
) -> None:
    finish()
    scene.down = set()
    scene.run("r2")
    scene.down = {"worse"}
    scene.send("worse")
    scene.run("r3")

    assert finish(allow_parked=False)["already_finished"]
    assert scene.ledger.parked_since(scene.ledger.find("r3")) == {"enrich": {0: 1}}  # type: ignore[arg-type]


@pytest.mark.remedy("run_topology.RunTopologyOperator._refuse_early_outlets")
def test_zero_is_demanded_of_the_task_that_finishes_the_run_alone() -> None:
    given: dict[str, Any] = {"task_id": "run", "application_id": APP, "application": "-"}
    with pytest.raises(ConfigError, match="allow_parked=False, but does not finish the run"):
        RunTopologyOperator(**given, allow_parked=False)
    assert not RunTopologyOperator(**given, finish=True, allow_parked=False).allow_parked
    assert not FinishRunOperator(task_id="finish", application_id=APP, allow_parked=False).allow_parked


@pytest.mark.parametrize("allowed", [True, False])
def test_group_passes_the_demand_on_to_the_task_that_finishes(allowed: bool) -> None:
    with DAG(dag_id="d", schedule=None) as dag:
        incremental_batch(application_id=APP, application="app.py", allow_parked=allowed)
    finishing = dag.get_task("incremental_batch.finish_run")
    assert isinstance(finishing, FinishRunOperator)
    assert finishing.allow_parked is allowed


def _decorated(**arguments: Any) -> Any:
    with DAG(dag_id="d", schedule=None) as dag:

        @task.kstreams(application_id=APP, **arguments)
        def topology():  # type: ignore[no-untyped-def]
            raise NotImplementedError("it is not called here")

        topology()
    return execute(cast("BaseOperator", dag.get_task("topology")))


def _again(**arguments: Any) -> Any:
    outputs = {"out": "out-again"}
    operator = BackfillOperator(
        task_id="again", application_id="live", application="-", backfill_outputs=outputs, **arguments
    )
    return execute(operator)


@pytest.mark.parametrize("made", [_decorated, _again], ids=["decorator", "backfill"])
def test_zero_can_be_demanded_of_every_task_that_finishes_a_run(
    scene: ParkingScene, monkeypatch: pytest.MonkeyPatch, made: Callable[..., Any]
) -> None:
    monkeypatch.setattr(run_settings, "backfill_id", lambda *_, **__: APP)
    load_here(monkeypatch, lambda _, app: scene.topology().plan(app))
    finish()

    assert made()["state"] == "completed_with_parked(2)"
    with pytest.raises(RecordsParkedError, match="as of run 'r1'"):
        made(allow_parked=False)
    scene.down = set()
    scene.run("r2")
    assert made(allow_parked=False)["already_finished"]


# == the sensor


def waits(mode: str, **arguments: Any) -> Any:
    """Run the sensor as Airflow does; the second visit of one that gives its slot back is too late."""
    given = {"run_id": "r1", "poke_interval": 0.02, "timeout": 0.05, **arguments}
    if mode == "rescheduled":
        given["mode"] = "reschedule"
    sensor = RunFinishedSensor(task_id="w", application_id=APP, deferrable=mode == "deferred", **given)
    ti = SimpleNamespace(get_first_reschedule_date=lambda _: None)
    try:
        return sensor.execute(cast("Context", {"ti": ti}))
    except TaskDeferred as deferred:
        event = json.loads(json.dumps(asyncio.run(anext(deferred.trigger.run())).payload))
        return sensor.resume_execution(deferred.method_name, {"event": event}, cast("Context", {}))


MODES = ["here", "rescheduled", "deferred"]


@pytest.mark.parametrize("mode", MODES)
def test_sensor_waits_for_the_runs_that_process_what_is_parked_when_zero_is_demanded(
    scene: ParkingScene, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    finish()
    assert waits(mode)["state"] == "completed_with_parked(2)", "a finished run is enough otherwise"
    with pytest.raises((AirflowSensorTimeout, AirflowRescheduleException)) as caught:
        waits(mode, allow_parked=False)
    assert WHERE in f"{caught.value}{caplog.text}"

    scene.down = set()
    scene.run("r2")

    assert waits(mode, allow_parked=False)["run_id"] == "r1"
    assert waits(mode, run_id=None, allow_parked=False)["run_id"] == "r2", "the last one, which left none"


def test_sensor_waits_for_the_run_of_an_interval_when_zero_is_demanded(scene: ParkingScene) -> None:
    finish()
    application = scene.application()
    application.tasks(application.begin("r2", interval_ms=(0, 3_600_000)))
    application.finish("r2")
    interval = {
        "run_id": None,
        "data_interval_start": "1970-01-01T00:00:00+00:00",
        "data_interval_end": "1970-01-01T01:00:00+00:00",
    }
    assert waits("here", **interval)["run_id"] == "r2"
    with pytest.raises(AirflowSensorTimeout):
        waits("here", allow_parked=False, **interval)
