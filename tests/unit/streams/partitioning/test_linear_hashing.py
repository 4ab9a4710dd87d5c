from __future__ import annotations

import doctest

import pytest

from airflow_kstreams.streams.partitioning import linear_hashing as module
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.partitioning.linear_hashing import murmur2

#: From Kafka's own ``UtilsTest#testMurmur2``.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.promise("same-as-kafka-streams")
@pytest.mark.parametrize(("data", "expected"), KNOWN.items())
def test_hash_is_kafkas_when_the_data_is_of_its_own_tests(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


def test_partition_is_javas_when_the_hash_is_negative() -> None:
    # Java's toPositive clears the sign bit; it does not negate.
    assert partition_of_key(b"21", 7, 7) == (-973932308 & 0x7FFFFFFF) % 7 == 3
    assert partition_of_key(b"abc", 7, 7) == 479470107 % 7


def test_partition_is_within_the_topic_when_keys_are_of_any_length() -> None:
    found = {partition_of_key(bytes(range(length)), 5, 5) for length in range(64)}
    assert found == {0, 1, 2, 3, 4}


def test_examples_run_when_a_docstring_has_them() -> None:
    result = doctest.testmod(module)
    assert result.attempted == 5
    assert result.failed == 0
