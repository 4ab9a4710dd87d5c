"""What a driver exports by OpenTelemetry, and how often: once for each run, and only where it is told to."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)

from airflow_kstreams.batch.metrics import ALL_TOTALS, ALL_UNITS, COUNTS, UNITS, airflow_name
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskMetrics, TaskReport
from airflow_kstreams.launch.run_spec import MetricsTarget, RunSpec
from airflow_kstreams.spark.driver.driver import Driver
from airflow_kstreams.spark.driver.telemetry import MOST_POINTS, Measured, OpenTelemetry, by_hand
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.figures.call_figures import CallFigures, Latencies, NodeCalls, ThreadFigures
from airflow_kstreams.streams.figures.record_counts import OTHER_NODES, LeftOut, RecordCounts
from tests.support.kafka.reset_scene import APP, ResetScene
from tests.unit.spark.driver.test_one_subtopology import InProcess

pytestmark = pytest.mark.promise("metrics-exported-once")

_LOG = "airflow_kstreams.spark.driver.telemetry"
_VARIABLES = (
    "OTEL_METRICS_EXPORTER",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_SERVICE_NAME",
)

Point = tuple[dict[str, Any], float]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


class Collector(MetricExporter):
    """Keeps what is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.exported: list[MetricsData] = []
        self.shut_down = 0

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: Any) -> MetricExportResult:
        self.exported.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
        self.shut_down += 1

    def readers(self) -> Sequence[MetricReader]:
        return [PeriodicExportingMetricReader(self, export_interval_millis=math.inf)]


def points(data: MetricsData | None) -> dict[str, list[Point]]:
    assert data is not None
    return {
        metric.name: [(dict(point.attributes or {}), point.value) for point in metric.data.data_points]  # type: ignore[union-attr]
        for of_resource in data.resource_metrics
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
    }


@pytest.fixture
def scene() -> ResetScene:
    """Three subtopologies in a row, of one task each."""
    made = ResetScene(partitions=1)
    made.send("a", "b", "a")
    return made


def drive(
    scene: ResetScene, run_id: str, telemetry: OpenTelemetry | None, executors: InProcess | None = None
) -> None:
    Driver(
        RunSpec(application_id=APP, run_id=run_id, order=(0, 1), finish=True),
        scene.topology,
        settings=scene.checked,
        cluster=scene.kafka,
        executors=executors or InProcess(scene=scene),
        clock=scene.clock,
        telemetry=telemetry,
    ).run()


def test_each_run_is_exported_once_when_it_has_ended(scene: ResetScene) -> None:
    collector = Collector()
    telemetry = OpenTelemetry(MetricsTarget(), collector.readers)
    drive(scene, "r1", telemetry)
    assert (len(collector.exported), collector.shut_down) == (1, 1)

    drive(scene, "r1", telemetry)
    scene.send()
    drive(scene, "r2", telemetry)
    assert len(collector.exported) == 1, "nothing was processed"

    scene.send("c")
    drive(scene, "r3", telemetry)
    assert (len(collector.exported), collector.shut_down) == (2, 2)


def test_every_task_has_its_figures_when_a_run_is_exported(scene: ResetScene) -> None:
    readers: list[InMemoryMetricReader] = []

    def reader() -> Sequence[MetricReader]:
        readers.append(InMemoryMetricReader())
        return readers[-1:]

    drive(scene, "r1", OpenTelemetry(MetricsTarget(), reader))

    (memory,) = readers
    found = points(memory.get_metrics_data())
    of_tasks = [
        {"application_id": APP, "subtopology": str(number), "task": f"{number}_0"} for number in range(3)
    ]
    assert [attributes for attributes, _ in found["airflow.kstreams.process_total"]] == of_tasks
    assert [value for _, value in found["airflow.kstreams.process_total"]] == [3, 3, 3]
    assert [value for _, value in found["airflow.kstreams.records_lag"]] == [0, 0, 0]
    assert [attributes for attributes, _ in found["airflow.kstreams.commit_latency_p99"]] == of_tasks
    consumed = found["airflow.kstreams.records_consumed_total"]
    assert [(attributes["subtopology"], value) for attributes, value in consumed] == [
        ("0", 3),
        ("1", 3),
        ("2", 3),
    ]
    assert {"application_id", "subtopology", "topic"} == set(consumed[0][0])


def test_nothing_is_exported_when_airflows_metrics_are_off(
    scene: ResetScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(self: OpenTelemetry, measured: Measured) -> None:
        raise AssertionError(f"exported {measured}")

    monkeypatch.setattr(OpenTelemetry, "export", export)
    drive(scene, "r1", None)
    assert RunSpec.from_json(RunSpec(application_id=APP, run_id="r").to_json()).metrics is None


def test_tasks_that_ended_are_exported_once_when_another_one_fails(scene: ResetScene) -> None:
    collector = Collector()
    broken = InProcess(scene=scene, broken={"r1: 1_0"})
    with pytest.raises(RecordError):
        drive(scene, "r1", OpenTelemetry(MetricsTarget(), collector.readers), broken)
    (exported,) = map(points, collector.exported)
    assert [attributes["task"] for attributes, _ in exported["airflow.kstreams.process_total"]] == ["0_0"]


def test_run_is_finished_when_the_export_fails(scene: ResetScene, caplog: pytest.LogCaptureFixture) -> None:
    def readers() -> Sequence[MetricReader]:
        raise ValueError("no such collector")

    drive(scene, "r1", OpenTelemetry(MetricsTarget(), readers))
    assert scene.ledger.find("r1") is not None
    assert caplog.messages[-1] == "metrics were not exported: ValueError: no such collector"


def report(number: int, process_ns: int = 1_000) -> TaskReport:
    latencies = Latencies(process_ns, process_ns, 3, (80, 1))
    return TaskReport(
        task_id=f"0_{number}",
        records_in=1,
        commits=1,
        metrics=TaskMetrics(process=latencies, active_ns=10**9),
    )


def exported(measured: Measured, **target: Any) -> dict[str, list[Point]]:
    collector = Collector()
    OpenTelemetry(MetricsTarget(**target), collector.readers).export(measured)
    (data,) = collector.exported
    return points(data)


def test_points_have_a_bound_when_there_are_many_tasks_and_nodes() -> None:
    many = 3 * MOST_POINTS
    left_out = tuple(LeftOut(f"node-{number:03}", "late", many - number) for number in range(many))
    read = {f"topic-{number:03}": many - number for number in range(many)}
    found = exported(
        Measured(
            application_id="app",
            reports=[report(number, process_ns=number) for number in range(many)],
            counts={0: RecordCounts(read=read, left_out=left_out)},
        )
    )
    assert max(map(len, found.values())) == MOST_POINTS + 1
    totals = {name: sum(value for _, value in of_name) for name, of_name in found.items()}
    assert totals["airflow.kstreams.process_total"] == many, "the others are put together"
    assert totals["airflow.kstreams.records_consumed_total"] == many * (many + 1) / 2
    assert totals["airflow.kstreams.records_left_out_total"] == many * (many + 1) / 2
    tasks = [attributes["task"] for attributes, _ in found["airflow.kstreams.process_total"]]
    assert (tasks[0], tasks[-1]) == (f"0_{many - 1}", "other"), "the slowest by themselves"
    nodes = [attributes["node"] for attributes, _ in found["airflow.kstreams.records_left_out_total"]]
    assert "other" in nodes
    assert "node-000" in nodes


def test_figures_are_left_out_when_they_are_unknown_or_not_wanted() -> None:
    old = TaskReport(task_id="0_0", records_in=5, commits=2)
    left_out = (airflow_name("commit-total"),)
    found = exported(
        Measured(application_id="app", reports=[old], counts={}), left_out=left_out, prefix="flights"
    )
    assert {name: value for name, ((_, value),) in found.items()} == {
        "flights.kstreams.process_total": 5,
        "flights.kstreams.dropped_records_total": 0,
        "flights.kstreams.dead_letter_records_total": 0,
        "flights.kstreams.restore_total": 0,
    }


def test_totals_are_counters_and_the_others_gauges() -> None:
    collector = Collector()
    counts = {0: RecordCounts(read={"in": 1}, written={"out": 1}, left_out=(LeftOut("n", "late", 1),))}
    OpenTelemetry(MetricsTarget(service="airflow-test"), collector.readers).export(
        Measured(application_id="app", reports=[report(0)], counts=counts)
    )
    (data,) = collector.exported
    (of_resource,) = data.resource_metrics
    assert of_resource.resource.attributes["service.name"] == "airflow-test"
    kinds = {metric.name: metric for metric in of_resource.scope_metrics[0].metrics}
    for name in (*UNITS, *COUNTS):
        metric = kinds.get(f"airflow.{airflow_name(name)}")
        if metric is None:
            assert "commit-latency" in name or name in ("restore-rate", "records-lag"), name
            continue
        assert hasattr(metric.data, "is_monotonic") == name.endswith("-total")
    total = kinds["airflow.kstreams.process_total"]
    assert total.data.aggregation_temporality is AggregationTemporality.CUMULATIVE  # type: ignore[union-attr]
    assert total.unit == "{record}"
    assert kinds["airflow.kstreams.process_rate"].unit == "{record}/s"
    assert kinds["airflow.kstreams.process_latency_p99"].unit == "ms"


@pytest.mark.parametrize(
    ("environment", "target", "kinds"),
    [
        ({}, {"endpoint": "http://collector:4318/v1/metrics"}, ["OTLPMetricExporter"]),
        (
            {},
            {"endpoint": "http://collector:4318/v1/metrics", "console": True},
            ["OTLPMetricExporter", "ConsoleMetricExporter"],
        ),
        ({"OTEL_METRICS_EXPORTER": "none"}, {"endpoint": "http://collector:4318/v1/metrics"}, []),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1"},
            {"endpoint": "http://other:2"},
            ["OTLPMetricExporter"],
        ),
        ({"OTEL_METRICS_EXPORTER": "console"}, {}, ["ConsoleMetricExporter"]),
        ({}, {}, []),
    ],
)
def test_exporters_are_those_of_settings_and_environment(
    environment: dict[str, str],
    target: dict[str, Any],
    kinds: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    readers: Any = OpenTelemetry(MetricsTarget(**target))._own_readers()
    exporters = [reader._exporter for reader in readers]
    assert [type(exporter).__name__ for exporter in exporters] == kinds
    endpoints = [exporter._endpoint for exporter in exporters if hasattr(exporter, "_endpoint")]
    given = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    assert endpoints in ([], [f"{given}/v1/metrics" if given else target.get("endpoint")])
    silent = not kinds and environment.get("OTEL_METRICS_EXPORTER") != "none"
    assert any("OTEL_EXPORTER_OTLP_ENDPOINT" in message for message in caplog.messages) == silent


@pytest.mark.remedy("telemetry.OpenTelemetry._own_readers")
def test_metrics_are_exported_when_the_variable_of_the_warning_is_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert OpenTelemetry(MetricsTarget())._own_readers() == []
    (message,) = caplog.messages
    variable = message.removesuffix(" for the driver").rpartition("; set ")[2]
    monkeypatch.setenv(variable, "http://collector:4318")
    (reader,) = OpenTelemetry(MetricsTarget())._own_readers()
    exporter: Any = reader
    assert exporter._exporter._endpoint == "http://collector:4318/v1/metrics"


@pytest.mark.parametrize(
    ("chosen", "exports"),
    [("", False), ("none", False), ("otlp", True), ("console", True), ("prometheus", False)],
)
def test_driver_by_hand_exports_when_the_variable_names_an_exporter(
    chosen: str, exports: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", chosen)
    assert (by_hand() is not None) == exports
    assert bool(caplog.messages) == (chosen == "prometheus")


@pytest.mark.error_example("KS-APP-002")
def test_extra_is_named_when_the_sdk_is_not_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find: Callable[..., Any] = lambda name: None  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", find)
    with caplog.at_level(logging.WARNING, logger=_LOG):
        OpenTelemetry(MetricsTarget()).export(Measured(application_id="app", reports=[report(0)], counts={}))
    (message,) = caplog.messages
    assert message.startswith("no metrics are exported")
    assert "airflow-kstreams[otel]" in message


def test_calls_are_exported_by_node_and_threads_by_task() -> None:
    latency = Latencies(20_000_000, 10_000_000, 3, (186, 2))
    threads = ThreadFigures(running=1, idle=2, replaced=3, open_ns=10**9, busy_ns=5 * 10**8)
    nodes = (NodeCalls("ask", latency, 1, 1, 1, 2), NodeCalls(OTHER_NODES, latency))
    calls = CallFigures(nodes, True, 10**7, 3 * 10**7, 4, threads)
    calling = TaskReport(task_id="0_0", metrics=TaskMetrics(calls=calls), parked={"ask": 7})
    found = exported(Measured(application_id="app", reports=[calling, report(1)], counts={}))

    of_task = {"application_id": "app", "subtopology": "0", "task": "0_0"}
    of_node = {**of_task, "node": "ask"}
    assert found["airflow.kstreams.call_total"] == [(of_node, 2), ({**of_task, "node": "other"}, 2)]
    one_each = {name.removeprefix("airflow.kstreams."): of_name[0] for name, of_name in found.items()}
    expected: dict[str, Point] = {
        "call_rate": (of_node, 200),
        "call_latency_avg": (of_node, 10),
        "call_latency_max": (of_node, 10),
        "calls_in_flight_avg": (of_node, 2),
        "calls_in_flight_max": (of_node, 2),
        "calls_queued_avg": (of_node, 0),
        "call_failed_total": (of_node, 1),
        "call_timeout_total": (of_node, 1),
        "call_retry_total": (of_node, 1),
        "records_parked": (of_node, 7),
        "records_waiting_avg": (of_task, 3),
        "records_waiting_max": (of_task, 4),
        "thread_running": (of_task, 1),
        "thread_idle": (of_task, 2),
        "thread_replaced_total": (of_task, 3),
        "thread_busy_ratio": (of_task, 0.5),
    }
    assert {name: one_each[name] for name in expected} == expected
    assert "event_loop_busy_ratio" not in one_each, "there was no loop"


def test_every_figure_has_a_kind_and_a_unit() -> None:
    assert sorted(ALL_TOTALS) == sorted(name for name in ALL_UNITS if name.endswith("-total"))
    assert {*ALL_UNITS} >= {*UNITS, *COUNTS}
