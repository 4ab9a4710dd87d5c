"""Conditions and limits of replays: what fits, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.batch.replay.selection import Letter, Selection
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.records.dead_letter_format import ConsumedAt, dead_letter_headers
from airflow_kstreams.testing import InMemoryKafka

pytestmark = pytest.mark.promise("unselected-letters-stay")


class NotFoundError(Exception):
    """An exception of an application."""


def letter(value: bytes | None = b"{}", key: bytes | None = b"k", node: str = "enrich") -> Letter:
    """The letter of ``in-1@1``."""
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=2)
    kafka.create_topic("dead")
    kafka.append("in", b"before", partition=1)
    kafka.append("in", value, key, partition=1)
    record: Any = kafka.records("in")[1]
    headers = dead_letter_headers(record, NotFoundError("no airline"), node, ConsumedAt())
    kafka.append("dead", value, key, headers=[("own", b"1"), *headers])
    found: Any = kafka.records("dead")[0]
    return Letter.of(found)


@pytest.mark.parametrize(
    ("name", "wanted", "fits"),
    [
        ("topic", "in", True),
        ("topic", "i", False),
        ("partition", "1", True),
        ("partition", 1, True),
        ("partition", "0", False),
        ("offset", "1", True),
        ("offset", "11", False),
        ("node", "enrich", True),
        ("node", "Enrich", False),
        ("exception", "NotFoundError", True),
        ("exception", f"{NotFoundError.__module__}.NotFoundError", True),
        ("exception", "Error", False),
        ("exception", "other.NotFoundError", False),
        ("message", "no airline", True),
        ("message", "airline", False),
        ("key", "k", True),
        ("key", "", False),
    ],
)
def test_letter_fits_when_what_it_says_of_itself_is_equal(name: str, wanted: object, fits: bool) -> None:
    assert Selection.parse({name: wanted}).fits(letter()) is fits


@pytest.mark.parametrize(
    ("value", "name", "wanted", "fits"),
    [
        (b'{"airline": "UA"}', "value.airline", "UA", True),
        (b'{"airline": "UA"}', "value.airline", "U", False),
        (b'{"airline": "UA"}', "value.carrier", "UA", False),
        (b'{"airline": "\\u00e4\\n"}', "value.airline", "ä\n", True),
        (b'{"airline": ""}', "value.airline", "", True),
        (b'{"a": {"b": {"c": "x"}}}', "value.a.b.c", "x", True),
        (b'{"a": {"b": {"c": "x"}}}', "value.a.b", "x", False),
        (b'{"a": "x"}', "value.a.b", "x", False),
        (b'{"delay": 5}', "value.delay", "5", True),
        (b'{"delay": 5}', "value.delay", 5, True),
        (b'{"delay": 5.0}', "value.delay", "5", True),
        (b'{"delay": 50e-1}', "value.delay", "5", True),
        (b'{"delay": "5"}', "value.delay", "5", True),
        (b'{"delay": 5}', "value.delay", " 5", False),
        (b'{"delay": 5}', "value.delay", "0x5", False),
        (b'{"id": 18446744073709551617}', "value.id", "18446744073709551617", True),
        (b'{"id": 18446744073709551617}', "value.id", "18446744073709551616", False),
        (b'{"id": 1e999999999999}', "value.id", "1e999999999999", True),
        (b'{"id": 1e999999999999}', "value.id", "1e999999999998", False),
        (b'{"cancelled": true}', "value.cancelled", "true", True),
        (b'{"cancelled": true}', "value.cancelled", True, True),
        (b'{"cancelled": true}', "value.cancelled", "1", False),
        (b'{"cancelled": null}', "value.cancelled", None, True),
        (b"{}", "value.cancelled", None, False),
        (b'{"a": [1]}', "value.a", "[1]", False),
        (b'{"a": {}}', "value.a", "{}", False),
        (b'{"a": "x"', "value.a", "x", False),
        (b'{"a": "\xff"}', "value.a", "x", False),
        (b'["x"]', "value.0", "x", False),
        (b'{"a":' * 100_000, "value.a", "x", False),
        (b"", "value.a", "", False),
        (None, "value.a", None, False),
    ],
)
def test_letter_fits_when_a_field_of_its_value_is_equal(
    value: bytes | None, name: str, wanted: object, fits: bool
) -> None:
    assert Selection.parse({name: wanted}).fits(letter(value)) is fits


def test_letter_fits_when_every_condition_does() -> None:
    both = Selection.parse({"topic": "in", "value.airline": "UA"})

    assert both.fits(letter(b'{"airline": "UA"}'))
    assert not both.fits(letter(b'{"airline": "AA"}'))
    assert Selection().fits(letter(None, None))


@pytest.mark.parametrize(
    ("where", "found", "way_out"),
    [
        ({"airline": "UA"}, "no field 'airline'", "value.NAME"),
        ({"exeption": "x"}, "no field 'exeption'", "exception"),
        ({"": "x"}, "no field ''", "topic"),
        ({"value": "x"}, "no field 'value'", "value.NAME"),
        ({"value.": "x"}, "no field 'value.'", "value.NAME"),
        ({"value.a..b": "x"}, r"no field 'value\.a\.\.b'", "value.NAME"),
        ({"partition": "one"}, "partition=one", "dead-letters list"),
        ({"offset": "-1"}, "offset=-1", "dead-letters list"),
        ({"offset": "007"}, "offset=007", "dead-letters list"),
        ({"value.delay": 1.5}, "value.delay is float", "as text"),
        ({"value.a": ["x"]}, "value.a is list", "as text"),
    ],
)
def test_condition_is_refused_when_it_cannot_be_meant(
    where: dict[str, object], found: str, way_out: str
) -> None:
    with pytest.raises(ConfigError, match=found) as caught:
        Selection.parse(where)
    assert way_out in caught.value.fix


@pytest.mark.parametrize("limit", [0, -1, "0", "many", True, 1.5, "1_000"])
def test_limit_is_refused_when_it_is_no_number_of_records(limit: object) -> None:
    with pytest.raises(ConfigError, match="whole number from 1"):
        Selection.parse(limit=limit)


def test_limit_is_none_when_it_is_left_out() -> None:
    assert [Selection.parse(limit=limit).limit for limit in (None, "", "7", 7)] == [0, 0, 7, 7]


def test_selection_says_what_it_selects() -> None:
    assert str(Selection()) == "all letters"
    assert str(Selection.parse(limit=1_000)) == "letters, at most 1,000"
    assert str(Selection.parse({"topic": "in", "value.a": 5})) == "all letters with topic=in and value.a=5"
    assert str(Selection.parse({"topic": "in"}, 2)) == "letters with topic=in, at most 2"
