"""A table with one row for each key, as a topology describes it and as the test driver shows it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from airflow_kstreams.streams import IcebergTable, KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import RecordError, TopologyError
from airflow_kstreams.testing import TopologyTestDriver


@dataclass
class Customer:
    city: str
    orders: int


TABLE = IcebergTable(
    "shop.customers", row=Customer, mode="upsert", key_column="id", partition_by=["bucket(4, id)"]
)


def direct() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    builder.stream("customers", value_serde=serdes.json(Customer)).send_to_table(TABLE)
    return builder.build()


def rekeyed(**options: object) -> Topology:
    builder = KStreamBuilder()
    customers = builder.stream("customers", key_serde=serdes.string(), value_serde=serdes.json(Customer))
    customers.select_key(lambda key, value: value.city).send_to_table(TABLE, **options)  # type: ignore[arg-type]
    return builder.build()


def between(built: Topology) -> list[str]:
    """Return the repartition topics of user's records."""
    return [name for name in built.plan("app").repartition_topics if name.endswith("-repartition")]


def test_last_value_of_a_key_is_its_row_and_none_deletes_it() -> None:
    with TopologyTestDriver(direct(), application_id="app") as driver:
        for key, value in (
            ("a", Customer("Bern", 1)),
            ("b", Customer("Genf", 1)),
            ("a", Customer("Bern", 2)),
            ("c", Customer("Chur", 1)),
            ("b", None),
            ("c", None),
            ("c", Customer("Chur", 3)),
        ):
            driver.pipe_input("customers", key=key, value=value, timestamp_ms=1)
        assert driver.read_table("shop.customers") == [
            {"id": "a", "city": "Bern", "orders": 2},
            {"id": "c", "city": "Chur", "orders": 3},
        ]


def test_record_without_key_has_no_row() -> None:
    with TopologyTestDriver(direct(), application_id="app") as driver, pytest.raises(RecordError, match="id"):
        driver.pipe_input("customers", key=None, value=Customer("Bern", 1), timestamp_ms=1)


def test_stream_goes_through_a_repartition_topic_when_its_key_was_changed() -> None:
    built = rekeyed(key_serde=serdes.string())
    assert between(direct()) == []
    assert between(built) == ["app-shop.customers-upsert-repartition"]
    assert between(rekeyed(key_serde=serdes.string(), name="by-city")) == ["app-by-city-repartition"]
    with TopologyTestDriver(built, application_id="app") as driver:
        driver.pipe_input("customers", key="a", value=Customer("Bern", 1), timestamp_ms=1)
        driver.pipe_input("customers", key="b", value=Customer("Bern", 2), timestamp_ms=2)
        assert driver.read_table("shop.customers") == [{"id": "Bern", "city": "Bern", "orders": 2}]


def test_changed_key_without_serde_is_refused_and_its_remedy_works() -> None:
    with pytest.raises(TopologyError, match="none is known after select_key") as refused:
        rekeyed()
    assert refused.value.fix.startswith("pass key_serde= to send_to_table")
    assert rekeyed(key_serde=serdes.string()).plan("app").tables[0].key_column == "id"


@pytest.mark.remedy("kstream.KStream.send_to_table")
def test_something_else_than_a_table_is_refused() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    stream = builder.stream("customers", value_serde=serdes.json(Customer))
    with pytest.raises(TopologyError, match="is given str, expected a table"):
        stream.send_to_table("shop.customers")  # type: ignore[arg-type]
    stream.send_to_table(IcebergTable("flights.carriers", row=Customer))
    assert builder.build().plan("app").tables[0].name == "flights.carriers"


@pytest.mark.remedy("topology_test_driver.TopologyTestDriver.read_table")
def test_table_that_is_not_written_cannot_be_read() -> None:
    with TopologyTestDriver(direct(), application_id="app") as driver:
        with pytest.raises(TopologyError, match="and not to table 'customers'"):
            driver.read_table("customers")
        assert driver.read_table(TABLE.name) == []
