"""The rules for Prometheus and the board for Grafana name figures that drivers export, by the names that OTLP
gives them in Prometheus.
"""

from __future__ import annotations

import configparser
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # Airflow brings it, and no types
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from airflow_kstreams.batch.metrics import ALL_TOTALS, ALL_UNITS, airflow_name
from airflow_kstreams.launch.run_spec import MetricsTarget
from airflow_kstreams.spark.driver.telemetry import Measured, OpenTelemetry
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from tests.support.airflow import airflow_environment
from tests.support.docs.how_to_pages import command_lines
from tests.support.docs.snippets import Snippets
from tests.support.fresh_python import ROOT

RULES = ROOT / "docs" / "how-to" / "alerts.rules.yml"
BOARD = ROOT / "docs" / "how-to" / "grafana-board.json"
_METRIC = re.compile(r"\bairflow_kstreams_\w++")
_LABELS = {"application_id", "subtopology", "task", "node", "topic", "rule"}
_UNITS = {"ms": "milliseconds", "1": "", "s": "seconds"}


def in_prometheus(name: str, unit: str, *, counter: bool) -> str:
    """Return the name that a metric of OTLP gets in Prometheus, by the rules of its translation.

    Units stand at the end, those in braces are left out, ``/s`` becomes ``per_second``; a counter ends with
    ``total``, a gauge without dimension with ``ratio``; no token comes again for it
    (https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/).
    """
    tokens = re.findall(r"[a-zA-Z0-9:]++", name)
    main, _, per = unit.partition("/")
    main = "" if "{" in main else _UNITS[main]
    per = {"": "", "s": "second"}[per]
    tokens += [main] if main and main not in tokens else []
    tokens += ["per", per] if per and per not in tokens else []
    ending = "total" if counter else "ratio" if unit == "1" else ""
    if ending:
        tokens = [token for token in tokens if token != ending] + [ending]
    return "_".join(tokens)


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """The names in Prometheus of all that a driver can export: each instrument is asked for its unit."""
    made: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patched:
        _note_instruments(patched, made)
        telemetry = OpenTelemetry(MetricsTarget(), lambda: [InMemoryMetricReader()])
        telemetry.export(Measured(application_id="app", reports=(), counts={0: RecordCounts()}))
    assert made.keys() == {f"airflow.{airflow_name(name)}" for name in ALL_UNITS}
    totals = {f"airflow.{airflow_name(name)}" for name in ALL_TOTALS}
    return {in_prometheus(name, unit, counter=name in totals) for name, unit in made.items()}


def _note_instruments(patched: pytest.MonkeyPatch, made: dict[str, str]) -> None:
    """Note name and unit of each instrument that the SDK makes."""
    from opentelemetry.sdk.metrics import Meter

    for kind in ("create_counter", "create_gauge"):
        create = getattr(Meter, kind)

        def noting(self: Meter, name: str, unit: str = "", *, create: Any = create, **more: Any) -> Any:
            made[name] = unit
            return create(self, name, unit=unit, **more)

        patched.setattr(Meter, kind, noting)


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each query of rules and board, with what it belongs to."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]


def test_names_are_those_of_prometheus_when_otlp_is_translated(exported: set[str]) -> None:
    assert {
        "airflow_kstreams_process_latency_p99_milliseconds",
        "airflow_kstreams_process_rate_per_second",
        "airflow_kstreams_process_total",
        "airflow_kstreams_event_loop_busy_ratio",
        "airflow_kstreams_records_lag",
    } <= exported


@pytest.mark.parametrize(("place", "query"), expressions(), ids=lambda text: text[:24])
def test_query_names_what_a_driver_exports(place: str, query: str, exported: set[str]) -> None:
    named = set(_METRIC.findall(query))
    assert named, place
    assert named <= exported
    labels = {name for names in re.findall(r"by \(([^)]*+)\)", query) for name in names.split(", ")}
    labels |= set(re.findall(r'(\w+)(?:=~|=)"', query))
    assert labels <= _LABELS
    assert query.count("(") == query.count(")")
    assert math.isclose(query.count("{"), query.count("}"))


def test_alerts_stand_on_the_page_and_say_what_to_do() -> None:
    page = (ROOT / "docs" / "how-to" / "alerts.md").read_text(encoding="utf-8")
    for rule in rules():
        assert f"`{rule['alert']}`" in page
        assert rule["annotations"]["action"].startswith("airflow-kstreams ")
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_panels_fit_beside_each_other_on_the_board() -> None:
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)


@pytest.mark.snippets("docs/how-to/alerts.md")
def test_export_is_on_when_the_page_on_alerts_is_followed(
    snippets: Snippets, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow_environment.prepare()
    from airflow_kstreams.hooks.metrics_settings import metrics_target

    assert metrics_target() is None
    read = configparser.ConfigParser()
    read.read_string(snippets.take("ini").code)
    for section in read.sections():
        for name, value in read[section].items():
            monkeypatch.setenv(f"AIRFLOW__{section}__{name}".upper(), value)
    ((_, pair),) = command_lines(snippets.take("shell").code)
    monkeypatch.setenv(*pair.split("=", 1))
    target = metrics_target()
    assert target is not None
    assert target.prefix == "airflow"
    assert yaml.safe_load(snippets.take("yaml").code) == {"rule_files": [RULES.name]}
