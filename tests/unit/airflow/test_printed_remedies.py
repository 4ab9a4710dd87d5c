"""A templated field, a deployment of Spark or a run spec that was refused is given as the error says."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import DAG, Context

from airflow_kstreams.hooks import rendered
from airflow_kstreams.hooks.rendered import number
from airflow_kstreams.hooks.spark import TopologySubmitHook, refuse_undefined_connection
from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE, RunSpec
from airflow_kstreams.operators.reset_application import ResetApplicationOperator
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.streams.errors import ConfigError
from tests.support.airflow.airflow_environment import add_connection
from tests.support.remedies import walked

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

FIELDS = [
    walked("rendered.text", rendered.text, "", "orders", "orders"),
    walked("rendered.optional_text: give {}=", rendered.optional_text, 20.5, "20.5", "20.5"),
    walked("rendered.optional_text: {_LEAVE_OUT}", rendered.optional_text, "None", "", ""),
    walked("rendered.number.read", number(1), "0", "1", 1),
    walked("rendered.rate", rendered.rate, "fast", 1000, 1000.0),
    walked(
        "rendered.topic_names",
        rendered.topic_names,
        "['orders', 'customers']",
        "orders, customers",
        ("orders", "customers"),
    ),
    walked(
        "rendered.json_object",
        rendered.json_object,
        "{'name': 'value'}",
        '{"name": "value"}',
        {"name": "value"},
    ),
    walked("rendered.moment", rendered.moment, "noon", "2026-01-31T12:00:00+00:00", NOON),
    walked(
        "rendered.moment_with_zone",
        rendered.moment_with_zone,
        "2026-01-31T12:00:00",
        "2026-01-31T12:00:00+00:00",
        NOON,
    ),
    walked("rendered.span", rendered.span, "a while", "PT15M", timedelta(minutes=15)),
]


@pytest.mark.remedy("rendered._refuse_undefined")
def test_field_is_taken_when_its_template_uses_a_name_of_airflows() -> None:
    def rendered_of(template: str) -> Any:
        with DAG("d", schedule=None, render_template_as_native_obj=True):
            operator = ResetApplicationOperator(task_id="t", application_id=template)
        operator.render_template_fields(cast("Context", {"ds": "2026-01-31"}))
        operator.read_rendered()
        return operator.application_id

    with pytest.raises(ConfigError, match="not defined"):
        rendered_of("{{ date }}")
    assert rendered_of("{{ ds }}") == "2026-01-31"


@pytest.mark.parametrize(("read", "fault", "told", "wanted"), FIELDS)
def test_field_is_taken_as_the_error_says(
    read: Callable[[str, Any], object], fault: object, told: object, wanted: object
) -> None:
    with pytest.raises(ConfigError):
        read("field", fault)
    assert read("field", told) == wanted


def spark_connection(monkeypatch: pytest.MonkeyPatch, host: str, **extra: str) -> None:
    fields = {"conn_type": "spark", "host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(fields))


def hook(**given: Any) -> TopologySubmitHook:
    return TopologySubmitHook.adopt(SparkSubmitHook(conn_id="spark_default", **given))


@pytest.mark.remedy("spark.TopologySubmitHook.refuse_unfit_deployment: use deploy mode")
def test_standalone_cluster_is_taken_in_the_mode_that_the_error_says(monkeypatch: pytest.MonkeyPatch) -> None:
    spark_connection(monkeypatch, "spark://HOST:7077")
    with pytest.raises(ConfigError, match="no Python driver on the workers"):
        hook(deploy_mode="cluster").refuse_unfit_deployment(durable=False)
    hook(deploy_mode="client").refuse_unfit_deployment(durable=False)


@pytest.mark.remedy("spark.TopologySubmitHook.refuse_unfit_deployment: pass yarn_track_via_rm_api")
def test_yarn_is_taken_when_a_retry_can_ask_it_or_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    spark_connection(monkeypatch, "yarn")
    with pytest.raises(ConfigError, match="REST API"):
        hook(deploy_mode="cluster").refuse_unfit_deployment(durable=True)
    hook(deploy_mode="cluster").refuse_unfit_deployment(durable=False)
    spark_connection(monkeypatch, "yarn", yarn_resourcemanager_webapp_address="http://HOST:8088")
    tracked = hook(deploy_mode="cluster", yarn_track_via_rm_api=True)
    tracked.refuse_unfit_deployment(durable=True)
    tracked._validate_yarn_track_via_rm_api_config()


@pytest.mark.remedy("spark.refuse_undefined_connection")
def test_connection_of_spark_is_there_when_it_was_added_by_the_command_of_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_undefined_connection("nowhere")
    add_connection(refused.value.fix, monkeypatch)
    refuse_undefined_connection("nowhere")
    assert SparkSubmitHook(conn_id="nowhere")._connection["master"] == "local[2,4]"


@pytest.mark.remedy("run_topology.RunTopologyOperator._submit")
def test_driver_on_another_machine_is_started_when_a_file_there_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark_connection(monkeypatch, "yarn")
    started: list[TopologySubmitHook] = []
    monkeypatch.setattr(RunTopologyOperator, "_start", lambda _, __, hook: started.append(hook))
    spec = RunSpec(application_id="app", run_id="r")

    def submit(**given: Any) -> RunTopologyOperator:
        operator = RunTopologyOperator(
            task_id="t", application_id="app", application="a.py", deploy_mode="cluster", **given
        )
        operator._submit(Context(), spec, {"bootstrap.servers": "HOST:PORT"})
        return operator

    with pytest.raises(ConfigError, match="starts the driver on another machine"):
        submit()
    told = submit(env_vars={CLIENT_CONFIG_FILE: "/mounted/client.json"})
    assert [each.deploy_mode for each in started] == ["cluster"]
    assert told.env_vars is not None
    assert told.env_vars[CLIENT_CONFIG_FILE] == "/mounted/client.json"


@pytest.mark.parametrize(
    "fault",
    [
        walked("run_spec.RunSpec.from_json: pass the JSON", '{"run": "r"}'),
        walked(
            "run_spec.RunSpec.from_json: install the same",
            RunSpec(application_id="app", run_id="r", version=99).to_json(),
        ),
    ],
)
def test_run_spec_is_read_when_it_is_that_of_an_operator_of_this_version(fault: str) -> None:
    with pytest.raises(ConfigError):
        RunSpec.from_json(fault)
    spec = RunSpec(application_id="app", run_id="r")
    assert RunSpec.from_json(spec.to_json()) == spec
