"""What ``init`` wrote runs as it stands, on a real broker, with the records that it brings."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kstreams.first_steps.project import Example
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.conftest import Deadline, Row
from tests.support.kafka.in_process import Application
from tests.unit.first_steps.test_project import project

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

RESULTS: dict[Example, dict[str, Any]] = {
    "orders": {"ann": 4450, "ben": 5010, "cleo": 10600, "dora": 640},
    "flights": {
        "AA 2013-01-01": {"flights": 2, "cancelled": 0, "delay_minutes": -10},
        "AA 2013-01-02": {"flights": 4, "cancelled": 2, "delay_minutes": 37},
        "AA 2013-01-03": {"flights": 3, "cancelled": 1, "delay_minutes": 17},
        "B6 2013-01-01": {"flights": 3, "cancelled": 0, "delay_minutes": -11},
        "B6 2013-01-02": {"flights": 3, "cancelled": 0, "delay_minutes": 10},
        "B6 2013-01-03": {"flights": 3, "cancelled": 0, "delay_minutes": 65},
        "UA 2013-01-01": {"flights": 3, "cancelled": 0, "delay_minutes": 51},
        "UA 2013-01-02": {"flights": 3, "cancelled": 0, "delay_minutes": 32},
        "UA 2013-01-03": {"flights": 3, "cancelled": 0, "delay_minutes": 8},
    },
    "empty": {"1": {"text": "hello"}, "2": {"text": "world"}},
}


@pytest.mark.parametrize("example", RESULTS)
def test_results_are_right_when_a_first_project_runs_as_it_stands(
    example: Example,
    tmp_path: Path,
    kafka: str,
    application_id: str,
    kafka_admin: AdminClient,
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> None:
    written = project(example, application_id, bootstrap_servers=kafka)
    written.write(tmp_path)
    _delete(written.topics, kafka_admin)
    reads, writes = (create_topic(topic, partitions=2) for topic in written.topics)
    produce(reads, [*_rows(tmp_path / written.records.file, written.records.key)])

    topology = ApplicationFile.read(tmp_path / f"{written.module}.py").topology()
    Application(application_id=application_id, bootstrap=kafka, topology=topology).run("first")

    assert {row.key.decode(): row.json() for row in consume_all(writes)} == RESULTS[example]


def _delete(topics: Sequence[str], admin: AdminClient) -> None:
    """Delete the topics that other tests on this broker have made by these names."""
    there = sorted({*topics} & {*admin.list_topics(timeout=30).topics})
    for deleted in (admin.delete_topics(there) if there else {}).values():
        deleted.result(30)
    gone = Deadline(seconds=30)
    gone.until(lambda: not {*topics} & {*admin.list_topics(timeout=30).topics}, "the topics are gone")


def _rows(file: Path, key: str) -> list[Row]:
    lines = file.read_text().splitlines()
    records: list[dict[str, Any]] = (
        [*map(json.loads, lines)] if file.suffix == ".jsonl" else [*csv.DictReader(lines)]
    )
    for record in records:
        if "delay" in record:
            record["delay"] = json.loads(record["delay"] or "null")
    return [Row(key=record[key], value=record, timestamp_ms=_ms(record["at"])) for record in records]


def _ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
