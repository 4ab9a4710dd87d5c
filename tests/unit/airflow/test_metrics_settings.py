"""Airflow's own settings of metrics say whether, where to and under which names a driver exports."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from airflow.sdk._shared.observability.metrics.validators import get_validator

from airflow_kstreams.batch.metrics import ALL_UNITS, airflow_name
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.hooks.metrics_settings import metrics_target, name_filter
from airflow_kstreams.launch.run_spec import MetricsTarget, RunSpec
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    from airflow.sdk import Context

pytestmark = pytest.mark.promise("metrics-exported-once")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OTEL_ON", "STATSD_ON", "STATSD_DATADOG_ENABLED"):
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", "False")
    return monkeypatch


def test_nothing_is_exported_when_airflows_metrics_are_off(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("AIRFLOW__METRICS__OTEL_HOST", "collector")
    settings.setenv("AIRFLOW__METRICS__OTEL_PORT", "4318")
    settings.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    assert metrics_target() is None


@pytest.mark.parametrize("other", ["STATSD_ON", "STATSD_DATADOG_ENABLED"])
def test_nothing_is_exported_when_airflows_metrics_go_to_statsd(
    settings: pytest.MonkeyPatch, other: str
) -> None:
    settings.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    settings.setenv(f"AIRFLOW__METRICS__{other}", "True")
    assert metrics_target() is None


def test_target_is_airflows_when_its_metrics_go_to_opentelemetry(settings: pytest.MonkeyPatch) -> None:
    for name, value in {
        "OTEL_ON": "True",
        "OTEL_HOST": "fd00::1",
        "OTEL_PORT": "4318",
        "OTEL_SSL_ACTIVE": "True",
        "OTEL_PREFIX": "prod",
        "OTEL_SERVICE": "airflow-prod",
        "OTEL_DEBUGGING_ON": "True",
        "METRICS_BLOCK_LIST": "kstreams.process_.*_max,commit",
    }.items():
        settings.setenv(f"AIRFLOW__METRICS__{name}", value)
    target = metrics_target()
    assert target == MetricsTarget(
        endpoint="https://[fd00::1]:4318/v1/metrics",
        prefix="prod",
        service="airflow-prod",
        console=True,
        left_out=tuple(
            airflow_name(name)
            for name in ALL_UNITS
            if name.startswith("commit") or name == "process-latency-max"
        ),
    )
    spec = RunSpec(application_id="app", run_id="r", metrics=target)
    assert RunSpec.from_json(spec.to_json()) == spec


def test_environment_says_where_to_when_the_settings_do_not(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    assert metrics_target() == MetricsTarget()


@pytest.mark.parametrize(
    ("allow", "block"),
    itertools.product(["", "kstreams", "PROCESS_rate, commit.*p99"], ["", "kstreams", "lag$,^other"]),
)
def test_lists_let_through_what_airflow_lets_through(allow: str, block: str) -> None:
    airflow = get_validator(allow or None, block or None)
    ours = name_filter(allow, block)
    names = [airflow_name(name) for name in ALL_UNITS]
    assert [name for name in names if ours(name)] == [name for name in names if airflow.test(name)]


@pytest.mark.parametrize("on", [True, False])
def test_driver_is_told_when_the_operator_submits_it(settings: pytest.MonkeyPatch, on: bool) -> None:
    settings.setenv("AIRFLOW__METRICS__OTEL_ON", str(on))
    settings.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://in-memory:9092")
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    kafka.append("in", b"v", b"k")
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream("in").send_to("out")
    application = Application(on=kafka, clock=kafka.clock, application_id="app", topology=builder.build())
    specs: list[RunSpec] = []

    def submit(self: RunTopologyOperator, context: object, spec: RunSpec, config: object) -> None:
        specs.append(spec)
        application.tasks(application.begin("r"))

    settings.setattr(KafkaHook, "cluster", lambda *_, **__: kafka)
    settings.setattr(RunTopologyOperator, "_submit", submit)
    operator = RunTopologyOperator(task_id="run", application_id="app", application="-")
    instance = SimpleNamespace(dag_id="d", task_id="run", try_number=1, map_index=-1)
    dag_run = SimpleNamespace(run_id="r", clear_number=0, data_interval_start=None, data_interval_end=None)
    operator.execute(cast("Context", {"ti": instance, "dag_run": dag_run}))

    assert [spec.metrics for spec in specs] == [MetricsTarget() if on else None]
