"""The topologies of the suite, as a user would write them; every peer has the same ones in its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, Topology, serdes

#: Topics; for a run, others are put in their place.
EVENTS = "bench-events"
FLIGHTS = "bench-flights"
WEATHER = "bench-weather"
OUTPUT = "bench-output"

_HOUR_MS = 3_600_000


class Event(msgspec.Struct):
    """What happened: some 90 bytes of JSON, or as many as the note makes it."""

    id: int
    user: str
    amount: int
    kind: str
    note: str


class Slim(msgspec.Struct):
    """What is kept of an event."""

    id: int
    user: str
    cents: int


class Padded(msgspec.Struct):
    """What is kept of an event when its size is what matters."""

    id: int
    user: str
    cents: int
    note: str


class Flight(msgspec.Struct):
    """What is read of a flight."""

    carrier: str | None
    flight: int | None
    dep_delay: int | None


class Observation(msgspec.Struct):
    """What is read of the weather."""

    time_hour: str


class Departure(msgspec.Struct):
    """A flight, and the observation of its hour."""

    carrier: str | None
    flight: int | None
    dep_delay: int | None
    weather: str


def _events(builder: KStreamBuilder) -> Any:
    return builder.stream(EVENTS, key_serde=serdes.string(), value_serde=serdes.json(Event))


def stateless() -> Topology:
    """Drop a tenth, keep three fields of the rest."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .filter(lambda _, event: event.amount % 10 != 0)
        .map_values(lambda event: Slim(event.id, event.user, event.amount * 100))
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(Slim))
    )
    return builder.build()


def padded() -> Topology:
    """Drop a tenth, keep the rest at its size."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .filter(lambda _, event: event.amount % 10 != 0)
        .map_values(lambda event: Padded(event.id, event.user, event.amount * 100, event.note))
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(Padded))
    )
    return builder.build()


def sum_by_key() -> Topology:
    """Sum by the key that the records have."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .group_by_key()
        .aggregate(
            lambda: 0,
            lambda _, event, total: total + event.amount,
            store="sums",
            value_serde=serdes.json(int),
        )
        .to_stream()
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(int))
    )
    return builder.build()


def two_stage() -> Topology:
    """Give every record another key, and sum by that: two subtopologies and a topic between them."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .map(lambda _, event: (f"{event.kind}-{event.amount}", event.amount))
        .group_by_key(key_serde=serdes.string(), value_serde=serdes.json(int))
        .reduce(lambda total, amount: total + amount, store="totals", value_serde=serdes.json(int))
        .to_stream()
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(int))
    )
    return builder.build()


def join() -> Topology:
    """Join every flight with the weather at its origin in its hour."""
    builder = KStreamBuilder(default_key_serde=serdes.string())
    flights = builder.stream(FLIGHTS, value_serde=serdes.json(Flight)).with_window(
        SlidingWindow(size_ms=0, grace_ms=_HOUR_MS)
    )
    weather = builder.stream(WEATHER, value_serde=serdes.json(Observation)).with_window(
        SlidingWindow(size_ms=_HOUR_MS - 1, grace_ms=_HOUR_MS)
    )
    (
        flights.join(
            weather,
            lambda flight, seen: Departure(flight.carrier, flight.flight, flight.dep_delay, seen.time_hour),
            name="flight-weather",
        ).send_to(OUTPUT, value_serde=serdes.json(Departure))
    )
    return builder.build()


TOPOLOGIES: dict[str, Callable[[], Topology]] = {
    factory.__name__: factory for factory in (stateless, padded, sum_by_key, two_stage, join)
}
