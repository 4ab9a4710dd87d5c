from __future__ import annotations

from typing import assert_type

from airflow_kstreams.streams import (
    AsyncProcessor,
    AsyncProcessorContext,
    CallContext,
    KeyValueStore,
    KStream,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    SlidingWindow,
    StoreSpec,
    serdes,
)
from tests.typing.cases.shop import Order, orders

last = StoreSpec(name="last", key_serde=serdes.string(), value_serde=serdes.int64())


class Change(Processor[str, Order, str, int]):
    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context
        self.last: KeyValueStore[str, int] = context.state_store("last")

    def process(self, record: ProcessorRecord[str, Order]) -> None:
        cents = record.value.cents
        self.context.forward(record.key, cents - (self.last.get(record.key) or 0))
        self.last.put(record.key, cents)
        self.context.send("all", record.key, cents, key_serde=serdes.string(), value_serde=serdes.int64())
        self.context.forward(cents, record.key)  # error
        self.context.forward(record.key, record.value.total)  # error: total
        self.context.forward(record.key, self.last.get(record.key))  # error: None
        self.last.put(record.key, "text")  # error: put
        self.last.remove(record.key)  # error: remove
        self.context.send("all", record.key, cents, value_serde=serdes.string())  # error


class OfNumbers(Processor[int, Order, int, int]):
    def process(self, record: ProcessorRecord[int, Order]) -> None: ...


class Priced(AsyncProcessor[str, Order, str, float]):
    def init(self, context: AsyncProcessorContext[str, float]) -> None:
        self.context = context

    async def process(self, record: ProcessorRecord[str, Order]) -> None:
        self.context.forward(record.key, 1.5)
        self.context.forward(record.key, "text")  # error


class Untyped(Processor):
    def process(self, record: ProcessorRecord) -> None: ...


class Reversed(Processor[str, Order]):
    def process(self, record: ProcessorRecord[int, Order]) -> None: ...  # error


assert_type(orders.process(Change, last), KStream[str, int])
assert_type(orders.process(lambda: Change(), "last"), KStream[str, int])
assert_type(orders.process_values(Change, "last"), KStream[str, int])
assert_type(orders.process_async(Priced, name="priced"), KStream[str, float])
orders.process(Untyped).map_values(lambda value: value.anything)

orders.process(OfNumbers)  # error
orders.process_values(OfNumbers)  # error
orders.process(Change())  # error
orders.process(Priced)  # error
orders.process_async(Change)  # error
orders.process_async(Priced, last)  # error
orders.map_values(lambda order: order.cents).process(Change, last)  # error
orders.process(Change, last).map_values(lambda change: change.cents)  # error: cents


# Functions whose answers take time.
async def price(order: Order) -> float:
    return order.cents / 100


async def price_with(order: Order, *, context: CallContext, resource: object) -> float:
    return order.cents / 100


async def keyed(key: str, order: Order) -> tuple[int, str]:
    return order.cents, key


async def is_large(key: str, order: Order) -> bool:
    return order.cents > 1


async def words(order: Order) -> list[str]:
    return order.customer.split()


async def of_text(text: str) -> int:
    return len(text)


def price_slowly(order: Order) -> float:
    return order.cents / 100


assert_type(orders.map_values_async(price), KStream[str, float])
assert_type(
    orders.map_values_async(price_with, max_in_flight=3, order="key", name="price"), KStream[str, float]
)
assert_type(orders.map_values_async(price_slowly, threads=True, timeout_ms=5), KStream[str, float])
assert_type(orders.map_async(keyed), KStream[int, str])
assert_type(orders.filter_async(is_large), KStream[str, Order])
assert_type(orders.flat_map_values_async(words), KStream[str, str])
orders.foreach_async(is_large)
windowed = orders.with_window(SlidingWindow(size_ms=1))
assert_type(windowed.map_values_async(price), KStream[str, float])
assert_type(windowed.process(Change, last), KStream[str, int])
assert_type(windowed.filter_async(is_large), KStream[str, Order])

orders.map_values_async(of_text)  # error
orders.map_values_async(price_slowly)  # error
orders.map_values_async(keyed)  # error
orders.map_async(price)  # error
orders.filter_async(words)  # error
orders.flat_map_values_async(price)  # error
orders.map_values_async(price, order="sorted")  # error
orders.map_values_async(price, max_inflight=3)  # error: map_values
orders.map_values_async(price).map_values(lambda value: value.cents)  # error: cents
