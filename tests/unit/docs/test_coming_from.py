"""The jobs of the pages for those who come from another engine give the results that the pages say."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.testing import OutputRecord, TopologyTestDriver
from tests.support.docs.how_to_pages import Follower, follower, values_of
from tests.support.docs.snippets import Snippets
from tests.support.fresh_python import ROOT
from tests.support.topology.examples import code_blocks

HOUR_MS = 3_600_000
ORDERS: list[tuple[str, Any, int]] = [
    ("1", {"customer": "ann", "cents": 250}, 0),
    ("2", {"customer": "ben", "cents": 70}, 1),
    ("3", {"customer": "ann", "cents": 50}, 2),
]


def given(topology: Topology, output: str, **inputs: list[tuple[str, Any, int]]) -> list[OutputRecord]:
    """Return what a run writes to a topic, of JSON values in its inputs."""
    with TopologyTestDriver(topology, application_id="demo") as driver:
        with driver.run():
            for topic, records in inputs.items():
                for key, value, at_ms in records:
                    driver.pipe_bytes(
                        topic, key=key.encode(), value=json.dumps(value).encode(), timestamp_ms=at_ms
                    )
        return driver.read_output(output)


@pytest.mark.snippets("docs/how-to/coming-from-spark.md")
def test_spark_job_gives_the_sums_of_each_hour(snippets: Snippets) -> None:
    topology = values_of(snippets.take("python").code)["topology"]()
    later = [("4", {"customer": "ann", "cents": 1}, HOUR_MS + 600_001)]
    records = given(topology, "hourly", orders=ORDERS + later)
    assert sorted((record.key, record.value) for record in records) == [("ann", 300), ("ben", 70)]


@pytest.mark.snippets("docs/how-to/coming-from-flink.md")
def test_flink_job_gives_the_sum_of_each_city(snippets: Snippets) -> None:
    topology = values_of(snippets.take("python").code)["topology"]()
    customers = [("ann", {"city": "Bonn"}, 0), ("ben", {"city": "Bonn"}, 0)]
    (*_, last) = given(topology, "by-city", customers=customers, orders=ORDERS)
    assert (last.key, last.value) == ("Bonn", 370)


@pytest.mark.snippets("docs/how-to/coming-from-quix.md")
def test_quix_job_gives_the_totals_of_each_customer(snippets: Snippets) -> None:
    topology = values_of(snippets.take("python").code)["topology"]()
    free = [("4", {"customer": "cleo", "cents": 0}, 3)]
    records = given(topology, "totals", orders=ORDERS + free)
    assert {record.key: record.value for record in records} == {"ann": 300, "ben": 70}


@pytest.mark.snippets("docs/how-to/coming-from-a-consumer-loop.md")
def test_loops_job_gives_the_totals_of_each_customer(
    snippets: Snippets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = snippets.take("python").code
    (function,) = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    function.decorator_list, function.name = [], "topology"
    path = tmp_path / "totals.py"
    path.write_text(ast.unparse(function))

    # The loop has read the first order, and its group has committed that.
    reader: Follower = follower(tmp_path, monkeypatch)
    for topic in ("orders", "totals"):
        reader.kafka.create_topic(topic)
    for key, value, _ in ORDERS:
        reader.append("orders", json.dumps(value).encode(), key.encode())
    commit(reader, 1)
    reader.run("totals", path, "first", {})
    topology = ApplicationFile.read(path).topology()
    assert topology.plan("totals").inputs == ("orders",)
    written = {record.key(): record.value() for record in reader.kafka.records("totals")}
    assert written == {b"ben": b"70", b"ann": b"50"}


def commit(reader: Follower, offset: int) -> None:
    """Commit an offset of ``orders`` for the group ``totals``, as a consumer does."""
    from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition

    consumer = reader.kafka.reader(group_id="totals")
    consumer.commit({TopicPartition("orders", 0): CommittedOffset(offset=offset, metadata="")})
    consumer.close()


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "how-to").glob("coming-from-*.md")), ids=lambda page: page.stem
)
def test_code_of_the_other_engine_is_python_where_it_says_so(page: Path) -> None:
    for block in code_blocks(page.read_text(encoding="utf-8")):
        ast.parse(block.code)
