"""A sensor ends in the same way whether it waits in its worker, between visits to it, or in the triggerer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Context

from airflow_kstreams.hooks.airflow_versions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.sensors.caught_up import CaughtUpSensor
from airflow_kstreams.sensors.condition_sensor import ConditionSensor
from airflow_kstreams.sensors.new_data import NewDataSensor
from airflow_kstreams.sensors.run_finished import RunFinishedSensor
from airflow_kstreams.sensors.stop_offsets_reached import StopOffsetsReachedSensor
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import KafkaClientError, KStreamsError
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.faults import FaultyCluster
from airflow_kstreams.triggers import condition
from airflow_kstreams.triggers.cluster_watch import ClusterWatch
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("sensors-only-read")

_SENSORS: dict[str, tuple[type[ConditionSensor], dict[str, Any]]] = {
    "run": (RunFinishedSensor, {"run_id": "one"}),
    "interval": (
        RunFinishedSensor,
        {
            "data_interval_start": "1970-01-01T00:00:00+00:00",
            "data_interval_end": "1970-01-01T01:00:00+00:00",
        },
    ),
    "data": (NewDataSensor, {"topics": ["orders"]}),
    "caught up": (CaughtUpSensor, {"topics": ["orders"]}),
    "stage": (StopOffsetsReachedSensor, {"run_id": "one", "subtopology": 0}),
}
_MODES = ("here", "rescheduled", "deferred")
_NO_CONTEXT = Context()


class Failing:
    """Fails the first calls, and counts what every client is asked."""

    def __init__(self) -> None:
        self.failures = 0
        self.names: list[str] = []

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        self.names.append(name)
        if self.failures > 0:
            self.failures -= 1
            raise KafkaClientError("gone", fix="wait", kafka_code="_TRANSPORT", retriable_code=True)
        return effect()


def _topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("orders").send_to("stored")
    return builder.build()


@pytest.fixture
def faults() -> Failing:
    return Failing()


@pytest.fixture
def application(faults: Failing, monkeypatch: pytest.MonkeyPatch) -> Application:
    """An application in memory that every sensor of a test finds behind its connection."""
    kafka = InMemoryKafka()
    kafka.create_topic("orders", partitions=2)
    kafka.create_topic("stored", partitions=1)
    watch = ClusterWatch(lambda: FaultyCluster(kafka, faults))
    monkeypatch.setattr(condition, "watch_of", lambda *_: watch)
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: FaultyCluster(kafka, faults))
    extra = {"bootstrap.servers": "h:1"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    return Application(on=kafka, clock=kafka.clock, application_id="app", topology=_topology())


def _publish(application: Application) -> None:
    assert application.on is not None
    writer = application.on.writer(transactional_id=None)
    writer.produce("orders", b"v", b"k", 0)
    writer.flush()
    writer.close()


async def _event(trigger: Any) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


def _visited(sensor: ConditionSensor) -> object:
    """Execute a sensor as Airflow does that gives its slot back; its second visit is a minute later."""
    first: list[datetime] = []
    ti = SimpleNamespace(get_first_reschedule_date=lambda _: first[0] if first else None)
    while True:
        try:
            return sensor.execute(cast("Context", {"ti": ti}))
        except AirflowRescheduleException as pause:
            assert not first, "it goes on after its time is over"
            first.append(pause.reschedule_date - timedelta(minutes=1))


def _ends(kind: str, mode: str, **arguments: Any) -> object:
    """Run a sensor as Airflow does, and return its result, or the class of what it raised."""
    sensor, own = _SENSORS[kind]
    given = {"application_id": "app", "poke_interval": 0.02, "timeout": 0.05, **own, **arguments}
    if mode == "rescheduled":
        given["mode"] = "reschedule"
    made = sensor(task_id="wait", deferrable=mode == "deferred", **given)
    try:
        try:
            return _visited(made) if mode == "rescheduled" else made.execute(_NO_CONTEXT)
        except TaskDeferred as deferred:
            event = json.loads(json.dumps(asyncio.run(_event(deferred.trigger))))
            return made.resume_execution(deferred.method_name, {"event": event}, _NO_CONTEXT)
    except (AirflowFailException, AirflowSensorTimeout, AirflowSkipException, KStreamsError) as error:
        if isinstance(error, KStreamsError):
            return "retried" if error.is_retriable else error
        return type(error)


@pytest.mark.parametrize("kind", ["run", "data", "stage"])
def test_result_is_the_same_when_there_is_what_was_waited_for(kind: str, application: Application) -> None:
    slice_ = application.begin("one")
    application.tasks(slice_)
    application.finish("one")
    _publish(application)

    here, rescheduled, deferred = (_ends(kind, mode) for mode in _MODES)

    assert here == rescheduled == deferred
    assert isinstance(here, dict)
    assert here["application_id"] == "app"


_FLAGS: list[dict[str, bool]] = [{}, {"soft_fail": True}, {"never_fail": True}, {"silent_fail": True}]
_ENDS_OF_TIMEOUT = [AirflowSensorTimeout, AirflowSkipException, AirflowSkipException, AirflowSensorTimeout]
_ENDS_OF_LASTING = [AirflowFailException, AirflowSkipException, AirflowSkipException, AirflowFailException]
_ENDS_OF_PASSING = ["retried", "retried", AirflowSkipException, "finished"]


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize(("flag", "end"), list(zip(_FLAGS, _ENDS_OF_TIMEOUT, strict=True)))
def test_sensor_ends_alike_when_its_time_is_over(
    mode: str, flag: dict[str, bool], end: object, application: Application
) -> None:
    application.run("another")
    assert _ends("run", mode, **flag) == end


@pytest.mark.promise("misspelt-applications-are-refused")
def test_deferred_wait_that_timed_out_says_which_ids_are_spelt_alike(application: Application) -> None:
    application.run("another")
    sensor = RunFinishedSensor(task_id="wait", application_id="apq", run_id="one", timeout=5)
    with pytest.raises(AirflowSensorTimeout, match=r"'apq' has begun on this cluster \(did you mean 'app'"):
        sensor.execute_complete(_NO_CONTEXT, {"status": "timeout"})


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("when", ["looking", "reading its parameters"])
@pytest.mark.parametrize(("flag", "end"), list(zip(_FLAGS, _ENDS_OF_LASTING, strict=True)))
def test_sensor_ends_alike_when_an_error_stays(
    mode: str, when: str, flag: dict[str, bool], end: object, application: Application
) -> None:
    application.run("one")
    wrong = {"topics": ["no-such"]} if when == "looking" else {"min_records": "many"}
    assert _ends("data", mode, **wrong, **flag) == end


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize(("flag", "end"), list(zip(_FLAGS, _ENDS_OF_PASSING, strict=True)))
def test_sensor_ends_alike_when_an_error_may_pass(
    mode: str, flag: dict[str, bool], end: object, application: Application, faults: Failing
) -> None:
    application.run("one")
    faults.failures = 1
    seen = _ends("run", mode, timeout=50, **flag)
    assert ("finished" if isinstance(seen, dict) else seen) == end


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("kind", _SENSORS)
def test_sensor_joins_no_group_commits_nothing_and_closes_its_clients_however_it_ends(
    mode: str, kind: str, application: Application, faults: Failing
) -> None:
    slice_ = application.begin("one")
    application.tasks(slice_)
    _publish(application)
    faults.names.clear()

    _ends(kind, mode)
    faults.failures = 1
    _ends(kind, mode)
    _watch_ends()

    made = faults.names.count("cluster.reader") + faults.names.count("cluster.admin")
    closed = faults.names.count("reader.close") + faults.names.count("admin.close")
    assert made - 1 <= closed <= made, "the call that failed made no client"
    written = {name for name in faults.names if name.split(".")[1] in ("commit", "writer", "group_metadata")}
    assert written == set()
    assert faults.names.count("cluster.writer") == 0


def _watch_ends() -> None:
    for thread in threading.enumerate():
        if thread.name == "kstreams-watch":
            thread.join(30)
