"""What the cases below process."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from airflow_kstreams.streams import KStreamBuilder, serdes


@dataclass
class Customer:
    name: str
    city: str


class Order(msgspec.Struct):
    customer: str
    cents: int


builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.of(Order))
orders = builder.stream("orders")
customers = builder.table("customers", value_serde=serdes.of(Customer))
by_number = builder.table("by-number", key_serde=serdes.int64())
