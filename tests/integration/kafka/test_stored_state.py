"""Stores of an application on a real broker, read by another process than that of its runs; nothing is left
behind.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kstreams.explore import stored_state
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.command_line import json_of
from tests.support.kafka.in_process import Application
from tests.support.kafka.traces import broker_state
from tests.unit.cli.test_app import invoke

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.promise("state-says-its-moment")

FILE = """
from airflow_kstreams.streams import KStreamBuilder, TumblingWindow, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    orders = builder.stream({topic!r}).group_by_key()
    orders.count(store="totals")
    orders.windowed_by(TumblingWindow(size_ms=60_000, grace_ms=10**9)).count(store="minutes")
    return builder.build()
"""


def test_stores_are_read_as_of_the_last_run_and_of_the_last_commit_during_one(
    kafka: str,
    application_id: str,
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    kafka_admin: AdminClient,
    tmp_path: Path,
) -> None:
    topic = create_topic(f"orders-{application_id}", 3)
    file = tmp_path / "orders.py"
    file.write_text(textwrap.dedent(FILE).format(topic=topic))
    app = Application(
        bootstrap=kafka, application_id=application_id, topology=ApplicationFile.read(file).topology()
    )
    names = [f"customer-{number}" for number in range(50)]
    produce(topic, [(name, "{}") for name in names])
    app.run("one")
    produce(topic, [(name, "{}") for name in names])
    app.run("two")
    first_visit = broker_state(kafka_admin)

    with stored_state(app.topology, "totals", kafka, application_id=application_id) as totals:
        assert {entry.key: entry.value for entry in totals.all()} == dict.fromkeys(names, 2)
        assert [totals.get(name) for name in names[:5]] == [2] * 5
        assert str(totals.as_of()).startswith("as of run two, finished ")
    with stored_state(app.topology, "minutes", kafka, application_id=application_id) as minutes:
        assert sum(entry.value for entry in minutes.find("customer-7")) == 2
    assert not broker_state(kafka_admin).changed_since(first_visit)

    produce(topic, [(name, "{}") for name in names])
    slice_ = app.begin("three")
    app.task(slice_, 0, 1)
    second_visit = broker_state(kafka_admin)
    result = shown(file, application_id, kafka)
    values = {name: entry["value"] for name, entry in result.items()}
    of_task_1 = {name for name, entry in result.items() if entry["task"] == "0_1"}
    assert {name for name, value in values.items() if value == 3} == of_task_1
    assert {*values} == {*names}
    assert not broker_state(kafka_admin).changed_since(second_visit)


def shown(file: Path, application_id: str, kafka: str) -> dict[str, Any]:
    """Return what the command prints, by key."""
    where = ("--application-id", application_id, "--bootstrap-server", kafka)
    result = invoke("state", str(file), "totals", *where, "--json", "--limit", "0")
    document = json_of(result, "state")
    assert "as of the last commit: run three was under way" in document["as_of"]
    return {entry["key"]: entry for entry in document["entries"]}
