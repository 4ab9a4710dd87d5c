from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from airflow_kstreams.streams import KStreamBuilder, serdes, timestamps
from airflow_kstreams.streams.errors import RecordError, TopologyError
from airflow_kstreams.streams.timestamps import TimestampExtractor
from airflow_kstreams.testing import TopologyTestDriver


class Placed(msgspec.Struct):
    at_ms: int


class Order(msgspec.Struct):
    placed: Placed


def driver_of(extractor: TimestampExtractor | None, type_: Any = None, **options: Any) -> TopologyTestDriver:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(type_))
    builder.stream("in", timestamps=extractor).map_values(lambda value: value).send_to(
        "out", value_serde=serdes.json()
    )
    return TopologyTestDriver(builder.build(), application_id="app", **options)


def times(driver: TopologyTestDriver) -> list[int]:
    return [record.timestamp_ms for record in driver.read_output("out")]


def test_record_keeps_its_own_time_when_nothing_else_is_asked_for() -> None:
    driver = driver_of(None)
    driver.pipe_input("in", key="k", value=1, timestamp_ms=7)
    assert times(driver) == [7]


@pytest.mark.parametrize("value", [{"placed": {"at_ms": 42}}, {"placed": {"at_ms": 42, "more": 1}}])
def test_time_is_the_fields_when_the_value_is_a_dict(value: Any) -> None:
    driver = driver_of(timestamps.value_field("placed.at_ms"))
    driver.pipe_input("in", key="k", value=value, timestamp_ms=7)
    assert times(driver) == [42]


def test_time_is_the_fields_when_the_value_is_a_struct() -> None:
    driver = driver_of(timestamps.value_field("placed.at_ms"), Order)
    driver.pipe_input("in", key="k", value=Order(Placed(42)), timestamp_ms=7)
    assert times(driver) == [42]


def test_time_is_the_functions_when_one_is_given() -> None:
    driver = driver_of(timestamps.extract(lambda record: record.value + record.timestamp_ms + record.offset))
    for _ in range(2):
        driver.pipe_input("in", key="k", value=100, timestamp_ms=7)
    assert times(driver) == [107, 108]


def test_time_is_the_wall_clocks_when_asked_for() -> None:
    driver = driver_of(timestamps.wall_clock(), wall_clock_ms=5_000)
    driver.pipe_input("in", key="k", value=1, timestamp_ms=7)
    assert times(driver) == [5_000]


@pytest.mark.parametrize(
    "value", [{}, {"ms": None}, {"ms": -1}, {"ms": "9"}, {"ms": 1.5}, {"ms": True}, {"ms": 2**63}, 3]
)
def test_run_fails_and_names_the_record_when_a_timestamp_is_invalid(value: Any) -> None:
    driver = driver_of(timestamps.value_field("ms"))
    with pytest.raises(RecordError, match=r"in-0@0 .*no valid timestamp .*value_field\(ms\)"):
        driver.pipe_input("in", key="k", value=value, timestamp_ms=7)


@dataclasses.dataclass(frozen=True)
class Dated:
    ms: Any


NOON_MS = 1_769_860_800_000


@pytest.mark.parametrize(
    ("found", "unit"),
    [
        ("2026-01-31T12:00:00Z", None),
        ("2026-01-31T13:00:00.000999+01:00", "s"),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), None),
        (datetime(2026, 1, 31, 7, tzinfo=timezone(timedelta(hours=-5))), "ns"),
        (NOON_MS, None),
        (NOON_MS, "ms"),
        (NOON_MS / 1000, "s"),
        (NOON_MS // 1000, "s"),
        (NOON_MS * 1000 + 999, "us"),
        (NOON_MS * 1_000_000 + 999_999, "ns"),
        (Decimal("1769860800.0009"), "s"),
    ],
)
def test_field_may_hold_what_serdes_give_for_a_moment(found: Any, unit: Any) -> None:
    extractor = timestamps.value_field("ms", unit=unit)
    record = timestamps.ConsumedRecord("k", Dated(found), 7, [], "in", 0, 0)
    assert extractor.bound(lambda: 0)(record) == NOON_MS


@pytest.mark.parametrize(
    "found",
    [datetime(2026, 1, 31), math.nan, math.inf, Decimal("NaN"), True, "soon", "2026-01-31", [1]],  # noqa: DTZ001
)
def test_field_is_handed_on_as_it_is_when_it_is_no_moment(found: Any) -> None:
    extractor = timestamps.value_field("ms", unit="s")
    record = timestamps.ConsumedRecord("k", Dated(found), 7, [], "in", 0, 0)
    assert extractor.bound(lambda: 0)(record) is found


def test_unit_is_part_of_what_an_extractor_is() -> None:
    assert timestamps.value_field("ms").id == "value_field(ms)"
    assert timestamps.value_field("ms", unit="s").id == "value_field(ms, unit=s)"
    with pytest.raises(TopologyError, match="unit='minutes'"):
        timestamps.value_field("ms", unit="minutes")  # type: ignore[arg-type]


def test_record_is_dropped_and_counted_when_invalid_ones_are_skipped() -> None:
    driver = driver_of(timestamps.value_field("ms", invalid="skip"))
    for value in ({"ms": 5}, {}, {"ms": 6}):
        driver.pipe_input("in", key="k", value=value, timestamp_ms=7)
    assert times(driver) == [5, 6]


def test_record_takes_the_largest_time_before_it_when_the_policy_is_partition_time() -> None:
    driver = driver_of(timestamps.value_field("ms", invalid="partition_time"))
    for value in ({"ms": 50}, {"ms": 20}, {}):
        driver.pipe_input("in", key="k", value=value, timestamp_ms=7)
    assert times(driver) == [50, 20, 50]


def test_run_fails_when_there_is_no_partition_time_to_take() -> None:
    driver = driver_of(timestamps.value_field("ms", invalid="partition_time"))
    with pytest.raises(RecordError, match="none before it"):
        driver.pipe_input("in", key="k", value={}, timestamp_ms=7)


def test_run_fails_when_a_record_carries_no_time_at_all() -> None:
    driver = driver_of(None)
    with pytest.raises(RecordError, match=r"no valid timestamp .it carries -1(.|\n)*record_time\(invalid="):
        driver.pipe_input("in", key="k", value=1, timestamp_ms=-1)


@pytest.mark.parametrize(("policy", "expected"), [("skip", [9]), ("partition_time", [9, 9])])
def test_policy_holds_for_records_own_time_when_it_is_missing(policy: Any, expected: list[int]) -> None:
    driver = driver_of(timestamps.record_time(invalid=policy))
    driver.pipe_input("in", key="k", value=1, timestamp_ms=9)
    driver.pipe_input("in", key="k", value=1, timestamp_ms=-1)
    assert times(driver) == expected


def placed_at(record: timestamps.ConsumedRecord) -> int:
    when: int = record.value["ms"]
    return when


def test_record_and_extractor_are_named_when_the_function_fails() -> None:
    driver = driver_of(timestamps.extract(placed_at))
    with pytest.raises(RecordError) as caught:
        driver.pipe_input("in", key="k", value={}, timestamp_ms=7)
    error = caught.value
    assert "the timestamp extractor extract(placed_at) cannot date in-0@0 at node" in error.cause
    assert "in placed_at at" in error.cause
    assert "KeyError: 'ms'" in error.cause
    assert error.fix.startswith("mend the extractor")
    assert (error.topic, error.partition, error.offset) == ("in", 0, 0)


def test_record_cannot_be_decoded_when_the_serde_in_front_of_an_extractor_fails() -> None:
    driver = driver_of(timestamps.extract(placed_at))
    with pytest.raises(RecordError, match="cannot decode in-0@0 at node"):
        driver.pipe_bytes("in", key=b"k", value=b"{", timestamp_ms=7)


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_handler_of_undecodable_records_decides_when_an_extractor_fails(policy: str) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in", timestamps=timestamps.extract(placed_at)).send_to("out")
    settings = {"deserialization.exception.handler": policy}
    with TopologyTestDriver(builder.build(), application_id="app", settings=settings) as driver:
        for value in ({}, {"ms": 5}):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=7)
        assert times(driver) == [5]
        if policy == "dead-letter":
            (letter,) = driver.read_output("app-dead-letter")
            assert dict(letter.headers)["__streams.errors.exception"] == b"builtins.KeyError"


def test_policies_are_named_and_what_was_found_is_not_when_a_timestamp_is_invalid() -> None:
    driver = driver_of(timestamps.value_field("ms"))
    with pytest.raises(RecordError) as caught:
        driver.pipe_input("in", key="k", value={"ms": -987_654}, timestamp_ms=7)
    assert "value_field(ms) gave a number below 0" in caught.value.cause
    assert "invalid='skip' or 'partition_time'" in caught.value.cause
    assert "987" not in str(caught.value)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ("soon", "str that is no ISO 8601 with an offset from UTC"),
        ("2026-01-31T12:00:00", "str that is no ISO 8601 with an offset from UTC"),
        (5.5, "float without a unit"),
        (True, "bool"),
        (None, "None"),
    ],
)
def test_type_is_named_when_a_field_is_no_whole_number(found: object, kind: str) -> None:
    driver = driver_of(timestamps.value_field("ms"))
    with pytest.raises(RecordError) as caught:
        driver.pipe_input("in", key="k", value={"ms": found}, timestamp_ms=7)
    assert f"value_field(ms) gave {kind}, expected epoch milliseconds" in caught.value.cause
    assert "the same extractor with invalid='skip' or 'partition_time' goes on" in caught.value.cause
    assert "soon" not in str(caught.value)


def test_mistake_is_refused_with_its_line_when_an_extractor_cannot_be() -> None:
    no_function: Any = 7
    no_policy: Any = "guess"
    mistakes: list[Callable[[], TimestampExtractor]] = [
        lambda: timestamps.value_field(""),
        lambda: timestamps.value_field("a..b"),
        lambda: timestamps.extract(no_function),
        lambda: timestamps.record_time(invalid=no_policy),
    ]
    for mistake in mistakes:
        with pytest.raises(TopologyError, match=r"test_timestamps\.py:\d+"):
            mistake()


def test_topic_is_refused_when_it_is_read_with_two_extractors() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in", timestamps=timestamps.value_field("a"))
    with pytest.raises(TopologyError, match="different timestamp extractors"):
        builder.stream("in", timestamps=timestamps.value_field("b"))


def test_topic_is_refused_when_two_extractors_ask_different_functions() -> None:
    def plus(ms: int) -> TimestampExtractor:
        return timestamps.extract(lambda record: record.timestamp_ms + ms)

    for second in (timestamps.extract(placed_at), plus(2)):
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        builder.stream("in", timestamps=plus(1))
        with pytest.raises(TopologyError, match="different timestamp extractors") as caught:
            builder.stream("in", timestamps=second)
        assert "one timestamp extractor" in caught.value.fix
        with pytest.raises(TopologyError, match="different timestamp extractors"):
            builder.table("in", timestamps=second)
        builder.stream("in", timestamps=plus(1))


def test_hash_tells_extractors_apart_when_nothing_else_differs() -> None:
    def hash_of(extractor: TimestampExtractor | None) -> str:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        builder.stream("in", timestamps=extractor).send_to("out")
        return builder.build().topology_hash()

    hashes = {
        hash_of(extractor)
        for extractor in (
            None,
            timestamps.value_field("a"),
            timestamps.value_field("b"),
            timestamps.value_field("a", invalid="skip"),
        )
    }
    assert len(hashes) == 4
