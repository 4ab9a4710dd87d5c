"""What sensors make of the parameters that they are given, as text or otherwise."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_kstreams.batch.inspect.conditions import NewData, RunFinished, condition_from_json
from airflow_kstreams.hooks.airflow_versions import AirflowFailException, AirflowSkipException, TaskDeferred
from airflow_kstreams.sensors.condition_sensor import ConditionSensor
from airflow_kstreams.sensors.new_data import NewDataSensor
from airflow_kstreams.sensors.run_finished import RunFinishedSensor
from airflow_kstreams.sensors.stop_offsets_reached import StopOffsetsReachedSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

_NEEDED: dict[type[ConditionSensor], dict[str, Any]] = {
    RunFinishedSensor: {},
    NewDataSensor: {},
    StopOffsetsReachedSensor: {"subtopology": 0},
}
_SENSORS = pytest.mark.parametrize("kind", list(_NEEDED))


def _sensor(kind: type[ConditionSensor], **given: Any) -> ConditionSensor:
    return kind(task_id="wait", **{"application_id": "app", **_NEEDED[kind], **given})


def _context(run_id: str = "", run_type: str = "scheduled") -> Context:
    return cast("Context", {"dag_run": SimpleNamespace(run_id=run_id, run_type=run_type)})


@_SENSORS
def test_every_parameter_is_documented(kind: type[ConditionSensor]) -> None:
    text = inspect.getdoc(kind) or ""
    parameters = {*inspect.signature(kind).parameters, *inspect.signature(ConditionSensor).parameters}

    assert {name for name in parameters if f":param {name}:" not in text} == set()
    assert ":return:" in text
    templated = {name for name in kind.template_fields if name in parameters}
    assert templated == set(kind.template_fields)


@_SENSORS
def test_sensor_is_deferred_when_the_deployment_says_so_and_nothing_speaks_against_it(
    kind: type[ConditionSensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _sensor(kind).deferrable
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")

    assert _sensor(kind).deferrable
    assert not _sensor(kind, deferrable=False).deferrable
    assert not _sensor(kind, mode="reschedule").deferrable, "it was asked for by name"
    assert not _sensor(kind, exponential_backoff=True).deferrable
    with pytest.raises(ValueError, match="mode='reschedule' has no effect"):
        _sensor(kind, mode="reschedule", deferrable=True)


@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        (NewDataSensor, {"min_records": None}, "min_records=None is not a whole number"),
        (NewDataSensor, {"min_records": "None"}, "min_records='None' is not a whole number"),
        (NewDataSensor, {"min_records": float("inf")}, "min_records=inf is not a whole number"),
        (NewDataSensor, {"min_records": 1.5}, r"min_records=1\.5 is not a whole number"),
        (NewDataSensor, {"older_than": []}, r"older_than=\[\] is not a span of time"),
        (NewDataSensor, {"older_than": "nan"}, "older_than='nan' is not a span of time"),
        (NewDataSensor, {"older_than": "inf"}, "older_than='inf' is not a span of time"),
        (NewDataSensor, {"older_than": "P1"}, "older_than='P1' is not a span of time"),
        (NewDataSensor, {"topics": "['a', 'b']"}, r"topics=.* is not a list of topic names: \"\['a'\""),
        (NewDataSensor, {"topics": ["a", None]}, "topics=.* is not a list of topic names: None"),
        (NewDataSensor, {"topics": 5.5}, r"topics=5\.5 is not a list of topic names"),
        (StopOffsetsReachedSensor, {"subtopology": None}, "subtopology=None is not a whole number"),
        (
            StopOffsetsReachedSensor,
            {"run_id": None},
            "run_id=None is what a template without a value renders",
        ),
        (StopOffsetsReachedSensor, {"run_id": ""}, "run_id='' is empty"),
        (
            RunFinishedSensor,
            {"application_id": None},
            "application_id=None is what a template without a value renders",
        ),
        (
            RunFinishedSensor,
            {"data_interval_start": 5, "data_interval_end": 6},
            "data_interval_start=5 is not a time",
        ),
    ],
)
def test_parameter_is_named_and_no_retry_is_spent_when_it_cannot_be_used(
    kind: type[ConditionSensor], given: dict[str, Any], found: str, deferrable: bool
) -> None:
    with pytest.raises(AirflowFailException, match=found):
        _sensor(kind, deferrable=deferrable, **given).execute(_context("r1"))


@pytest.mark.parametrize(
    ("given", "topics"),
    [
        ("orders", ("orders",)),
        ("orders, customers,", ("orders", "customers")),
        (["orders", "customers"], ("orders", "customers")),
        ({"orders"}, ("orders",)),
        (None, ()),
        ("", ()),
    ],
)
def test_topics_are_the_same_as_text_and_as_a_list(given: Any, topics: tuple[str, ...]) -> None:
    assert _sensor(NewDataSensor, topics=given).condition() == NewData(application_id="app", topics=topics)


@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize("kind", [RunFinishedSensor, StopOffsetsReachedSensor])
@pytest.mark.remedy("condition_sensor._refuse_run_of_backfill")
def test_sensor_does_not_wait_for_a_backfills_run_of_the_live_application_which_never_comes(
    kind: type[ConditionSensor], deferrable: bool
) -> None:
    backfill = _context("backfill__2026-01-01", "backfill")
    waiting = {"deferrable": deferrable, "run_id": "backfill__2026-01-01"}

    with pytest.raises(AirflowFailException, match="works on an application of its own") as refused:
        _sensor(kind, **waiting).execute(backfill)
    with pytest.raises(AirflowSkipException):
        _sensor(kind, soft_fail=True, **waiting).execute(backfill)

    assert "backfill__2026-01-01" in str(refused.value)
    assert "'app'" in str(refused.value)
    for run_id, dag_run in (("backfill__2026-01-01", _context("r1")), ("another", backfill)):
        with pytest.raises(TaskDeferred):
            _sensor(kind, deferrable=True, run_id=run_id).execute(dag_run)


@pytest.mark.parametrize(
    ("application_id", "run_id", "dag_run"),
    [
        ("app", "scheduled__2026-01-01", ("backfill__2026-01-01", "backfill")),
        # Airflow keeps the run id when a backfill processes a date again, and the live run has the same one.
        ("app", "scheduled__2026-01-01", ("scheduled__2026-01-01", "backfill")),
        ("app-backfill-mended", "backfill__2026-01-01", ("backfill__2026-01-01", "backfill")),
        ("app", "scheduled__2026-01-01", ("scheduled__2026-01-01", "scheduled")),
    ],
)
def test_sensor_waits_in_a_backfill_for_what_may_come(
    application_id: str, run_id: str, dag_run: tuple[str, str]
) -> None:
    sensor = _sensor(RunFinishedSensor, application_id=application_id, run_id=run_id, deferrable=True)

    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(_context(*dag_run))

    wanted = RunFinished(application_id=application_id, run_id=run_id)
    assert condition_from_json(cast("Any", deferred.value.trigger).condition) == wanted
