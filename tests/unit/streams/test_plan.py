"""What decoders read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from airflow_kstreams.streams.plan import convert, decode_json, json_decoder, msgpack_decoder


class Point(msgspec.Struct):
    x: int


@pytest.mark.parametrize(
    "read",
    [
        lambda kind: decode_json(b'{"x":5}', kind),
        lambda kind: json_decoder(kind).decode(b'{"x":5}'),
        lambda kind: msgpack_decoder(kind).decode(msgspec.msgpack.encode({"x": 5})),
        lambda kind: convert({"x": 5}, kind),
    ],
)
def test_what_is_read_is_of_the_kind_asked_for(read: Any) -> None:
    assert read(Point) == Point(5)
    assert read(dict[str, int]) == read(Any) == {"x": 5}
    with pytest.raises(msgspec.ValidationError):
        read(list[int])


def test_numbers_are_converted_from_text_when_not_strict() -> None:
    assert convert({"x": "5"}, Point, strict=False) == Point(5)
    with pytest.raises(msgspec.ValidationError):
        convert({"x": "5"}, Point)
