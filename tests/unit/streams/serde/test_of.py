"""``serdes.of``: a class of the user's as JSON, checked both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeVar

import msgspec
import pydantic
import pytest

from airflow_kstreams.streams import KStreamBuilder, Serde, serdes
from airflow_kstreams.streams.errors import TopologyError

pytestmark = pytest.mark.promise("of-refuses-what-does-not-fit")

N = TypeVar("N")


class OrderStruct(msgspec.Struct):
    customer: str
    cents: int = 0


@dataclass
class OrderClass:
    customer: str
    cents: int = 0


class OrderModel(pydantic.BaseModel):
    customer: str
    cents: int = 0


@dataclass(frozen=True)
class Place:
    tags: frozenset[str]
    sizes: dict[str, int] = field(default_factory=dict)


class PlaceModel(pydantic.BaseModel):
    tags: list[frozenset[str]]


@dataclass
class Box(Generic[N]):
    held: N


ORDERS = [OrderStruct, OrderClass, OrderModel]


@pytest.mark.parametrize("order", ORDERS)
def test_object_is_read_as_it_was_written(order: Any) -> None:
    serde = serdes.of(order)
    ann = order(customer="ann", cents=250)
    assert msgspec.json.decode(serde.serialize(ann)) == {"customer": "ann", "cents": 250}
    assert serde.deserialize(serde.serialize(ann)) == ann
    assert serde.deserialize(b'{"cents": 1, "customer": "bob", "more": 2}') == order(customer="bob", cents=1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b'{"customer": "ann", "cents": "many"}', "cents"),
        (b'{"cents": 1}', "customer"),
        (b"{", "truncated|EOF"),
    ],
)
def test_error_names_the_field_when_bytes_do_not_fit(order: Any, data: bytes, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        serdes.of(order).deserialize(data)


@pytest.mark.parametrize("order", ORDERS)
def test_error_names_the_field_when_an_object_does_not_fit(order: Any) -> None:
    ann = order(customer="ann")
    ann.cents = "secret"
    with pytest.raises(ValueError, match=rf"cannot write this {order.__name__}.*cents") as raised:
        serdes.of(order).serialize(ann)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("order", ORDERS)
def test_error_names_the_class_when_another_object_is_written(order: Any) -> None:
    with pytest.raises(TypeError, match=f"takes {order.__name__}, got dict"):
        serdes.of(order).serialize({"customer": "ann"})


def test_number_that_json_lacks_is_refused_when_written() -> None:
    with pytest.raises(ValueError, match=r"\$\.held"):
        serdes.of(Box[float]).serialize(Box(float("nan")))


def test_types_without_parameters_differ_from_those_with_others() -> None:
    numbers: Any = serdes.of(Box[int])
    assert numbers != serdes.of(Box[str])
    assert serdes.of(Box[Decimal]).deserialize(b'{"held":"1.50"}') == Box(Decimal("1.50"))


@pytest.mark.parametrize("other", [int, list[OrderClass], OrderClass | None, OrderClass("ann"), dict])
def test_other_types_are_refused_with_what_to_write(other: Any) -> None:
    with pytest.raises(TopologyError, match=r"(?s)test_of\.py.*serdes\.json\(type\)"):
        serdes.of(other)


def test_field_of_an_unknown_type_is_refused_when_the_serde_is_made() -> None:
    @dataclass
    class Job:
        step: Missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TopologyError, match=r"cannot read one from JSON: name 'Missing'"):
        serdes.of(Job)


def test_equal_objects_have_one_form_of_bytes() -> None:
    for tags, sizes in (("abc", {"b": 1, "a": 2}), ("cba", {"a": 2, "b": 1})):
        written = serdes.of(Place).serialize(Place(frozenset(tags), sizes))
        assert written == b'{"tags":["a","b","c"],"sizes":{"a":2,"b":1}}'


@pytest.mark.promise("equal-keys-meet")
@pytest.mark.parametrize(
    "places", [serdes.of(PlaceModel), serdes.json(Place), serdes.json(list[set[int]]), serdes.msgpack(Place)]
)
def test_type_with_a_set_that_is_not_sorted_is_refused_as_a_key_alone(places: Serde[Any]) -> None:
    assert places.bound("places", "value") == places
    with pytest.raises(TopologyError, match="has a set"):
        places.bound("places", "key")


@pytest.mark.parametrize("others", [serdes.of(OrderModel), serdes.of(Place), serdes.json(OrderClass)])
def test_other_types_are_keys(others: Serde[Any]) -> None:
    assert others.bound("orders", "key") == others


@dataclass
class Base:
    customer: str = "nobody"


@dataclass
class Boxed(Generic[N]):
    held: N
    full: bool = False


@dataclass
class Late(Base):
    cents: int = 0
    orders: list[OrderClass] = field(default_factory=list)
    boxes: list[Boxed[int]] = field(default_factory=list)


@pytest.mark.promise("equal-keys-meet")
@pytest.mark.parametrize("make", [serdes.of, serdes.json, serdes.msgpack])
def test_key_is_written_alike_whether_it_left_a_default_out(make: Callable[[Any], Serde[Any]]) -> None:
    serde = make(Late)
    left_out = {"orders": [{"customer": "ann"}], "boxes": [{"held": 1}]}
    encode = msgspec.msgpack.encode if make is serdes.msgpack else msgspec.json.encode
    read = serde.deserialize(encode(left_out))
    same = Late(orders=[OrderClass("ann")], boxes=[Boxed(1)])
    assert read == same
    assert serde.serialize(read) == serde.serialize(same)
    assert (Late.cents, Base.customer, Late().cents) == (0, "nobody", 0)


def _unfit(key_serde: Serde[Any], *, repartitioned: bool) -> str:
    builder = KStreamBuilder(default_key_serde=key_serde, default_value_serde=serdes.json())
    stream = builder.stream("orders")
    grouped = stream.group_by(lambda key, value: key) if repartitioned else stream.group_by_key()
    grouped.count(store="counts")
    (keys,) = [
        keys
        for sub in builder.build().plan("app").subtopologies
        for name, keys in sub.entry_keys.items()
        if "counts" in name
    ]
    return keys.unfit


@pytest.mark.parametrize("repartitioned", [True, False])
def test_entries_follow_their_keys_when_this_engine_wrote_them(repartitioned: bool) -> None:
    assert (_unfit(serdes.of(Place), repartitioned=repartitioned) == "") is repartitioned
    assert "may write a key" in _unfit(serdes.of(OrderModel), repartitioned=repartitioned)


@pytest.mark.parametrize("order", ORDERS)
def test_serde_is_shown_as_it_is_made(order: Any) -> None:
    assert repr(serdes.of(order)) == f"serdes.of({order.__name__})"
