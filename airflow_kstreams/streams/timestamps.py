"""Defines extractors of records' timestamps (KIP-28, "Stream Time"): ``stream("topic", timestamps=...)``.

A timestamp is a whole number of milliseconds since the epoch, from 0 on. The extractor's policy decides about
a record that has none:

- ``fail`` (the default): the run fails and names the record, as Kafka Streams does;
- ``skip``: the record is dropped and counted;
- ``partition_time``: the record takes the largest timestamp before it in its partition.

>>> from airflow_kstreams.streams import KStreamBuilder, serdes, timestamps
>>> from airflow_kstreams.testing import TopologyTestDriver
>>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
>>> placed = timestamps.value_field("placed.at_ms", invalid="skip")
>>> builder.stream("orders", timestamps=placed).send_to("dated")
>>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
...     driver.pipe_input("orders", key="a", value={"placed": {"at_ms": 42}}, timestamp_ms=100)
...     driver.pipe_input("orders", key="b", value={}, timestamp_ms=100)
...     [(record.key, record.timestamp_ms) for record in driver.read_output("dated")]
[('a', 42)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site, check_choice, check_functions
from airflow_kstreams.streams.ports import Headers

InvalidTimestamp = Literal["fail", "skip", "partition_time"]
_POLICIES = ("fail", "skip", "partition_time")
#: The id of extractors that ask a function.
ASKED = "extract"
#: Function that makes an extractor -> an example of its call.
_CALLED = {
    "record_time": "record_time()",
    "wall_clock": "wall_clock()",
    "value_field": "value_field('placed_ms')",
    "extract": "extract(function)",
}


class ConsumedRecord(NamedTuple):
    """A record for an extractor.

    :param key: the deserialized key; None if the record has none.
    :param value: the deserialized value; None if the record has none.
    :param timestamp_ms: the record's own timestamp, epoch milliseconds; -1 if it has none.
    :param headers: its headers, in order.
    :param topic: the topic's name in Kafka.
    :param partition: number of the partition.
    :param offset: offset of the record.
    """

    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers
    topic: str
    partition: int
    offset: int


TimeUnit = Literal["s", "ms", "us", "ns"]
_PER_SECOND: dict[str, int] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Extract = Callable[[ConsumedRecord], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampExtractor:
    """Gives each record of a source its timestamp; extractors of one id and policy are equal.

    :param id: stable name of the extractor; part of the topology hash.
    :param invalid: policy for a record without valid timestamp: ``fail``, ``skip``, or ``partition_time``,
        which takes the largest timestamp before it in its partition.
    :param function: function that gives a record's timestamp, epoch milliseconds; None for the wall clock's
        time of reading.
    """

    id: str
    invalid: InvalidTimestamp = "fail"
    function: Extract | None = field(default=None, compare=False)

    def bound(self, now_ms: Callable[[], int]) -> Extract:
        """Return the function that a task calls.

        :param now_ms: function that gives the wall clock's time, epoch milliseconds.
        """
        return self.function or (lambda record: now_ms())


def record_time(*, invalid: InvalidTimestamp = "fail") -> TimestampExtractor:
    """Take the record's own timestamp: the producer's, or the broker's under ``LogAppendTime``."""
    return TimestampExtractor(
        id="record_time", invalid=_policy(invalid), function=lambda record: record.timestamp_ms
    )


def wall_clock() -> TimestampExtractor:
    """Take the time at which the record is read; results then differ when a run is repeated."""
    return TimestampExtractor(id="wall_clock")


def value_field(
    path: str, *, unit: TimeUnit | None = None, invalid: InvalidTimestamp = "fail"
) -> TimestampExtractor:
    """Take a field of the value: a key of a dict, or an attribute of a struct.

    A whole number is in milliseconds unless ``unit`` says otherwise. A number with a fraction needs a unit. A
    ``datetime`` and text in ISO 8601 need an offset from UTC (``2026-01-31T12:00:00Z``): without one they
    name no point in time. A time between two milliseconds becomes the earlier one.

    >>> from airflow_kstreams.streams import timestamps
    >>> second = timestamps.ConsumedRecord(None, {"at": 1.5}, -1, [], "orders", 0, 0)
    >>> timestamps.value_field("at", unit="s").bound(lambda: 0)(second)
    1500

    :param path: name of the field, with dots for nested values, e.g. ``"order.placed_ms"``.
    :param unit: unit of numbers: ``s``, ``ms``, ``us`` or ``ns``.
    :param invalid: policy for a record without valid timestamp, whose field is also missing, null, or none of
        these.
    """
    if unit is not None:
        check_choice(f"timestamps.value_field at {call_site()}", _PER_SECOND, unit=unit)
    if not isinstance(path, str) or not all(path.split(".")):
        raise TopologyError(
            f"timestamps.value_field at {call_site()} is given {path!r}, expected the name of a field",
            fix="pass its name, e.g. value_field('placed_ms'), with dots for nested ones",
        )
    names = path.split(".")

    def function(record: ConsumedRecord) -> Any:  # what is no time is named by its type
        found = record.value
        for name in names:
            found = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        return found if type(found) is int and unit is None else _milliseconds(found, unit)

    described = path if unit is None else f"{path}, unit={unit}"
    return TimestampExtractor(id=f"value_field({described})", invalid=_policy(invalid), function=function)


def _milliseconds(found: Any, unit: TimeUnit | None) -> Any:
    """Return the time in a field as epoch milliseconds; the field's value if it names no time."""
    moment = found
    if isinstance(found, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(found)
    if isinstance(moment, datetime):
        return found if moment.utcoffset() is None else (moment - _EPOCH) // timedelta(milliseconds=1)
    if unit is None or isinstance(found, bool) or not isinstance(found, int | float | Decimal):
        return found
    if not math.isfinite(found):
        return found
    return math.floor(Fraction(found) * 1000 / _PER_SECOND[unit])


def extract(function: Extract, *, invalid: InvalidTimestamp = "fail") -> TimestampExtractor:
    """Call a function: ``function(record)`` gets a :class:`ConsumedRecord` and returns milliseconds, or None.

    :param function: function of the record only, so that a run repeated after a crash gets the same times.
    :param invalid: policy for a record without valid timestamp.
    """
    check_functions(
        "timestamps.extract",
        fix="pass a function of the record, e.g. lambda record: record.value['ms']",
        function=function,
    )
    return TimestampExtractor(id=ASKED, invalid=_policy(invalid), function=function)


def check_timestamps(call: str, timestamps: object) -> None:
    """Refuse an object that is no extractor; the caller handles None.

    :param call: the user's call, for the message: ``stream``.
    :raises TopologyError: the object is no extractor.
    """
    if timestamps is None or isinstance(timestamps, TimestampExtractor):
        return
    found, fix = repr(timestamps), "pass an extractor, e.g. timestamps.value_field('placed_ms')"
    if callable(timestamps):
        name = getattr(timestamps, "__name__", type(timestamps).__name__)
        found = f"the function {name}"
        called = _CALLED.get(name, "") if getattr(timestamps, "__module__", "") == __name__ else ""
        fix = f"call it: timestamps.{called}" if called else "wrap it: timestamps.extract(function)"
    raise TopologyError(
        f"{call} at {call_site()} is given {found} as timestamps, expected a timestamp extractor", fix=fix
    )


def _policy(invalid: InvalidTimestamp) -> InvalidTimestamp:
    check_choice(f"a timestamp extractor at {call_site()}", _POLICIES, invalid=invalid)
    return invalid
