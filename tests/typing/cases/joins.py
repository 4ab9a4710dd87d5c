from __future__ import annotations

from typing import assert_type

from airflow_kstreams.streams import KStream, KTable, SlidingWindow, WindowedKStream, serdes
from tests.typing.cases.shop import Customer, Order, builder, by_number, customers, orders

assert_type(
    orders.join(customers, lambda order, customer: (order.cents, customer.city)),
    KStream[str, tuple[int, str]],
)
assert_type(
    orders.left_join(customers, lambda order, customer: customer.city if customer else ""), KStream[str, str]
)


def of_key(order: Order, customer: Customer, key: str) -> tuple[str, str]:
    return key, customer.city


def cents_of_key(order: Order, cents: int, key: str) -> tuple[str, int]:
    return key, cents


def of_other_key(order: Order, customer: Customer, key: int) -> int:
    return key


assert_type(orders.join(customers, of_key), KStream[str, tuple[str, str]])
orders.join(customers, of_other_key)  # error
assert_type(
    orders.join(customers, lambda order, customer, key: (key, order.cents)), KStream[str, tuple[str, int]]
)

hour = SlidingWindow(size_ms=3_600_000)
ordered = orders.with_window(hour)
assert_type(ordered, WindowedKStream[str, Order])
paid = builder.stream("payments", value_serde=serdes.int64()).with_window(hour)
assert_type(ordered.join(paid, lambda order, cents: order.cents - cents), KStream[str, int])
assert_type(ordered.join(customers, lambda order, customer: customer.city), KStream[str, str])
assert_type(ordered.left_join(paid, lambda order, cents: order.cents - (cents or 0)), KStream[str, int])
assert_type(
    ordered.outer_join(paid, lambda order, cents: (order, cents)),
    KStream[str, tuple[Order | None, int | None]],
)
assert_type(ordered.join(paid, cents_of_key), KStream[str, tuple[str, int]])
assert_type(ordered.join_prior(paid, lambda order, cents: cents), KStream[str, int])

# What operators make of a stream with a window has none: the window is given right before the join.
assert_type(ordered.filter(lambda key, order: order.cents > 1), KStream[str, Order])
assert_type(ordered.map(lambda key, order: (order.cents, key)), KStream[int, str])
cents = orders.map_values(lambda order: order.cents).with_window(hour)
assert_type(cents, WindowedKStream[str, int])
assert_type(cents.join(paid, lambda mine, theirs: mine - theirs), KStream[str, int])
ordered.map_values(lambda order: order.cents).join(paid, lambda mine, theirs: mine - theirs)  # error

places, names = (
    builder.table("places", value_serde=serdes.string()),
    builder.table("names", value_serde=serdes.string()),
)
assert_type(customers.join(places, lambda customer, place: customer.name + place), KTable[str, str])
assert_type(customers.left_join(names, lambda customer, name: name or customer.name), KTable[str, str])
assert_type(customers.outer_join(names, lambda customer, name: len(name) if name else 0), KTable[str, int])

orders.join(by_number, lambda order, other: order)  # error: KTable[int
orders.left_join(by_number, lambda order, other: order)  # error: KTable[int
ordered.join(by_number, lambda order, other: order)  # error
ordered.join(paid.select_key(lambda key, cents: cents), lambda order, cents: cents)  # error
customers.join(by_number, lambda customer, order: order)  # error: KTable[int
customers.outer_join(by_number, lambda customer, order: order)  # error: KTable[int
orders.join(customers, lambda order, customer: customer.town)  # error: town
orders.join(customers, lambda order: order)  # error
orders.left_join(customers, lambda order, customer: customer.city)  # error: city
customers.left_join(names, lambda customer, name: name.upper())  # error: upper
customers.outer_join(names, lambda customer, name: customer.name)  # error: name
ordered.outer_join(paid, lambda order, cents: order.cents)  # error: cents
customers.join(names, lambda customer, name: name, value_serde=serdes.int64())  # error
ordered.join(paid, lambda order, cents: cents, other_value_serde=serdes.string())  # error
orders.join(builder.stream("payments"), lambda order, payment: order)  # error: KStream[str, Order]
orders.join_prior(paid, lambda order, cents: cents)  # error: Never
ordered.join(orders, lambda order, other: other)  # error
orders.with_window(3_600_000)  # error: SlidingWindow

# By a foreign key the other table may have keys of another type.
numbered = customers.join(
    by_number, lambda customer, order: order.cents, foreign_key=lambda name, customer: len(name)
)
assert_type(numbered, KTable[str, int])
maybe = customers.left_join(by_number, lambda customer, order: order, foreign_key=lambda name, customer: None)
assert_type(maybe, KTable[str, Order])
customers.join(by_number, lambda c, order: order, foreign_key=lambda name, c: name)  # error
customers.join(by_number, lambda c, order: order, foreign_key=lambda name, c: c.number)  # error: number
customers.left_join(by_number, lambda c, order: order.cents, foreign_key=lambda n, c: 1)  # error: cents

# A global table's key is what the selector gives.
cities = builder.global_table("cities", value_serde=serdes.int64())
assert_type(
    orders.join(cities, lambda order, people: order.cents * people, key=lambda key, order: key),
    KStream[str, int],
)
assert_type(
    ordered.left_join(cities, lambda order, people: people, key=lambda key, order: None),
    KStream[str, int | None],
)
orders.join(cities, lambda order, people: people)  # error
orders.join(cities, lambda order, people: people, key=lambda key, order: order.cents)  # error
orders.join(cities, lambda order, people: people.name, key=lambda key, order: key)  # error: name
orders.left_join(cities, lambda order, people: order.cents * people, key=lambda key, order: key)  # error
orders.join(customers, lambda order, customer: customer, key=lambda key, order: key)  # error
builder.global_table("cities", value_serde=int)  # error
builder.global_table("cities", storage="disk")  # error
