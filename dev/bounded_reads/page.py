"""Writes ``docs/internals/conformance.md`` from what the readers did."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template

from dev.bounded_reads import airflow_reader, spark_readers
from dev.servers.embedded import kafka_libraries, libraries_version
from tests.conformance.cases import CASES
from tests.conformance.ours import SETTLE_MS
from tests.conformance.playing import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "conformance.md"
#: Readers by their names on the command line, with their titles in the table.
READERS: Mapping[str, str] = {
    "ours": "airflow_kstreams",
    "spark-available-now": "Spark AvailableNow",
    "spark-batch": "Spark batch read",
    "airflow": "ConsumeFromTopicOperator",
}
#: Outcomes by reader and case.
Results = Mapping[str, Mapping[str, Outcome]]

_TEXT = Path(__file__).with_name("page.md")
_LONGEST_SAYING = 200
#: Addresses and topic ids are others in every run; what to do about a loss is not shown.
_CHANGING = re.compile(r"127\.0\.0\.1:\d+|(?<=id is )[\w/+-]{22}|(?<=expected )[\w/+-]{22}|\s+What to do: .*")


def cell(outcome: Outcome) -> str:
    """Return an outcome in a few words."""
    if outcome.faults:
        return "; ".join(outcome.faults)
    return "ok, says so" if outcome.said else "ok"


def write_page(results: Results) -> None:
    """Write the page.

    :param results: of all readers and cases.
    """
    PAGE.write_text(page(results), encoding="utf-8")


def page(results: Results) -> str:
    """Return the page's text."""
    return Template(_TEXT.read_text(encoding="utf-8")).substitute(
        table="\n".join(_table(results)),
        evidence="\n".join(_evidence(results)),
        losses="\n".join(_losses(results)),
        settle_ms=SETTLE_MS,
        bound_spark=spark_readers.BOUND_SECONDS,
        bound_airflow=airflow_reader.BOUND_SECONDS,
        poll_timeout=airflow_reader.POLL_TIMEOUT_SECONDS,
        connection=", ".join(f"`{key}={value}`" for key, value in airflow_reader.CONNECTION.items()),
        options=", ".join(f"`{key}={value}`" for key, value in spark_readers.OPTIONS.items()),
        kafka=libraries_version(kafka_libraries()),
        **{
            name.replace("-", "_"): importlib.metadata.version(name)
            for name in (
                "apache-airflow",
                "apache-airflow-providers-apache-kafka",
                "confluent-kafka",
                "pyspark",
            )
        },
    )


def _table(results: Results) -> Iterator[str]:
    yield f"| case | the topic | {' | '.join(READERS.values())} |"
    yield f"| --- | --- |{' --- |' * len(READERS)}"
    for case in CASES:
        cells = " | ".join(cell(results[reader][case.name]) for reader in READERS)
        yield f"| {case.name} | {case.shows} | {cells} |"


def _evidence(results: Results) -> Iterator[str]:
    for reader, title in READERS.items():
        for case in CASES:
            outcome = results[reader][case.name]
            if outcome.faults:
                yield f"- {title}, {case.name}: {'; '.join(outcome.evidence)}"


def _losses(results: Results) -> Iterator[str]:
    for reader, title in READERS.items():
        for number, case in enumerate(CASES):
            if said := results[reader][case.name].said:
                said = _CHANGING.sub("...", said.replace(f"{reader}-{number}", "topic"))
                yield f"- {title}, {case.name}: `{said[:_LONGEST_SAYING].replace('`', chr(39))}`"
