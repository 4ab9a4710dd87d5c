"""Whole runs on Kafka in memory, whose rows come into real tables; DuckDB reads what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import TableRefusedError
from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable
from airflow_kstreams.tables.connections import OpenedTables, open_tables
from airflow_kstreams.tables.parquet.opening import rows_opener
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.tables.duckdb_reader import delta_rows, iceberg_rows
from tests.support.tables.sending import send_to_table

APP, HOUR_MS = "app", 3_600_000


@dataclass
class Flight:
    carrier: str
    at: datetime
    delay: int | None = None


@dataclass
class Lake:
    """One kind of table, in a folder."""

    kind: str
    folder: Path

    @property
    def settings(self) -> dict[str, str]:
        uri = f"sqlite:///{self.folder}/catalog.db"
        warehouse = f"file://{self.folder}/warehouse"
        return {"iceberg.type": "sql", "iceberg.uri": uri, "iceberg.warehouse": warehouse}

    def opened(self) -> OpenedTables:
        return open_tables(self.settings)

    @property
    def table(self) -> IcebergTable | DeltaTable:
        options: dict[str, Any] = {"row": Flight, "provenance": True, "timestamp_column": "recorded"}
        if self.kind == "delta":
            return DeltaTable(f"{self.folder}/flights", partition_by=["hour(at)"], **options)
        return IcebergTable("air.flights", partition_by=["hour(at)", "bucket(4, carrier)"], **options)

    def topology(self) -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string())
        send_to_table(builder.stream("flights", value_serde=serdes.json(Flight)), self.table)
        return builder.build()

    def application(self, kafka: InMemoryKafka) -> Application:
        opened = self.opened()
        return Application(
            application_id=APP,
            topology=self.topology(),
            on=kafka,
            clock=kafka.clock,
            settings={"commit.every.records": 50},
            tables=opened,
            open_rows=rows_opener(opened),
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        if self.kind == "delta":
            return delta_rows(f"{self.folder}/flights", query)
        look = self.opened().table(self.table.plan).look(APP)
        assert look is not None
        return iceberg_rows(look.state.metadata_location, query)


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    (tmp_path / "warehouse").mkdir()
    return Lake(request.param, tmp_path)


def send(kafka: InMemoryKafka, first: int, last: int) -> None:
    """Flights, one an hour and carrier, every third without a delay."""
    for number in range(first, last):
        at = datetime.fromtimestamp(1_700_000_000 + number * 900, UTC).isoformat()
        delay = "null" if number % 3 == 0 else str(number)
        value = f'{{"carrier":"C{number % 7}","at":"{at}","delay":{delay}}}'
        kafka.append(
            "flights", value.encode(), b"k", partition=number % 2, timestamp_ms=1_700_000_000_000 + number
        )


def test_each_record_is_one_row_with_its_values_and_each_run_one_snapshot(lake: Lake) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("flights", partitions=2)
    for run, (first, last) in enumerate([(0, 200), (200, 200), (200, 301)]):
        send(kafka, first, last)
        summary = lake.application(kafka).run(f"run-{run}")
        assert summary.tables[lake.table.name].rows == (101 if run == 2 else 200)
    columns = 'carrier, epoch("at"), delay, epoch_ms(recorded), _topic, _partition, _offset, _run'
    found = sorted(lake.rows(f"SELECT {columns} FROM {{table}}"), key=lambda row: row[1])
    assert found == [
        (
            f"C{number % 7}",
            float(1_700_000_000 + number * 900),
            None if number % 3 == 0 else number,
            1_700_000_000_000 + number,
            "flights",
            number % 2,
            number // 2,
            "run-0" if number < 200 else "run-2",
        )
        for number in range(301)
    ]
    (hour,) = lake.rows("SELECT count(*) FROM {table} WHERE \"at\" >= '2023-11-15' AND \"at\" < '2023-11-16'")
    assert hour == (96,)
    look = (port := lake.opened().table(lake.table.plan)).look(APP)
    assert look is not None
    runs = [each.summary.get("kstreams.run-id") for each in port.snapshots(look)]
    assert [run for run in runs if run] == ["run-0", "run-2"]


@pytest.mark.remedy("opening.opened_target")
def test_task_refuses_another_table_of_the_name_until_the_first_is_back(lake: Lake) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("flights", partitions=2)
    send(kafka, 0, 10)
    app = lake.application(kafka)
    slice_ = app.begin("r1")
    aside = lake.folder.with_name(f"{lake.folder.name}-aside")
    lake.folder.rename(aside)
    (lake.folder / "warehouse").mkdir(parents=True)
    plan = lake.table.plan
    lake.opened().table(plan).create(plan.columns, plan.partition_by)
    with pytest.raises(TableRefusedError, match="the run began with table"):
        lake.application(kafka).tasks(slice_)
    lake.folder.rename(lake.folder.with_name(f"{lake.folder.name}-other"))
    aside.rename(lake.folder)
    whole = lake.application(kafka)
    whole.tasks(slice_)
    whole.finish("r1")
    assert lake.rows("SELECT count(*) FROM {table}") == [(10,)]


def test_column_that_was_dropped_and_made_again_is_another_one(tmp_path: Path) -> None:
    """Its id in files differs, so engines would read nothing of what the run has written."""
    (tmp_path / "warehouse").mkdir()
    lake, kafka = Lake("iceberg", tmp_path), InMemoryKafka()
    kafka.create_topic("flights", partitions=2)
    send(kafka, 0, 10)
    app = lake.application(kafka)
    slice_ = app.begin("r1")
    app.tasks(slice_)
    look = lake.opened().table(lake.table.plan).look(APP)
    assert look is not None
    with look.state.update_schema() as update:
        update.delete_column("delay")
    with look.state.update_schema() as update:
        update.add_column("delay", LongType())
    with pytest.raises(TableRefusedError, match="columns of the rows were changed"):
        lake.application(kafka).finish("r1")
    assert lake.rows("SELECT count(*) FROM {table}") == [(0,)]
