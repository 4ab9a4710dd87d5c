"""Exports the measurements of a run's tasks by OpenTelemetry, once, when the tasks have ended.

The driver exports the reports of its tasks, each task once: it has neither a thread nor a meter while a run
goes on, and nothing else exports. A failed export is a warning in the log. OpenTelemetry's environment
variables set endpoint, protocol, headers, time limits and temporality, as in Airflow.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_kstreams.batch.metrics import (
    ALL_TOTALS,
    ALL_UNITS,
    airflow_name,
    figures,
    node_figures,
    slowest_first,
    thread_figures,
)
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport, by_subtopology, subtopology_of
from airflow_kstreams.launch.run_spec import MetricsTarget
from airflow_kstreams.streams.errors import MissingExtraError, require
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import OTHER_NODES, RecordCounts
from airflow_kstreams.streams.printable import package_log

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader

log = package_log(__name__)

#: The variable that names the exporter, by OpenTelemetry's own names.
EXPORTER_VARIABLE = "OTEL_METRICS_EXPORTER"
_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SERVICE_VARIABLE = "OTEL_SERVICE_NAME"

#: Number of tasks, and of counts of a name, with points of their own.
MOST_POINTS = 100
#: Stands for those that have not.
OTHER = "other"

#: A name without the prefix, what it belongs to, its value.
_Point = tuple[str, dict[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of a run, or of a part of one.

    :param reports: reports of different tasks.
    :param counts: counts of each subtopology's tasks by topic and node, where they are known.
    """

    application_id: str
    reports: Sequence[TaskReport]
    counts: Mapping[int, RecordCounts]


class Telemetry(Protocol):
    """Takes the measurements of a run."""

    def export(self, measured: Measured) -> None:
        """Export measurements; never raises."""
        ...


class OpenTelemetry:
    """Exports by OpenTelemetry's SDK.

    :param target: the target of the export.
    :param readers: make the readers that collect and export; by OpenTelemetry's variables and the target
        unless given.
    """

    def __init__(
        self, target: MetricsTarget, readers: Callable[[], Sequence[MetricReader]] | None = None
    ) -> None:
        self._target = target
        self._readers = readers or self._own_readers

    def export(self, measured: Measured) -> None:
        """Export measurements; an error is only logged."""
        try:
            require("otel", "opentelemetry.sdk", what="the export of metrics")
            self._export(measured)
        except MissingExtraError as error:
            log.warning("no metrics are exported: %s", error)
        except Exception as error:  # any error of the SDK: a run does not fail for its metrics
            log.warning("metrics were not exported: %s: %s", type(error).__name__, error)

    def _export(self, measured: Measured) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource

        readers = self._readers()
        if not readers:
            return
        service = os.environ.get(_SERVICE_VARIABLE) or self._target.service
        # Not the process's global provider, which belongs to the application.
        provider = MeterProvider(
            metric_readers=readers,
            resource=Resource.create({SERVICE_NAME: service}),
            shutdown_on_exit=False,
        )
        try:
            meter = provider.get_meter("airflow_kstreams")
            record: dict[str, Callable[..., None]] = {}
            for name, named_unit in ALL_UNITS.items():
                shown, full = airflow_name(name), f"{self._target.prefix}.{airflow_name(name)}"
                if shown in self._target.left_out:
                    continue
                unit = _unit(named_unit)
                if name in ALL_TOTALS:
                    record[name] = meter.create_counter(full, unit=unit).add
                else:
                    record[name] = meter.create_gauge(full, unit=unit).set
            for name, attributes, value in _points(measured):
                if name in record:
                    record[name](value, attributes)
            provider.force_flush()
        finally:
            provider.shutdown()

    def _own_readers(self) -> Sequence[MetricReader]:
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

        chosen = _chosen()
        if chosen == "none":
            return []
        exporters: list[MetricExporter] = []
        if (otlp := self._otlp_exporter()) is not None:
            exporters.append(otlp)
        if chosen == "console" or (self._target.console and not chosen):
            exporters.append(ConsoleMetricExporter())
        if not exporters:
            log.warning(
                "no metrics are exported: neither Airflow's settings nor the driver's environment name a "
                "target; set %s for the driver",
                _ENDPOINT_VARIABLES[1],
            )
        # Without an interval it collects and exports on request only.
        return [PeriodicExportingMetricReader(each, export_interval_millis=math.inf) for each in exporters]

    def _otlp_exporter(self) -> MetricExporter | None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        if _first(_ENDPOINT_VARIABLES):
            if _first(_PROTOCOL_VARIABLES) == "grpc":
                from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
                    OTLPMetricExporter as GrpcMetricExporter,
                )

                return GrpcMetricExporter()
            return OTLPMetricExporter()
        return OTLPMetricExporter(endpoint=self._target.endpoint) if self._target.endpoint else None


def by_hand() -> MetricsTarget | None:
    """Return the target of a driver that Airflow did not start: none, unless the variable
    ``OTEL_METRICS_EXPORTER`` names an exporter.
    """
    chosen = _chosen()
    if chosen in ("", "none"):
        return None
    if chosen not in ("otlp", "console"):
        log.warning("%s=%s: a driver exports by otlp or console only", EXPORTER_VARIABLE, chosen)
        return None
    return MetricsTarget()


def _points(measured: Measured) -> Iterator[_Point]:
    """Yield every point: for each of the slowest tasks, and for the others of a subtopology together."""
    of_application = {"application_id": measured.application_id}
    slowest = slowest_first(measured.reports)
    groups = {report.task_id: [report] for report in slowest[:MOST_POINTS]}
    others = by_subtopology(slowest[MOST_POINTS:])
    if others:
        log.info("exporting %s together as task=%s", counted(len(slowest) - MOST_POINTS, "task"), OTHER)
    named = [(subtopology_of(task), task, reports) for task, reports in groups.items()]
    named += [(subtopology, OTHER, reports) for subtopology, reports in others.items()]
    for subtopology, task, reports in named:
        attributes = {**of_application, "subtopology": str(subtopology), "task": task}
        for name, value in {**figures(reports), **thread_figures(reports)}.items():
            if value is not None:
                yield name, attributes, value
        for node, of_node in node_figures(reports).items():
            for name, value in of_node.items():
                if value is not None:
                    yield name, {**attributes, "node": _shown(node)}, value
    for number, counts in sorted(measured.counts.items()):
        for name, place, records in _counts(counts):
            yield name, {**of_application, "subtopology": str(number), **place}, records


def _counts(counts: RecordCounts) -> Iterator[tuple[str, dict[str, str], int]]:
    """Yield the record counts of a subtopology, by topic and by node."""
    for name, by_topic in (
        ("records-consumed-total", counts.read),
        ("records-produced-total", counts.output),
    ):
        largest = sorted(by_topic.items(), key=lambda item: (-item[1], item[0]))
        for topic, records in largest[:MOST_POINTS]:
            yield name, {"topic": topic}, records
        if rest := largest[MOST_POINTS:]:
            yield name, {"topic": OTHER}, sum(records for _, records in rest)
    for entry in counts.largest(MOST_POINTS).left_out:
        yield "records-left-out-total", {"node": _shown(entry.node), "rule": entry.rule}, entry.records


def _shown(node: str) -> str:
    return OTHER if node == OTHER_NODES else node


def _unit(unit: str) -> str:
    """Return a unit in OpenTelemetry's form, with counted things in braces."""
    if unit in ("ms", "1"):
        return unit
    what, slash, time = unit.partition("/")
    return f"{{{what.removesuffix('s')}}}{slash}{time}"


def _chosen() -> str:
    return os.environ.get(EXPORTER_VARIABLE, "").strip().lower()


def _first(variables: Sequence[str]) -> str:
    return next((value for name in variables if (value := os.environ.get(name))), "")
