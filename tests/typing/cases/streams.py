from __future__ import annotations

from typing import Any, assert_type

from airflow_kstreams.streams import CallContext, KStream, KTable, RecordContext, serdes
from tests.typing.cases.shop import Customer, Order, builder, customers, orders


def large(key: str, order: Order) -> bool:
    return order.cents > 100


def placed(order: Order, context: RecordContext) -> tuple[str, int]:
    return context.topic or "", order.cents


def recent(key: str, order: Order, *, context: RecordContext) -> bool:
    return context.offset > order.cents


def partition_of(key: str, order: Order, context: RecordContext) -> int:
    return context.partition


def offsets(order: Order, context: RecordContext) -> list[int]:
    return [context.offset, order.cents]


def swapped(key: str, order: Order, context: RecordContext) -> tuple[int, str]:
    return context.offset, key


def called(key: str, order: Order, *, context: CallContext) -> bool:
    return context.node == key


def named_otherwise(key: str, order: Order, *, about: RecordContext) -> bool:
    return about.offset > 5


def of_someone(order: Order) -> str | None:
    return order.customer or None


def of_number(key: int, order: Order) -> bool:
    return order.cents > key


# Results are inferred, of lambdas too.


def of_key(order: Order, key: str) -> tuple[str, int]:
    return key, order.cents


def of_other_key(order: Order, key: int) -> int:
    return key


assert_type(orders.filter(large), KStream[str, Order])
assert_type(orders.filter(lambda key, order: order.cents > 100), KStream[str, Order])
assert_type(orders.filter_not(recent), KStream[str, Order])
assert_type(orders.peek(lambda key, order: print(key, order.cents)), KStream[str, Order])
assert_type(orders.select_key(lambda key, order: order.cents), KStream[int, Order])
assert_type(orders.select_key(partition_of), KStream[int, Order])
assert_type(orders.map(lambda key, order: (order.cents, key)), KStream[int, str])
assert_type(orders.map_values(lambda order: order.cents), KStream[str, int])
assert_type(orders.map_values(placed), KStream[str, tuple[str, int]])
assert_type(orders.map_values(of_key), KStream[str, tuple[str, int]])
orders.map_values(of_other_key)  # error
assert_type(orders.flat_map(lambda key, order: [(order.customer, order.cents)]), KStream[str, int])
assert_type(orders.flat_map_values(lambda order: order.customer.split()), KStream[str, str])
assert_type(orders.flat_map_values(offsets), KStream[str, int])
assert_type(orders.map(swapped), KStream[int, str])
assert_type(orders.peek(recent), KStream[str, Order])
assert_type(orders.branch(recent, large), list[KStream[str, Order]])
assert_type(orders.split(recent=recent, large=large), dict[str, KStream[str, Order]])
assert_type(orders.map_values(lambda order, context: context.offset), KStream[str, int])
assert_type(orders.flat_map(lambda key, order, context: [(order.cents, key)]), KStream[int, str])
orders.map_values(lambda order, context: context.place)  # error
# mypy wants a function where nothing is inferred from what it returns.
orders.filter_not(lambda key, order, context: context.offset > 5)  # error[mypy]: lambda
assert_type(orders.branch(large, lambda key, order: True), list[KStream[str, Order]])
assert_type(orders.split(large=large, default="small"), dict[str, KStream[str, Order]])
assert_type(orders.set_headers(lambda key, order: [("from", order.customer.encode())]), KStream[str, Order])
assert_type(orders.set_timestamp(lambda key, order: order.cents, name="dated"), KStream[str, Order])
assert_type(
    orders.map_values(lambda order: order.customer).map_values(len).filter(lambda k, n: n > 1),
    KStream[str, int],
)
assert_type(orders.through("later"), KStream[str, Order])
assert_type(orders.repartition(4), KStream[str, Order])
assert_type(orders.merge(builder.stream("more")), KStream[str, Order])
assert_type(orders.to_table(store="newest"), KTable[str, Order])
orders.map_values(lambda order: order.cents).send_to("cents", value_serde=serdes.int64())
orders.map_values(of_someone).send_to("customers", value_serde=serdes.string())
orders.map_values(of_someone).send_to("customers", value_serde=serdes.int64())  # error: int
orders.foreach(lambda key, order: print(order.cents))
orders.send_to("sent", partitioner=lambda topic, key, order, partitions: order.cents % partitions)

orders.filter(lambda key, order: order.cent > 100)  # error: cent
orders.filter(lambda order: order.cents > 100)  # error
orders.filter(of_number)  # error: int
orders.filter(called)  # error: CallContext
orders.filter(named_otherwise)  # error: about
orders.peek(lambda key, order, context: print(context.place))  # error
orders.group_by(partition_of)  # error
orders.filter(lambda key, order: order.customer)  # error: bool
orders.map_values(lambda order: order.total)  # error: total
orders.map_values(lambda key, order: order.cents)  # error
orders.map_values(partition_of)  # error
orders.map(lambda key, order: order.cents)  # error: tuple
orders.flat_map_values(lambda order: order.cents)  # error
orders.set_headers(lambda key, order: {"from": order.customer})  # error
orders.set_timestamp(lambda key, order: order.customer)  # error: int
orders.split(large=lambda key, order: order.size > 1)  # error: size
orders.map_values(lambda order: order.cents).filter(lambda key, cents: cents.upper() == "")  # error: upper
orders.send_to("sent", value_serde=serdes.of(Customer))  # error: Customer
orders.send_to("sent", key_serde=serdes.int64())  # error: int
orders.map_values(lambda order: order.cents).send_to("cents", value_serde=serdes.string())  # error: str
orders.through("later", value_serde=serdes.string())  # error: str
orders.to_table(value_serde=serdes.string())  # error: str
orders.merge(builder.stream("other", value_serde=serdes.string()))  # error: str
orders.mapValues(lambda order: order.cents)  # error: mapValues
orders.map_value(lambda order: order.cents)  # error: map_value
orders.map_values(lambda order: order.cents, named="cents")  # error: map_values
orders.to("topic")  # error


# What has no types is Any, and stays it.
def untyped(stream: KStream, table: KTable) -> None:
    assert_type(stream, KStream[Any, Any])
    assert_type(stream.map_values(lambda value: value.anything), KStream[Any, Any])
    assert_type(stream.map_values(len), KStream[Any, int])
    assert_type(orders.join(table, lambda order, other: other), KStream[str, Any])
    stream.join(customers, lambda value, customer: value).send_to("out", value_serde=serdes.string())
    stream.map_valus(len)  # error: map_valus
