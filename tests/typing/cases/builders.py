from __future__ import annotations

from typing import Any, assert_type

from airflow_kstreams.streams import KStream, KStreamBuilder, KTable, Serde, StoreSpec, Windowed, serdes
from tests.typing.cases.shop import Customer, Order, builder, by_number, customers, orders

assert_type(KStreamBuilder(), KStreamBuilder[Any, Any])
assert_type(KStreamBuilder(default_key_serde=serdes.int64()), KStreamBuilder[int, Any])
assert_type(builder, KStreamBuilder[str, Order])
assert_type(orders, KStream[str, Order])
assert_type(customers, KTable[str, Customer])
assert_type(by_number, KTable[int, Order])
assert_type(builder.stream("a", "b", key_serde=serdes.int64(), name="both"), KStream[int, Order])
assert_type(
    builder.stream(["a", "b"], key_serde=serdes.bytes(), value_serde=serdes.json()), KStream[bytes, Any]
)
assert_type(builder.stream("a", value_serde=serdes.double()), KStream[str, float])
assert_type(builder.table("a", key_serde=serdes.int64(), value_serde=serdes.string()), KTable[int, str])
kept = StoreSpec(name="kept", key_serde=serdes.int32(), value_serde=serdes.string())
assert_type(kept, StoreSpec[int, str])
assert_type(builder.table("a", store=kept), KTable[int, str])
assert_type(builder.table("a", store="kept"), KTable[str, Order])

assert_type(serdes.json(), Serde[Any])
assert_type(serdes.json(Order), Serde[Order])
assert_type(serdes.json(list[Order]), Serde[list[Order]])
assert_type(serdes.msgpack(dict[str, int]), Serde[dict[str, int]])
assert_type(serdes.of(Customer), Serde[Customer])
assert_type(serdes.time_windowed(serdes.string(), size_ms=1), Serde[Windowed[str]])
assert_type(serdes.of(Order).deserialize(b"{}"), Order)
assert_type(Serde(id="mine", serialize=str.encode, deserialize=bytes.decode), Serde[str])

serdes.string().serialize(5)  # error
serdes.of(Order).serialize(Customer("ann", "Oslo"))  # error: Order
serdes.strings()  # error: strings
KStreamBuilder(default_key_serde=serdes.string)  # error
KStreamBuilder(key_serde=serdes.string())  # error: key_serde
builder.stream("a", value_serde="json")  # error
builder.stream("a", serde=serdes.string())  # error
builder.streams("a")  # error: streams
builder.table("a", key_serde=serdes.string(), store=kept)  # error
StoreSpec(name="a", key_serde=serdes.string())  # error: value_serde
StoreSpec(name="a", key_serde=serdes.string(), value_serde=serdes.string(), storage="disk")  # error
wrong: Serde[int] = serdes.string()  # error: str
