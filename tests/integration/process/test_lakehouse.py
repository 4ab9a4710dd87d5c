"""The recipes of docs/explanation/lakehouse.md, each over a few records."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.examples import code_blocks

PAGE = (Path(__file__).parents[3] / "docs" / "explanation" / "lakehouse.md").read_text(encoding="utf-8")
Rows = Callable[[str, str, str, Iterable[tuple[str, Any]]], list[dict[str, Any]]]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    """``rows(recipe, topic, table, records)``: what the table holds after JSON records of (key, value)."""
    module = ModuleType("recipes")
    # Annotations that are texts are looked up in the module of their class.
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in code_blocks(PAGE):
        exec(block.code, vars(module))

    def run(recipe: str, topic: str, table: str, records: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
        with TopologyTestDriver(vars(module)[recipe](), application_id="app") as driver:
            for at, (key, value) in enumerate(records):
                data = None if value is None else json.dumps(value).encode()
                driver.pipe_bytes(topic, key=key.encode(), value=data, timestamp_ms=at)
            return driver.read_table(table)

    return run


def order(number: str, hour: int) -> dict[str, Any]:
    return {"id": number, "customer": "ann", "at": f"2026-01-01T{hour:02}:30:00Z", "amount": "3.50"}


def row_of(number: str, hour: int) -> dict[str, Any]:
    at = datetime(2026, 1, 1, hour, 30, tzinfo=UTC)
    return {"id": number, "customer": "ann", "at": at, "amount": Decimal("3.50"), "note": None}


def test_orders_have_their_values_and_say_where_they_come_from(rows: Rows) -> None:
    found = rows("orders_by_hour", "orders", "shop.orders", [("a", order("1", 7)), ("b", order("2", 8))])
    assert [{name: row[name] for name in row_of("1", 7)} for row in found] == [row_of("1", 7), row_of("2", 8)]
    assert [(row["_topic"], row["_offset"]) for row in found] == [("orders", 0), ("orders", 1)]


def test_latest_state_of_customers_is_that_of_their_last_records(rows: Rows) -> None:
    records = [
        ("1", {"name": "Ann"}),
        ("2", {"name": "Bob"}),
        ("1", {"name": "Ann", "city": "Oslo"}),
        ("2", None),
    ]
    found = rows("latest_customers", "customers", "shop.customers", records)
    assert found == [{"id": "1", "name": "Ann", "city": "Oslo"}]


def test_mirror_has_the_rows_that_the_database_has(rows: Rows) -> None:
    records = [
        ("1", {"op": "c", "before": None, "after": {"name": "tea", "price": "2.00"}}),
        ("2", {"op": "r", "before": None, "after": {"name": "jam", "price": "4.00"}}),
        (
            "1",
            {
                "op": "u",
                "before": {"name": "tea", "price": "2.00"},
                "after": {"name": "tea", "price": "2.50"},
            },
        ),
        ("2", {"op": "d", "before": {"name": "jam", "price": "4.00"}, "after": None}),
        ("2", None),
    ]
    found = rows("mirrored_products", "db.shop.products", "shop.products", records)
    assert found == [{"key": "1", "name": "tea", "price": Decimal("2.50")}]


def test_order_that_was_sent_twice_has_one_row(rows: Rows) -> None:
    records = [("a", order("1", 7)), ("a", order("1", 7)), ("a", order("2", 8))]
    assert rows("orders_once", "orders", "shop.orders_once", records) == [row_of("1", 7), row_of("2", 8)]
