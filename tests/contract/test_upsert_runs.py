"""Whole runs on Kafka in memory upsert rows of real tables; DuckDB reads what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams import inspect
from airflow_kstreams.batch.inspect.tables.orphans import find_orphans
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.spark.driver.rewrites import DriverRewrites
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable
from airflow_kstreams.streams.tables.table_port import RewriteBuckets
from airflow_kstreams.tables.connections import OpenedTables, open_tables
from airflow_kstreams.tables.parquet.opening import rows_opener
from airflow_kstreams.tables.parquet.parquet_files import file_prefix
from airflow_kstreams.tables.upserts import iceberg_rewrite
from airflow_kstreams.testing import InMemoryKafka
from tests.contract.test_merged_files import InThisProcess
from tests.support.kafka.in_process import Application
from tests.support.tables.duckdb_reader import delta_rows, iceberg_rows

KEYS = 20


@dataclass
class Customer:
    name: str
    orders: int


@dataclass
class Shop:
    """Two tables of one stream, in a folder: Iceberg's has its keys, Delta's has changed ones."""

    folder: Path
    rewriter: RewriteBuckets | None = None

    @property
    def settings(self) -> dict[str, str]:
        uri = f"sqlite:///{self.folder}/catalog.db"
        return {"iceberg.type": "sql", "iceberg.uri": uri, "iceberg.warehouse": f"file://{self.folder}/lake"}

    def opened(self) -> OpenedTables:
        return open_tables(self.settings, rewriter=self.rewriter)

    @property
    def customers(self) -> IcebergTable:
        return IcebergTable(
            "shop.customers",
            row=Customer,
            mode="upsert",
            key_column="id",
            key_type=str,
            partition_by=["bucket(2, id)"],
            provenance=True,
        )

    def topology(self) -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string())
        customers = builder.stream("customers", value_serde=serdes.json(Customer))
        customers.send_to_table(self.customers)
        by_number = customers.select_key(lambda key, value: int(key[1:]))
        by_number.send_to_table(
            DeltaTable(f"{self.folder}/numbers", row=Customer, mode="upsert", key_column="number"),
            key_serde=serdes.int64(),
        )
        return builder.build()

    def application(self, kafka: InMemoryKafka) -> Application:
        opened = self.opened()
        return Application(
            application_id="app",
            topology=self.topology(),
            on=kafka,
            clock=kafka.clock,
            settings={"commit.every.records": 10},
            tables=opened,
            open_rows=rows_opener(opened),
        )

    def run(self, kafka: InMemoryKafka, run_id: str) -> RunSummary:
        return self.application(kafka).run(run_id)

    def iceberg(self, query: str) -> list[tuple[Any, ...]]:
        look = self.opened().table(self.customers.plan).look("app")
        assert look is not None
        return iceberg_rows(look.state.metadata_location, query)

    def delta(self, query: str) -> list[tuple[Any, ...]]:
        return delta_rows(f"{self.folder}/numbers", query)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    (tmp_path / "lake").mkdir()
    return Shop(tmp_path)


@pytest.mark.parametrize("place", ["driver", "executors"])
def test_tables_have_the_last_value_of_each_key_after_each_run_and_staged_files_are_gone(
    shop: Shop, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = InThisProcess(shop)
    shop.rewriter = DriverRewrites(hosts).rewrite  # type: ignore[arg-type]
    if place == "executors":
        monkeypatch.setattr(iceberg_rewrite, "LARGE_BYTES", 0)
    kafka = InMemoryKafka()
    kafka.create_topic("customers", partitions=2)
    last: dict[int, tuple[str, int]] = {}
    for run in range(3):
        for number in range(run * 7, run * 7 + 50):
            key = number % KEYS
            value = None if number % 9 == 0 else f'{{"name":"n{key}","orders":{number}}}'.encode()
            kafka.append("customers", value, f"k{key}".encode(), partition=key % 2)
            last.pop(key, None)
            if value is not None:
                last[key] = (f"n{key}", number)
        landed = shop.run(kafka, f"run-{run}").tables
        assert [bool(each.rewritten_bytes) for each in landed.values()] == [run > 0] * 2
        assert dict(_by_key(shop.iceberg("SELECT id, name, orders FROM {table}"))) == {
            f"k{key}": row for key, row in last.items()
        }
        assert dict(_by_key(shop.delta("SELECT number, name, orders FROM {table}"))) == last
    assert hosts.partitions == ([2, 2, 2] if place == "executors" else [])
    runs = shop.iceberg("SELECT DISTINCT _run FROM {table}")
    assert ("run-2",) in runs
    staged = [path for path in shop.folder.rglob("rows-app-*.parquet") if "-upsert-" not in path.name]
    assert staged == []
    shown = inspect.run("app", "run-2", kafka)
    assert {each.table: each.rewritten_bytes for each in shown.run.tables} == {
        name: each.rewritten_bytes for name, each in landed.items()
    }
    assert "bytes rewritten" in shown._repr_html_()


def test_staged_files_of_a_dropped_run_are_orphans_and_its_rows_are_there(shop: Shop) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("customers", partitions=2)
    for number in range(8):
        kafka.append("customers", b'{"name":"n","orders":%d}' % number, b"k%d" % number, partition=number % 2)
    app = shop.application(kafka)
    app.tasks(app.begin("dropped"))
    staged = {str(path) for path in shop.folder.rglob("rows-app-*.parquet")}
    request = ResetRequest(application_id="app", delete_stop_offsets=True)
    with ApplicationReset(kafka, request, clock=kafka.clock, tables=shop.opened()) as reset:
        reset.run()
    assert [key for key, _ in _by_key(shop.iceberg("SELECT id, orders FROM {table} ORDER BY id"))] == [
        f"k{number}" for number in range(8)
    ]
    found = find_orphans(
        kafka,
        shop.topology().plan("app"),
        shop.opened(),
        beginning=file_prefix("app"),
        older_than_ms=-(10**15),
        delete=True,
        clock=kafka.clock,
    )
    assert {each.path.removeprefix("file://") for each in found.files if each.deleted} == staged != set()
    assert [read("SELECT count(*) FROM {table}") for read in (shop.delta, shop.iceberg)] == [[(8,)]] * 2


def _by_key(rows: list[tuple[Any, ...]]) -> list[tuple[Any, tuple[Any, ...]]]:
    return [(key, tuple(others)) for key, *others in rows]
