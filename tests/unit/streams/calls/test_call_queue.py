"""Which calls wait for each other, when a node calls one by one for each key."""

from __future__ import annotations

import dataclasses
import enum
import math
import uuid
from typing import Any

import msgspec
import pytest

from airflow_kstreams.streams.calls.call import AsyncNode, Call, CallEndedError
from airflow_kstreams.streams.calls.call_queue import CallQueue
from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec


def call_queue(*keys: Any) -> tuple[CallQueue, list[Call]]:
    spec = CallSpec(
        function=print, arguments=lambda key, value: (key, value), options=CallOptions(order="key")
    )
    async_node = AsyncNode("ask", spec, key_prefix="app", topic_ids={}, task_id="0_0")
    made = CallQueue(async_node)
    calls = [Call(async_node, None, key, None, None) for key in keys]
    for call in calls:
        made.add(call)
    return made, calls


@dataclasses.dataclass
class Point:
    x: float
    label: str = dataclasses.field(default="", compare=False)


class Struct(msgspec.Struct):
    x: list[int]


class Colour(enum.Enum):
    RED = 1


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


PLACE = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, None),
        ({"a": 1, "b": {"c": [2]}}, {"b": {"c": [2]}, "a": 1}),
        ([1, 2], [1.0, 2]),
        (math.nan, float("nan")),
        ({"a": math.nan}, {"a": float("nan")}),
        (Point(1, "one"), Point(1, "other")),
        (Struct([1]), Struct([1])),
        (Colour.RED, Colour.RED),
        (Named("a"), Named("a")),
        (uuid.UUID(PLACE), uuid.UUID(PLACE)),
        ({1, 2}, frozenset((2, 1))),
        (bytearray(b"a"), b"a"),
    ],
)
def test_call_waits_when_one_of_an_equal_key_runs(one: Any, other: Any) -> None:
    made, calls = call_queue(one, other)
    assert (made.next(), made.next()) == (calls[0], None)
    made.ended(calls[0])
    assert made.next() is calls[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", 1),
        ({"a": 1}, {"a": 2}),
        ({"a": None}, {}),
        ([1, [2]], [[1], 2]),
        ([], {}),
        (Point(1), Point(2)),
        (Point(1), [1]),
        (Struct([1]), Struct([2])),
        (Named("a"), Named("b")),
        ({1}, {2}),
        (frozenset(), None),
    ],
)
def test_calls_run_together_when_their_keys_differ(one: Any, other: Any) -> None:
    made, calls = call_queue(one, other)
    assert [made.next(), made.next()] == calls


@pytest.mark.parametrize("key", [{"a": 1}, [1], Point(1), Struct([1]), Named("a")])
def test_next_call_of_a_key_comes_when_the_function_has_changed_its_key(key: Any) -> None:
    made, calls = call_queue(key, key)
    assert made.next() is calls[0]
    if isinstance(key, dict):
        key["b"] = 2
    elif isinstance(key, list):
        key.append(2)
    elif isinstance(key, Struct):
        key.x.append(2)
    else:
        key.x = key.name = "changed"
    made.ended(calls[0])
    assert made.next() is calls[1]
    made.ended(calls[1])
    assert (made.next(), made.running) == (None, 0)


def test_calls_behind_one_that_ends_the_task_are_not_made() -> None:
    made, calls = call_queue("a", "a", "b")
    calls[0].async_node.failure_ends_task = True
    assert [made.next(), made.next()] == [calls[0], calls[2]]
    calls[0].error = ValueError("the first one's own")
    assert [*made.ended(calls[0])] == [calls[1]]
    assert isinstance(calls[1].error, CallEndedError)
    with pytest.raises(CallEndedError, match="an earlier call of its key failed"):
        made.add(Call(calls[0].async_node, None, "a", None, None))
    assert (made.next(), made.running) == (None, 1)


class Alone:
    pass


class Unhashed:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize("key", [Alone(), [Alone()], {"a": Alone()}, Unhashed()])
def test_key_is_refused_by_its_type_when_it_cannot_be_told_from_others(key: Any) -> None:
    with pytest.raises(TypeError, match=r"order='key' cannot tell keys of type (Alone|Unhashed) apart"):
        call_queue(key)
