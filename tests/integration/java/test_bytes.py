"""The bytes of keys and values, and the partitions they go to, are those of Java."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import Windowed, serdes
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.partitioning.linear_hashing import murmur2
from airflow_kstreams.streams.serde.base import Serde
from tests.integration.java.peer import KafkaStreamsPeer
from tests.support.examples import examples

pytestmark = pytest.mark.promise("same-as-kafka-streams")

_INT64 = st.integers(-(2**63), 2**63 - 1)
_TIMES = st.integers(0, 2**62)


def _request(kind: str, value: object) -> tuple[str, object]:
    """Return a value as the peer reads it: bytes as hex, a double as ``Double.valueOf`` takes it."""
    if isinstance(value, bytes):
        return kind, value.hex()
    if isinstance(value, float):
        return kind, repr(value).replace("inf", "Infinity")
    return kind, value


@pytest.mark.parametrize(
    ("kind", "serde", "values"),
    [
        ("int32", serdes.int32(), st.integers(-(2**31), 2**31 - 1)),
        ("int64", serdes.int64(), _INT64),
        ("double", serdes.double(), st.floats(allow_nan=False)),
        ("string", serdes.string(), st.text()),
        ("bytes", serdes.bytes(), st.binary()),
    ],
)
def test_bytes_are_those_of_java_when_a_value_is_serialized(
    kind: str, serde: Serde, values: st.SearchStrategy[object], kafka_streams: KafkaStreamsPeer
) -> None:
    @settings(max_examples=examples(50), deadline=None)
    @given(st.lists(values, max_size=30))
    def compare(batch: list[object]) -> None:
        java = kafka_streams.serialized([_request(kind, value) for value in batch])
        assert [serde.serialize(value) for value in batch] == java
        assert [serde.deserialize(data) for data in java] == batch

    compare()


def test_bytes_are_those_of_java_when_a_double_is_no_number(kafka_streams: KafkaStreamsPeer) -> None:
    assert serdes.double().serialize(math.nan) == kafka_streams.serialized([("double", "NaN")])[0]


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.text(), _TIMES, st.integers(1, 2**61)), max_size=30))
def test_bytes_are_those_of_java_when_a_windowed_key_is_serialized(
    kafka_streams: KafkaStreamsPeer, keys: list[tuple[str, int, int]]
) -> None:
    for key, start_ms, length_ms in keys:
        windowed = Windowed(key, start_ms, start_ms + length_ms)
        time_serde = serdes.time_windowed(serdes.string(), size_ms=length_ms)
        session_serde = serdes.session_windowed(serdes.string())
        java = kafka_streams.serialized([("time_windowed", *windowed), ("session_windowed", *windowed)])
        assert [time_serde.serialize(windowed), session_serde.serialize(windowed)] == java
        assert [time_serde.deserialize(java[0]), session_serde.deserialize(java[1])] == [windowed, windowed]


def test_partitions_are_those_of_java_when_keys_are_random(kafka_streams: KafkaStreamsPeer) -> None:
    rng = random.Random(4)
    keys = [(rng.randbytes(rng.randrange(0, 40)), rng.randrange(1, 200)) for _ in range(10_000)]
    ours = [(murmur2(key), partition_of_key(key, count, count)) for key, count in keys]
    assert ours == kafka_streams.partitions(keys)
