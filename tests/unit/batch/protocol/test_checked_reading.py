"""The one reader of what the engine reads back from Kafka: each failure is one error."""

from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.protocol.checked_reading import (
    LARGEST,
    UnreadableError,
    read_json,
    read_number,
    read_text,
)
from airflow_kstreams.streams.plan import PartitionCount, PartitionName

pytestmark = pytest.mark.promise("own-topics-can-be-poisoned")


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record's value."""

    count: PartitionCount = 0
    offset: int = 0
    share: float = 0.0
    name: str = ""
    stops: dict[PartitionName, int] = {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"[1]",
        b"null",
        b'{"count":-1}',
        b'{"count":1000000000000}',
        b'{"offset":true}',
        b'{"offset":1e3}',
        b'{"offset":9223372036854775808}',
        b'{"offset":' + b"9" * 5_000 + b"}",
        b'{"later":' + b"9" * 5_000 + b"}",
        b'{"share":NaN}',
        b'{"share":1e999}',
        b'{"later":1e999}',
        b'{"later":' + b"[" * 100_000,
        b'{"later":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"name":"\xff"}',
        b'{"later":"\xff"}',
        b'{"stops":{"\xff-0":1}}',
        b'{"stops":{"orders-x":1}}',
        b'{"stops":{"orders":1}}',
        b'{"offset":1,"offset":2}',
        b'{"stops":{"in-0":1,"in-0":2}}',
        b'{"name":"\\ud800"}',
    ],
    ids=lambda data: repr(data[:30]),
)
def test_json_is_refused_with_one_error_when_the_engine_would_not_write_it(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        read_json(data, Entry)


@pytest.mark.parametrize(
    "entry",
    [Entry(), Entry(offset=LARGEST, count=7, name="9" * 40, share=0.5, stops={"a-b-0": -1})],
    ids=["empty", "full"],
)
def test_json_is_read_when_the_engine_wrote_it(entry: Entry) -> None:
    assert read_json(msgspec.json.encode(entry), Entry) == entry


def test_json_is_read_when_a_later_version_wrote_more() -> None:
    assert read_json(b'{ "later" : {"a": 1}, "offset": 3 }', Entry) == Entry(offset=3)


@pytest.mark.parametrize("data", [None, b"", b"-1", b"+1", b"01", b"1.0", b"\xb2", b" 1", b"9" * 5_000, b"8"])
def test_number_is_refused_when_it_is_none_or_too_large(data: bytes | None) -> None:
    with pytest.raises(UnreadableError):
        read_number(data, most=7)


def test_number_and_text_are_read_when_they_are_written_so() -> None:
    assert (read_number(b"0"), read_number(str(LARGEST).encode()), read_text("é".encode())) == (
        0,
        LARGEST,
        "é",
    )
    for data in (None, b"\xff"):
        with pytest.raises(UnreadableError):
            read_text(data)
