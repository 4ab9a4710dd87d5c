"""The topologies of the suite, as a user would write them; every peer has the same ones in its own words."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any

import msgspec

from airflow_kstreams.streams import (
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    Topology,
    TumblingWindow,
    serdes,
)

#: Topics; for a run, others are put in their place.
EVENTS = "bench-events"
USERS = "bench-users"
FLIGHTS = "bench-flights"
WEATHER = "bench-weather"
OUTPUT = "bench-output"

_HOUR_MS = 3_600_000
#: Of the windows that fold events: some of them come out of order, none of them late.
_GRACE_MS = 1_000


class Event(msgspec.Struct):
    """What happened: some 90 bytes of JSON, or as many as the note makes it."""

    id: int
    user: str
    amount: int
    kind: str
    note: str


class Amount(msgspec.Struct):
    """What the topology of batches reads of an event."""

    id: int
    user: str
    amount: int


class Slim(msgspec.Struct):
    """What is kept of an event."""

    id: int
    user: str
    cents: int


class Newest(msgspec.Struct):
    """What is kept of a user's newest event."""

    id: int
    cents: int


class Padded(msgspec.Struct):
    """What is kept of an event when its size is what matters."""

    id: int
    user: str
    cents: int
    note: str


class User(msgspec.Struct):
    """Whose events they are."""

    user: str
    city: str
    moves: int


class Placed(msgspec.Struct):
    """What is kept of an event, and where its user lives."""

    id: int
    cents: int
    city: str


class Grouped(msgspec.Struct):
    """What a group needs to know of an event."""

    group: str
    cents: int


class Activity(msgspec.Struct):
    """What a user did."""

    cents: int
    moves: int


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


def stateless_batches() -> Topology:
    """Do the same to batches: JSON is read and written by one call for each."""
    builder = KStreamBuilder()
    (
        builder.stream(EVENTS, key_serde=serdes.bytes(), value_serde=serdes.bytes())
        .map_batches(slim, changes_key=False)
        .send_to(OUTPUT, key_serde=serdes.bytes(), value_serde=serdes.bytes())
    )
    return builder.build()


_AMOUNTS, _SLIM = msgspec.json.Decoder(Amount), msgspec.json.Encoder()


def slim(batch: Any) -> Any:
    """Drop a tenth of a batch, keep three fields of the rest."""
    import pyarrow as pa  # here, since no other topology needs it

    events = _AMOUNTS.decode_lines(b"\n".join(batch.column("value").to_pylist()))
    keeps = [event.amount % 10 != 0 for event in events]
    kept = [Slim(event.id, event.user, event.amount * 100) for event in compress(events, keeps)]
    values = pa.array(_SLIM.encode_lines(kept).split(b"\n")[:-1], type=pa.binary())
    return batch.filter(pa.array(keeps)).set_column(1, "value", values)


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


def newest() -> Topology:
    """Keep two fields, under the key that the records have."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .map_values(lambda event: Newest(event.id, event.amount * 100))
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(Newest))
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


def last_by_key() -> Topology:
    """Keep the last five amounts of the key that the records have: a store whose values could be changed."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .group_by_key()
        .aggregate(
            list[int],
            lambda _, event, last: [*last[-4:], event.amount],
            store="last",
            value_serde=serdes.json(list[int]),
        )
        .to_stream()
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(list[int]))
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


def _newest_events(builder: KStreamBuilder) -> Any:
    return builder.table(EVENTS, key_serde=serdes.string(), value_serde=serdes.json(Event), store="events")


def _users(builder: KStreamBuilder) -> Any:
    return builder.table(USERS, key_serde=serdes.string(), value_serde=serdes.json(User), store="users")


def _placed(event: Event, user: User) -> Placed:
    return Placed(event.id, event.amount * 100, user.city)


def stream_table() -> Topology:
    """Join every event with its user as of its time."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .join(_users(builder), _placed)
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(Placed))
    )
    return builder.build()


def tables() -> Topology:
    """Join the newest event of each user with the user."""
    builder = KStreamBuilder()
    (
        _newest_events(builder)
        .join(_users(builder), _placed)
        .to_stream()
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(Placed))
    )
    return builder.build()


def foreign_key() -> Topology:
    """Join the newest event of each user with the first one of a hundred users."""
    builder = KStreamBuilder()
    (
        _newest_events(builder)
        .join(_users(builder), _placed, foreign_key=lambda user, _: user[:-2] + "00", name="first")
        .to_stream()
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(Placed))
    )
    return builder.build()


def table_groups() -> Topology:
    """Sum what the newest events of all users are worth, by groups that they come to and leave."""
    builder = KStreamBuilder()
    (
        _newest_events(builder)
        .filter(lambda _, event: event.amount % 10 != 0)
        .map_values(lambda event: Grouped(f"{event.kind}-{event.amount % 100}", event.amount * 100))
        .group_by(
            lambda _, grouped: (grouped.group, grouped.cents),
            key_serde=serdes.string(),
            value_serde=serdes.json(int),
        )
        .aggregate(
            lambda: 0,
            lambda _, cents, total: total + cents,
            lambda _, cents, total: total - cents,
            store="worth",
            value_serde=serdes.json(int),
        )
        .to_stream()
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(int))
    )
    return builder.build()


def cogroup() -> Topology:
    """Fold events and users into one table."""
    builder = KStreamBuilder()
    users = builder.stream(USERS, key_serde=serdes.string(), value_serde=serdes.json(User))
    (
        _events(builder)
        .group_by_key()
        .cogroup(lambda _, event, seen: Activity(seen.cents + event.amount * 100, seen.moves))
        .cogroup(users.group_by_key(), lambda _, user, seen: Activity(seen.cents, seen.moves + 1))
        .aggregate(lambda: Activity(0, 0), store="activity", value_serde=serdes.json(Activity))
        .to_stream()
        .send_to(OUTPUT, key_serde=serdes.string(), value_serde=serdes.json(Activity))
    )
    return builder.build()


def _summed(builder: KStreamBuilder, window: Any, *merger: Any) -> Any:
    """Return the table that sums the events of each key by windows."""
    return (
        _events(builder)
        .group_by_key()
        .windowed_by(window)
        .aggregate(
            lambda: 0,
            lambda _, event, total: total + event.amount,
            *merger,
            store="sums",
            value_serde=serdes.json(int),
        )
    )


def tumbling() -> Topology:
    """Sum by key and window, and give each sum once, when its window is closed."""
    builder = KStreamBuilder()
    window = TumblingWindow(size_ms=20_000, grace_ms=_GRACE_MS)
    _summed(builder, window).suppress().to_stream().send_to(OUTPUT, value_serde=serdes.json(int))
    return builder.build()


def sliding() -> Topology:
    """Sum by key and sliding window."""
    builder = KStreamBuilder()
    window = SlidingWindow(size_ms=4_000, grace_ms=_GRACE_MS)
    _summed(builder, window).to_stream().send_to(OUTPUT, value_serde=serdes.json(int))
    return builder.build()


def session() -> Topology:
    """Sum by key and session."""
    builder = KStreamBuilder()
    window = SessionWindow(gap_ms=3_000, grace_ms=_GRACE_MS)
    summed = _summed(builder, window, lambda _, earlier, later: earlier + later)
    summed.to_stream().send_to(OUTPUT, value_serde=serdes.json(int))
    return builder.build()


TOPOLOGIES: dict[str, Callable[[], Topology]] = {
    factory.__name__: factory
    for factory in (
        stateless,
        stateless_batches,
        padded,
        newest,
        sum_by_key,
        last_by_key,
        two_stage,
        join,
        stream_table,
        tables,
        foreign_key,
        table_groups,
        cogroup,
        tumbling,
        sliding,
        session,
    )
}
