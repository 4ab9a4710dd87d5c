from __future__ import annotations

from typing import assert_type

from airflow_kstreams.streams import (
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    SessionWindow,
    StoreSpec,
    TumblingWindow,
    ValueTransformer,
    VersionedStoreSpec,
    Windowed,
    WindowedKTable,
    serdes,
)
from tests.typing.cases.shop import Customer, Order, builder, customers, orders

by_cents = orders.group_by(lambda key, order: order.cents)
numbers = StoreSpec(name="numbers", key_serde=serdes.string(), value_serde=serdes.int64())
text = serdes.string()


class Named(ValueTransformer[str, Customer, int]):
    def transform(self, key: str, value: Customer | None) -> int | None:
        return len(value.name) if value else None


class OfNumbers(ValueTransformer[int, Customer, int]):
    def transform(self, key: int, value: Customer | None) -> int | None:
        return key


cities = StoreSpec(name="cities", key_serde=serdes.string(), value_serde=serdes.string())
assert_type(customers.filter(lambda name, customer: customer.city == "Oslo"), KTable[str, Customer])
assert_type(customers.filter_not(lambda name, customer: customer.city == "Oslo"), KTable[str, Customer])
assert_type(customers.map_values(lambda customer: customer.city), KTable[str, str])
assert_type(customers.map_values(lambda customer: customer.city or None, store=cities), KTable[str, str])
assert_type(customers.transform_values(Named), KTable[str, int])
assert_type(customers.to_stream(), KStream[str, Customer])
assert_type(customers.to_stream(lambda name, customer: len(name)), KStream[int, Customer])
in_city = customers.group_by(lambda name, customer: (customer.city, len(name)))
assert_type(in_city, KGroupedTable[str, int])
assert_type(in_city.count(), KTable[str, int])
assert_type(in_city.reduce(lambda total, n: total + n, lambda total, n: total - n), KTable[str, int])

versions = VersionedStoreSpec(
    name="versions", key_serde=serdes.string(), value_serde=serdes.int64(), history_ms=10
)
assert_type(versions, VersionedStoreSpec[str, int])
assert_type(builder.table("prices", store=versions), KTable[str, int])
assert_type(customers.map_values(lambda customer: len(customer.name), store=versions), KTable[str, int])
VersionedStoreSpec(name="a", key_serde=text, value_serde=text)  # error: history_ms

grouped = orders.group_by_key()
of_someone = orders.group_by(lambda key, order: order.customer or None, key_serde=text)
assert_type(of_someone, KGroupedStream[str, Order])
assert_type(grouped, KGroupedStream[str, Order])
assert_type(by_cents, KGroupedStream[int, Order])
assert_type(grouped.count(store="counts"), KTable[str, int])
assert_type(grouped.reduce(lambda newest, order: order), KTable[str, Order])
assert_type(grouped.aggregate(int, lambda key, order, total: total + order.cents), KTable[str, int])
assert_type(grouped.aggregate(lambda: 0.5, lambda key, order, total: total + order.cents), KTable[str, float])
assert_type(orders.map_values(lambda order: order.cents).group_by_key().reduce(max), KTable[str, int])

daily = grouped.windowed_by(TumblingWindow(size_ms=86_400_000))
assert_type(daily.count(), WindowedKTable[str, int])
assert_type(daily.count().suppress().to_stream(), KStream[Windowed[str], int])
assert_type(daily.count().to_stream(lambda windowed, count: windowed.key), KStream[str, int])
assert_type(
    daily.reduce(lambda newest, order: order).filter(lambda w, o: w.start_ms > 0),
    KTable[Windowed[str], Order],
)
visits = grouped.windowed_by(SessionWindow(gap_ms=1))
clicks = visits.aggregate(int, lambda k, o, n: n + 1, lambda k, a, b: a + b, value_serde=serdes.int64())
assert_type(clicks, WindowedKTable[str, int])

payments = builder.stream("payments", value_serde=serdes.int64()).group_by_key()


def add(key: str, order: Order, owed: int) -> int:
    return owed + order.cents


def pay(key: str, cents: int, owed: int) -> int:
    return owed - cents


both = grouped.cogroup(add).cogroup(payments, pay)
assert_type(both, CogroupedKStream[str, int])
assert_type(both.aggregate(lambda: 0), KTable[str, int])
assert_type(both.windowed_by(TumblingWindow(size_ms=1)).aggregate(int), WindowedKTable[str, int])

customers.filter(lambda name, customer: customer.town == "Oslo")  # error: town
customers.map_values(lambda customer: customer.town)  # error: town
customers.map_values(lambda customer: customer.city, store=numbers)  # error
customers.map_values(lambda customer: customer.city, value_serde=serdes.int64())  # error
customers.transform_values(OfNumbers)  # error
customers.group_by(lambda name, customer: customer.city)  # error: tuple
customers.to_stream(lambda name, customer: customer.town)  # error: town
customers.suppressed()  # error: suppressed
grouped.reduce(lambda total, order: total.cents + order.cents)  # error
grouped.aggregate(int, lambda key, order, total: total + order.total)  # error: total
grouped.aggregate(int, lambda key, order, total: total + order.cents, value_serde=text)  # error: str
grouped.aggregate(int, lambda key, order, total: total.upper())  # error[pyright]: upper
grouped.aggregate(int, lambda order, total: total)  # error
grouped.aggregate(int)  # error: aggregator
grouped.count(store=StoreSpec(name="a", key_serde=serdes.int64(), value_serde=serdes.int64()))  # error
grouped.cogroup(add).cogroup(payments, add)  # error
grouped.cogroup(add).cogroup(by_cents, lambda key, order, owed: owed)  # error: int
grouped.windowed_by(86_400_000)  # error
daily.count().to_stream(lambda windowed, count: windowed.keys)  # error: keys
