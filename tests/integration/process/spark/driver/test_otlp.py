"""A driver's metrics on the wire: one request to a collector that takes OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.launch.run_spec import MetricsTarget
from airflow_kstreams.spark.driver.telemetry import Measured, OpenTelemetry

pytestmark = pytest.mark.promise("metrics-exported-once")

MEASURED = Measured(
    application_id="app", reports=[TaskReport(task_id="0_3", records_in=7, commits=1)], counts={}
)


@dataclass
class Collected:
    """Requests that came: path, a header that was asked for, what was exported."""

    url: str = ""
    answer: int = 200
    requests: list[tuple[str, str | None, ExportMetricsServiceRequest]] = field(default_factory=list)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    for name in (
        "OTEL_METRICS_EXPORTER",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ):
        monkeypatch.delenv(name, raising=False)
    collected = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = ExportMetricsServiceRequest.FromString(body)
            collected.requests.append((self.path, self.headers.get("x-tenant"), request))
            self.send_response(collected.answer)
            self.end_headers()
            self.wfile.write(ExportMetricsServiceResponse().SerializeToString())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class has it
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        collected.url = f"http://127.0.0.1:{server.server_port}"
        yield collected
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("by", ["settings", "environment"])
def test_one_request_comes_when_a_run_is_exported(
    collector: Collected, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MetricsTarget(endpoint=f"{collector.url}/v1/metrics")
    if by == "environment":
        target = MetricsTarget()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=secret")

    OpenTelemetry(target).export(MEASURED)

    ((path, tenant, request),) = collector.requests
    assert (path, tenant) == ("/v1/metrics", "secret")
    found = {
        metric.name: metric.sum.data_points[0]
        for of_resource in request.resource_metrics
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
    }
    point = found["airflow.kstreams.process_total"]
    attributes = {each.key: each.value.string_value for each in point.attributes}
    assert attributes == {"application_id": "app", "subtopology": "0", "task": "0_3"}
    assert (point.as_int, point.start_time_unix_nano > 0) == (7, True)


def test_driver_goes_on_when_the_collector_refuses(
    collector: Collected, caplog: pytest.LogCaptureFixture
) -> None:
    collector.answer = 400
    OpenTelemetry(MetricsTarget(endpoint=f"{collector.url}/v1/metrics")).export(MEASURED)
    assert len(collector.requests) == 1
    assert any("400" in message for message in caplog.messages), "the exporter's own words"
