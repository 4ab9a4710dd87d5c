"""Errors, counts and status say what a node does and at which line; lines may move in the same topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.report.counts import count_rows, finished_text
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application
from tests.support.topology.application_files import load, write_application

ORDERS = """from airflow_kstreams.streams import KStreamBuilder, serdes


def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    orders = builder.stream("orders")
    large = orders.filter(lambda key, value: value > 1)
    large.map_values(lambda value: 6 // (value - MISTAKE)).send_to("large-orders")
    return builder.build()
"""


def written(folder: Path, mistake: int, *, moved_by: int = 0) -> Topology:
    text = "# a comment\n" * moved_by + ORDERS.replace("MISTAKE", str(mistake))
    topology: Topology = load(write_application(folder, text, "large_orders.py")).topology()
    return topology


def test_failed_run_goes_on_over_a_file_whose_lines_have_moved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_600_000_000_000))
    for topic in ("orders", "large-orders"):
        kafka.create_topic(topic)
    for value in (b"1", b"2", b"3"):
        kafka.append("orders", value, b"a")

    def application(topology: Topology) -> Application:
        return Application(
            application_id="app",
            topology=topology,
            on=kafka,
            clock=kafka.clock,
            settings={"settle.ms": 0, "processing.exception.handler": "fail"},
        )

    failing = written(tmp_path, mistake=2)
    with pytest.raises(RecordError) as failed:
        application(failing).run("one")
    assert (
        "at node 'KSTREAM-MAPVALUES-0000000002' (map values at large_orders.py:8), in" in failed.value.cause
    )

    mended = written(tmp_path, mistake=1, moved_by=3)
    assert mended.topology_hash() == failing.topology_hash()
    summary = application(mended).run("one")

    assert [record.value() for record in kafka.records("large-orders")] == [b"6", b"3"]
    said = "KSTREAM-FILTER-0000000001 (filter at large_orders.py:10): 1 filtered"
    assert f"  {said}" in finished_text(summary).splitlines()
    (shown,) = read_status(kafka, "app", clock=kafka.clock).runs
    assert said in map(str, count_rows(shown))


def test_names_of_nodes_in_the_text_of_a_topology_are_followed_by_what_they_do(tmp_path: Path) -> None:
    topology = written(tmp_path, mistake=1)
    lines = topology.describe(purposes=True).splitlines()
    assert [line.partition(" # ")[0] for line in lines] == topology.describe().splitlines()
    assert [line.partition(" # ")[2] for line in lines if " # " in line] == [
        "source at large_orders.py:6",
        "filter at large_orders.py:7",
        "map values at large_orders.py:8",
        "sink at large_orders.py:8",
    ]
