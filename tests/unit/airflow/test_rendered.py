"""Every templated field of every operator and sensor, as a DAG renders it that renders native objects."""

from __future__ import annotations

import datetime
import importlib
import pkgutil
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, BaseOperator, task
from jinja2 import StrictUndefined

from airflow_kstreams import operators, sensors
from airflow_kstreams.batch.inspect.conditions import RunFinished
from airflow_kstreams.decorators.kstreams import _KStreamsDecoratedOperator
from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.hooks.rendered import Rendered
from airflow_kstreams.operators.backfill import BackfillOperator
from airflow_kstreams.operators.expand import ExpandPartitionsOperator, ExpandProcessorsOperator
from airflow_kstreams.operators.incremental_batch import CaptureStopOffsetsOperator
from airflow_kstreams.operators.replay_dead_letters import ReplayDeadLettersOperator
from airflow_kstreams.operators.reset_application import ResetApplicationOperator
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.operators.work.application_work import ApplicationOperator, RunOperator
from airflow_kstreams.operators.work.run_settings import RunIdentity
from airflow_kstreams.sensors.caught_up import CaughtUpSensor
from airflow_kstreams.sensors.condition_sensor import ConditionSensor
from airflow_kstreams.sensors.new_data import NewDataSensor
from airflow_kstreams.sensors.run_finished import RunFinishedSensor
from airflow_kstreams.sensors.stop_offsets_reached import StopOffsetsReachedSensor
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings

NEEDED: dict[type[Any], dict[str, Any]] = {
    BackfillOperator: {"application": "a.py", "backfill_outputs": {"out": "other"}},
    CaptureStopOffsetsOperator: {"application": "a.py"},
    ExpandPartitionsOperator: {"topic": "orders", "partitions": 2},
    ExpandProcessorsOperator: {"processors": 2},
    RunTopologyOperator: {"application": "a.py"},
    StopOffsetsReachedSensor: {"subtopology": 0},
}
#: Fields whose value is the user's own function's.
OWN = ("op_args", "op_kwargs")
UNDEFINED = StrictUndefined(name="nowhere")
NOON = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)


def _kinds() -> list[type[Any]]:
    for package in (operators, sensors):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, left = [], [Rendered]
    while left:
        kind = left.pop()
        # Other tests may have made some.
        left += [each for each in kind.__subclasses__() if each.__module__.startswith("airflow_kstreams.")]
        found.append(kind)
    bases = (Rendered, ApplicationOperator, RunOperator, ConditionSensor)
    return sorted({kind for kind in found if kind not in bases}, key=lambda kind: kind.__name__)


KINDS = _kinds()
OBJECTS = ("settings", "where", "offsets", "conf", "backfill_outputs", "env_vars")
NUMBERS = (
    "subtopology",
    "partitions",
    "processors",
    "parallel",
    "rate",
    "limit",
    "max_records",
    "min_records",
)


def _made(kind: type[Any], **given: Any) -> Any:
    with DAG("d", schedule=None, render_template_as_native_obj=True):
        if kind is _KStreamsDecoratedOperator:
            return task.kstreams(**{"application_id": "app", **given})(_topology)().operator
        return kind(task_id="t", **{"application_id": "app", **NEEDED.get(kind, {}), **given})


def _topology(top: int = 1) -> Any:
    return top


def _rendered(operator: Any, **values: Any) -> Any:
    operator.render_template_fields(cast("Any", {"run_id": "manual", **values}))
    operator.read_rendered()
    return operator


def test_every_operator_and_sensor_is_here() -> None:
    public = {
        member
        for package in (operators, sensors)
        for module in pkgutil.iter_modules(package.__path__)
        for member in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values()
        if isinstance(member, type) and issubclass(member, BaseOperator)
        if member.__module__.startswith(package.__name__)
    }
    assert public - {ApplicationOperator, RunOperator, ConditionSensor} <= set(KINDS)
    assert len(KINDS) == 13


@pytest.mark.parametrize("kind", KINDS)
def test_every_templated_field_is_read(kind: type[Any]) -> None:
    assert set(kind.template_fields) - {*OWN} == set(kind.readers) & set(kind.template_fields)


@pytest.mark.promise("native-values-are-read-or-refused")
@pytest.mark.parametrize("kind", KINDS)
def test_field_is_refused_by_name_when_its_value_has_no_plain_meaning(kind: type[Any]) -> None:
    operator = _made(kind)
    for field in operator.readers:
        for value in (None, "None", True, 1.25, [None], {1: None}, object(), UNDEFINED, [UNDEFINED]):
            if _has_meaning(field, value):
                operator.readers[field](field, value)
                continue
            setattr(operator, field, value)
            with pytest.raises(ConfigError) as caught:
                operator.read_rendered()
            assert caught.value.cause.startswith(field)
            assert (repr(value) if not isinstance(value, list | dict) else "") in caught.value.cause
            assert caught.value.fix
            assert not caught.value.is_retriable
        setattr(operator, field, "1")
        if field in OBJECTS:
            setattr(operator, field, "{}")
        if field.startswith(("data_interval", "interval")):
            setattr(operator, field, "")


def _has_meaning(field: str, value: Any) -> bool:
    return (
        (field in ("rate", "older_than") and type(value) is float)
        or (value is None and field in SparkSubmitOperator.template_fields and field != "application")
        or (isinstance(value, dict) and field in ("settings", "where", "offsets"))
        or (value is True and field == "accept_repeats")
    )


@pytest.mark.promise("native-values-are-read-or-refused")
@pytest.mark.parametrize("kind", KINDS)
def test_number_is_the_text_that_it_was_where_a_text_is_due(kind: type[Any]) -> None:
    given = "{{ params.value }}"
    aside = ("accept_repeats", *OWN)  # takes true and false
    fields = [name for name in kind.template_fields if not name.startswith("data_interval") | (name in aside)]
    templates = {name: {"name": given} if name in OBJECTS else given for name in fields}
    operator = _rendered(_made(kind, **templates), params={"value": "20240301"})

    day = datetime.datetime.fromisoformat("20240301")
    special: dict[str, Any] = {
        "topics": ("20240301",),
        "post_submit_commands": ["20240301"],
        "older_than": datetime.timedelta(seconds=20240301),
        **dict.fromkeys(("interval_start", "interval_end"), day),
        **{name: {"name": 20240301} for name in OBJECTS},
        **{name: {"name": "20240301"} for name in ("backfill_outputs", "env_vars")},
        **dict.fromkeys(NUMBERS, 20240301),
    }
    for name in fields:
        plain = ("20240301",) if name.endswith("_topics") else special.get(name, "20240301")
        assert (name, getattr(operator, name)) == (name, plain)
    before = {name: getattr(operator, name) for name in fields}
    operator.read_rendered()
    assert {name: getattr(operator, name) for name in fields} == before


def test_optional_field_stays_left_out_when_it_is_read_again() -> None:
    for kind in KINDS:
        operator = _made(kind)
        operator.read_rendered()
        before = {name: getattr(operator, name) for name in operator.readers}
        operator.read_rendered()
        assert {name: getattr(operator, name) for name in operator.readers} == before


def test_remedies_work_when_they_are_followed() -> None:
    kept = _rendered(_made(RunFinishedSensor, run_id="'{{ params.run }}'"), params={"run": "1.10"})
    assert kept.run_id == "1.10"
    with pytest.raises(ConfigError, match=r"run_id=1\.1 is not text"):
        _rendered(_made(RunFinishedSensor, run_id="{{ params.run }}"), params={"run": "1.10"})

    with pytest.raises(ConfigError, match="limit=None is not a whole number"):
        _rendered(_made(ReplayDeadLettersOperator, limit="{{ params.n }}"), params={"n": None})
    left = _rendered(_made(ReplayDeadLettersOperator, limit="{{ params.n or '' }}"), params={"n": None})
    assert left.limit is None

    with pytest.raises(ConfigError, match="internal_topics=None is not a list of topic names"):
        _rendered(_made(ResetApplicationOperator, internal_topics="{{ params.t }}"), params={"t": None})
    left = _rendered(
        _made(ResetApplicationOperator, internal_topics="{{ params.t or '' }}"), params={"t": None}
    )
    assert left.internal_topics == ()


@pytest.mark.remedy("rendered.switch")
def test_switch_is_taken_when_the_printed_value_is_given() -> None:
    with pytest.raises(ConfigError, match="'perhaps' is not true or false") as caught:
        _rendered(_made(ReplayDeadLettersOperator, accept_repeats="perhaps"))
    assert "give accept_repeats=True or accept_repeats=False" in caught.value.fix
    for answer in (True, False):
        assert _rendered(_made(ReplayDeadLettersOperator, accept_repeats=answer)).accept_repeats is answer


@pytest.mark.parametrize("value", [True, 1, "True", "true", "1", False, 0, "False", "false", "0", ""])
def test_switch_is_read_of_what_a_template_renders(value: Any) -> None:
    replay = _made(ReplayDeadLettersOperator, accept_repeats="{{ params.n }}")
    assert _rendered(replay, params={"n": value}).accept_repeats is (str(value).lower() in ("true", "1"))


def test_values_of_one_list_are_taken_as_text_with_commas_was() -> None:
    values = {"files": ["a.py", "b.py"], "topics": ["orders", "20240301"]}
    run = _rendered(_made(RunTopologyOperator, files="{{ files }}"), **values)
    assert run.files == "a.py,b.py"
    sensor = _rendered(_made(NewDataSensor, topics="{{ topics }}"), **values)
    assert sensor.topics == ("orders", "20240301")
    assert _rendered(_made(CaughtUpSensor, topics="1,2")).topics == ("1", "2")


def test_times_are_taken_as_airflow_gives_them() -> None:
    finished = _made(
        RunFinishedSensor, data_interval_start="{{ start }}", data_interval_end="{{ start.isoformat() }}"
    )
    millis = round(NOON.timestamp() * 1000)
    found = _rendered(finished, start=NOON).condition()
    assert found.interval_ms == (millis, millis)


def test_sensor_waits_for_no_other_run_when_its_template_had_no_value() -> None:
    for rendered in ({"run_id": "{{ params.run }}"}, {"data_interval_start": "{{ params.run }}"}):
        with pytest.raises(ConfigError, match=f"{next(iter(rendered))}=None is"):
            _rendered(_made(RunFinishedSensor, **rendered), params={"run": None}).condition()
    last = _rendered(_made(RunFinishedSensor, run_id="{{ params.run or '' }}"), params={"run": None})
    assert last.condition() == RunFinished(application_id="app")
    assert _made(RunFinishedSensor, run_id=None).condition() == RunFinished(application_id="app")
    assert _rendered(_made(RunFinishedSensor, application_id="20240301")).condition() == RunFinished(
        application_id="20240301", run_id="manual"
    )


def test_task_fails_without_retry_when_its_application_has_no_name() -> None:
    context: Any = {"run_id": "manual", "params": {"app": None}, "dag_run": SimpleNamespace(), "ti": None}
    for kind in (RunFinishedSensor, StopOffsetsReachedSensor, NewDataSensor, CaughtUpSensor):
        sensor = _made(kind, application_id="{{ params.app }}")
        sensor.render_template_fields(context)
        with pytest.raises(
            AirflowFailException, match="application_id=None is what a template without a value renders"
        ):
            sensor.execute(context)


@pytest.mark.parametrize("name", [None, ""])
def test_backfill_has_no_name_when_its_conf_says_none(name: str | None) -> None:
    assert _identity(name).backfill_name == ""
    assert _identity(20240301).backfill_name == "20240301"
    with pytest.raises(ConfigError, match=r"dag_run.conf\['backfill'\]=\['a'\] is not text"):
        _identity(["a"])


def _identity(name: Any) -> RunIdentity:
    dag_run = SimpleNamespace(
        run_id="r", data_interval_start=None, data_interval_end=None, conf={"backfill": name}
    )
    airflow_task = SimpleNamespace(dag_id="d", task_id="t", try_number=1)
    return RunIdentity.of(cast("Any", {"dag_run": dag_run, "ti": airflow_task}))


@pytest.mark.parametrize("value", [["a"], 1.5, True, {"a": 1}])
def test_setting_that_is_a_text_takes_no_other_type(value: Any) -> None:
    name = "errors.dead.letter.queue.topic.name"
    with pytest.raises(ConfigError, match=f"setting '{name}' must be a text, got"):
        ApplicationSettings.parse("app", {name: value})
    assert ApplicationSettings.parse("app", {name: 20240301}).dead_letter_topic == "20240301"
    assert ApplicationSettings.parse("app", {name: None}) == ApplicationSettings.parse("app", {})


def test_setting_is_refused_by_name_when_its_template_had_no_value() -> None:
    operator = _made(CaptureStopOffsetsOperator)
    operator.settings = {"output.topics": "None"}
    with pytest.raises(
        ConfigError, match=r"settings\['output.topics'\]='None' is what a template without a value renders"
    ):
        operator.read_rendered()
