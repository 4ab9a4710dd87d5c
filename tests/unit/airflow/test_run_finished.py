"""The sensor and its trigger, as far as they go without a broker."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.sdk import Context

from airflow_kstreams.batch.inspect.conditions import RunFinished, condition_from_json, condition_to_json
from airflow_kstreams.hooks.airflow_versions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferralTimeout,
    TaskDeferred,
)
from airflow_kstreams.sensors.run_finished import RunFinishedSensor
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, ReportedError, RunBusyError
from airflow_kstreams.triggers.condition import ConditionTrigger

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

_NO_CONTEXT = Context()
_RESULT = {
    "run_id": "r1",
    "application_id": "app",
    "generation": 1,
    "finished": True,
    "empty": False,
    "record_span": 5,
    "records_per_topic": {"t": 5},
    "topics_omitted": 0,
    "records_in": 5,
    "records_out": 5,
}


def _sensor(**arguments: Any) -> RunFinishedSensor:
    return RunFinishedSensor(
        task_id="wait",
        application_id="app",
        **{"run_id": "r1", "deferrable": True, "timeout": 60, **arguments},
    )


def _deferral(sensor: RunFinishedSensor) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as raised:
        sensor.execute(_NO_CONTEXT)
    return raised.value


def _error_event(error: KStreamsError) -> dict[str, Any]:
    return {"status": "error", "error": error.to_dict()}


async def _events(trigger: ConditionTrigger) -> list[TriggerEvent]:
    return [event async for event in trigger.run()]


def test_trigger_is_the_same_when_it_was_serialized(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"bootstrap.servers": "h:1", "sasl.password": "hush-hush"}
    monkeypatch.setenv("AIRFLOW_CONN_MY_KAFKA", json.dumps({"conn_type": "kafka", "extra": extra}))
    before = time.time()

    trigger = _deferral(_sensor(kafka_conn_id="my_kafka", poke_interval=7, silent_fail=True)).trigger

    path, arguments = trigger.serialize()
    text = json.dumps(arguments)
    again = ConditionTrigger(**json.loads(text))
    assert path == f"{ConditionTrigger.__module__}.{ConditionTrigger.__qualname__}"
    assert again.serialize() == trigger.serialize()
    assert condition_from_json(again.condition) == RunFinished(application_id="app", run_id="r1")
    assert again.poke_interval == 7
    assert before + 60 <= again.deadline <= time.time() + 60
    assert again.silent_fail
    assert "hush-hush" not in text


@pytest.mark.remedy("run_finished.RunFinishedSensor._condition")
def test_interval_is_meant_when_both_ends_are_given_by_the_templates_of_the_error() -> None:
    with pytest.raises(ConfigError) as refused:
        _sensor(data_interval_start="2026-01-01T00:00:00+00:00").condition()
    ends = dict(re.findall(r'(data_interval_\w+)="(.*?)"', refused.value.fix))
    sensor = _sensor(**ends)
    hours = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (0, 1)]
    sensor.render_template_fields(
        cast("Context", {"data_interval_start": hours[0], "data_interval_end": hours[1]})
    )
    assert sensor.condition() == RunFinished(
        application_id="app", interval_ms=(1_767_225_600_000, 1_767_229_200_000)
    )


def test_run_of_a_data_interval_is_meant_when_the_interval_is_given() -> None:
    sensor = _sensor(
        data_interval_start="2026-01-01T00:00:00+00:00", data_interval_end="2026-01-01T01:00:00+00:00"
    )

    assert sensor.condition() == RunFinished(
        application_id="app", interval_ms=(1_767_225_600_000, 1_767_229_200_000)
    )


@pytest.mark.parametrize(
    ("interval", "found"),
    [
        ({"data_interval_start": "2026-01-01T00:00:00+00:00"}, "only one was given"),
        ({"data_interval_start": "yesterday", "data_interval_end": "today"}, "'yesterday' is not a time"),
        (
            {"data_interval_start": "2026-01-01T00:00:00", "data_interval_end": "2026-01-01T01:00:00"},
            "not a time with zone",
        ),
    ],
)
@pytest.mark.parametrize("deferrable", [True, False])
def test_sensor_fails_for_good_when_the_interval_cannot_be_used(
    deferrable: bool, interval: dict[str, str], found: str
) -> None:
    with pytest.raises(AirflowFailException, match=found):
        _sensor(deferrable=deferrable, **interval).execute(_NO_CONTEXT)


def test_airflow_waits_longer_than_the_trigger_when_the_sensor_defers() -> None:
    deferral = _deferral(_sensor(timeout=60))

    assert deferral.method_name == "execute_complete"
    assert deferral.timeout.total_seconds() > 60


@pytest.mark.parametrize("run_id", [None, ""])
def test_the_last_finished_run_is_meant_when_no_run_is_named(run_id: str | None) -> None:
    condition = condition_from_json(_deferral(_sensor(run_id=run_id)).trigger.condition)

    assert condition == RunFinished(application_id="app", run_id=None)


@pytest.mark.parametrize("refused", [{"exponential_backoff": True}, {"mode": "reschedule"}])
def test_sensor_refuses_by_name_when_a_setting_would_be_lost_in_deferral(refused: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(refused))):
        _sensor(**refused)


def test_sensor_returns_the_result_when_the_trigger_found_the_run() -> None:
    assert _sensor().execute_complete(_NO_CONTEXT, {"status": "holds", "result": _RESULT}) == _RESULT


def test_sensor_times_out_as_when_not_deferred_when_the_trigger_says_so() -> None:
    with pytest.raises(AirflowSensorTimeout, match=r"60 s .*r1 .*app"):
        _sensor().execute_complete(_NO_CONTEXT, {"status": "timeout"})


@pytest.mark.parametrize("flag", ["soft_fail", "never_fail"])
def test_sensor_is_skipped_when_it_times_out_and_may_be_skipped(flag: str) -> None:
    with pytest.raises(AirflowSkipException):
        _sensor(**{flag: True}).resume_execution(
            "execute_complete", {"event": {"status": "timeout"}}, _NO_CONTEXT
        )


def test_sensor_times_out_when_airflows_own_timer_was_first() -> None:
    with pytest.raises(AirflowSensorTimeout):
        _sensor().resume_execution("__fail__", {"error": "Trigger timeout"}, _NO_CONTEXT)
    assert issubclass(AirflowSensorTimeout, Exception)
    assert not issubclass(TaskDeferralTimeout, AirflowSensorTimeout)


def test_sensor_fails_for_good_when_the_trigger_met_an_error_that_stays() -> None:
    with pytest.raises(AirflowFailException, match="unknown setting"):
        _sensor().execute_complete(
            _NO_CONTEXT, _error_event(ConfigError("unknown setting", fix="correct it"))
        )


@pytest.mark.parametrize("soft_fail", [False, True])
def test_sensor_may_retry_when_the_trigger_met_an_error_that_may_pass(soft_fail: bool) -> None:
    busy = RunBusyError("busy", run_id="r1", owner="o", owner_run_id="r0")

    with pytest.raises(ReportedError, match="busy") as raised:
        _sensor(soft_fail=soft_fail).resume_execution(
            "execute_complete", {"event": _error_event(busy)}, _NO_CONTEXT
        )

    assert not isinstance(raised.value, AirflowFailException)


def test_sensor_is_skipped_when_any_error_comes_and_it_must_never_fail() -> None:
    busy = RunBusyError("busy", run_id="r1", owner="o", owner_run_id="r0")

    with pytest.raises(AirflowSkipException):
        _sensor(never_fail=True).execute_complete(_NO_CONTEXT, _error_event(busy))


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        (None, "connection 'my_kafka' is not defined"),
        ({"group.id": "g"}, "'group.id' is owned by the engine"),
    ],
)
def test_trigger_fires_an_error_that_stays_when_the_connection_is_wrong(
    extra: dict[str, str] | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if extra is not None:
        monkeypatch.setenv("AIRFLOW_CONN_MY_KAFKA", json.dumps({"conn_type": "kafka", "extra": extra}))
    trigger = ConditionTrigger(
        condition=condition_to_json(RunFinished(application_id="app", run_id="r")),
        kafka_conn_id="my_kafka",
        poke_interval=1,
        deadline=time.time() + 60,
        silent_fail=True,
    )

    events = asyncio.run(_events(trigger))

    assert len(events) == 1
    assert events[0].payload["status"] == "error"
    assert found in events[0].payload["error"]["cause"]
    assert events[0].payload["error"]["retriable"] is False
