"""Delays per carrier, from the topic ``flights`` into the topic ``carrier-delays``.

Two subtopologies: the first drops what cannot be counted and gives every departure its carrier as key, the
second keeps one running total per carrier and emits it once per commit. ``dags/flight_delays_hourly.py``
runs it.
"""

from __future__ import annotations

import msgspec

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes


class Flight(msgspec.Struct, frozen=True):
    """What this application reads of a flight; a cancelled one has neither departure time nor delay."""

    carrier: str | None = None
    dep_time: int | None = None
    dep_delay: int | None = None


class Departure(msgspec.Struct, frozen=True):
    """One scheduled departure; ``delay_minutes`` is None when the flight was cancelled."""

    carrier: str
    delay_minutes: int | None


class Delays(msgspec.Struct, frozen=True):
    """Running total of one carrier. Sum and count are kept apart so that the mean stays exact."""

    flights: int = 0
    cancelled: int = 0
    delay_minutes: int = 0
    worst_delay_minutes: int | None = None


class CarrierDelays(msgspec.Struct, frozen=True):
    """What ``carrier-delays`` holds per carrier; mean and worst are None when nothing departed."""

    flights: int
    cancelled: int
    mean_delay_minutes: float | None
    worst_delay_minutes: int | None


def has_carrier(_origin: str, flight: Flight) -> bool:
    """Tell whether a flight can be counted at all."""
    return bool(flight.carrier and flight.carrier.strip())


def by_carrier(_origin: str, flight: Flight) -> tuple[str, Departure]:
    """Key a flight by its carrier; a delay without a departure means nothing."""
    carrier = (flight.carrier or "").strip()
    delay = None if flight.dep_time is None else flight.dep_delay
    return carrier, Departure(carrier, delay)


def add_departure(_carrier: str, departure: Departure, total: Delays) -> Delays:
    """Add one departure to its carrier's total."""
    delay = departure.delay_minutes
    if delay is None:
        return Delays(total.flights + 1, total.cancelled + 1, total.delay_minutes, total.worst_delay_minutes)
    worst = total.worst_delay_minutes
    return Delays(
        total.flights + 1,
        total.cancelled,
        total.delay_minutes + delay,
        delay if worst is None or delay > worst else worst,
    )


def summary(total: Delays) -> CarrierDelays:
    """Turn a total into what readers want to see."""
    departed = total.flights - total.cancelled
    mean = total.delay_minutes / departed if departed else None
    return CarrierDelays(total.flights, total.cancelled, mean, total.worst_delay_minutes)


def topology() -> Topology:
    """Build the topology; nothing runs here."""
    builder = KStreamBuilder()
    (
        builder.stream("flights", key_serde=serdes.string(), value_serde=serdes.json(Flight))
        .filter(has_carrier)
        .map(by_carrier)
        .group_by_key(key_serde=serdes.string(), value_serde=serdes.json(Departure))
        .aggregate(Delays, add_departure, store="delays", value_serde=serdes.json(Delays))
        .to_stream()
        .map_values(summary)
        .send_to("carrier-delays", key_serde=serdes.string(), value_serde=serdes.json(CarrierDelays))
    )
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
