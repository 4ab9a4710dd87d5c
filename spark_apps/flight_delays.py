"""Delays per carrier, in fair and in foul weather: ``flights``, ``weather`` and ``airlines`` in,
``carrier-delays`` out.

Two subtopologies. The first joins every flight with the observation of its airport and hour and gives it its
carrier as key; the second keeps one running total per carrier, and writes it with the airline's name once per
commit. ``dags/flight_delays_hourly.py`` runs it.

A flight is joined, and counted, once: with its observation as soon as both are there, or without one when
stream time has passed its scheduled departure by an hour, after which an observation would come too late. A
flight of which neither is so at the end of a run waits for the next one (``at_run_end="hold"``). With
``flush`` it would be counted at once, and again with an observation that comes later.

With a folder in ``FLIGHT_TABLES`` the totals land in an Iceberg and in a Delta table, too, as ``dev/demo
--tables`` shows.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from airflow_kstreams.streams import (
    DeltaTable,
    IcebergTable,
    KStream,
    KStreamBuilder,
    SlidingWindow,
    Topology,
    serdes,
)

_HOUR_MS = 3_600_000
#: Below three statute miles pilots must fly by instruments, and arrivals are spaced further apart.
_LOW_VISIBILITY_MILES = 3

Sky = Literal["fair", "foul", "unknown"]


class Flight(msgspec.Struct, frozen=True):
    """What this application reads of a flight; a cancelled one has neither departure time nor delay.

    Its record has the origin as key and the scheduled departure as timestamp.
    """

    carrier: str | None = None
    dep_time: int | None = None
    dep_delay: int | None = None


class Observation(msgspec.Struct, frozen=True):
    """What this application reads of the weather at an airport in the hour from the record's timestamp on."""

    precip: float | None = None
    visib: float | None = None


class Airline(msgspec.Struct, frozen=True):
    """A carrier's name."""

    name: str | None = None


class Departure(msgspec.Struct, frozen=True):
    """One scheduled departure; ``delay_minutes`` is None when the flight was cancelled."""

    carrier: str
    delay_minutes: int | None
    sky: Sky


class Tally(msgspec.Struct, frozen=True):
    """Departures under one sky. Sum and counts are kept apart so that the mean stays exact."""

    flights: int = 0
    cancelled: int = 0
    delay_minutes: int = 0

    def with_departure(self, delay_minutes: int | None) -> Tally:
        """Return the tally with one more."""
        if delay_minutes is None:
            return Tally(self.flights + 1, self.cancelled + 1, self.delay_minutes)
        return Tally(self.flights + 1, self.cancelled, self.delay_minutes + delay_minutes)

    @property
    def mean_delay_minutes(self) -> float | None:
        """Mean over those that departed; None when none did."""
        departed = self.flights - self.cancelled
        return self.delay_minutes / departed if departed else None


class Delays(msgspec.Struct, frozen=True):
    """Running totals of one carrier."""

    fair: Tally = Tally()
    foul: Tally = Tally()
    unknown: Tally = Tally()
    worst_delay_minutes: int | None = None


class CarrierDelays(msgspec.Struct, frozen=True):
    """What ``carrier-delays`` holds per carrier; means and worst are None when nothing departed."""

    name: str | None
    flights: int
    cancelled: int
    mean_delay_minutes: float | None
    worst_delay_minutes: int | None
    flights_in_foul_weather: int
    mean_delay_fair_minutes: float | None
    mean_delay_foul_minutes: float | None
    flights_without_weather: int


def has_carrier(_origin: str, flight: Flight) -> bool:
    """Say whether a flight can be counted at all."""
    return bool(flight.carrier and flight.carrier.strip())


def departure(flight: Flight, observation: Observation | None) -> Departure:
    """Join a flight with its weather; a delay without a departure means nothing."""
    delay = None if flight.dep_time is None else flight.dep_delay
    return Departure((flight.carrier or "").strip(), delay, sky(observation))


def sky(observation: Observation | None) -> Sky:
    """Judge the weather: rain, snow or low visibility is foul."""
    if observation is None:
        return "unknown"
    wet = observation.precip is not None and observation.precip > 0
    dim = observation.visib is not None and observation.visib < _LOW_VISIBILITY_MILES
    return "foul" if wet or dim else "fair"


def add_departure(_carrier: str, departure: Departure, total: Delays) -> Delays:
    """Add one departure to its carrier's totals."""
    delay, worst = departure.delay_minutes, total.worst_delay_minutes
    if delay is not None and (worst is None or delay > worst):
        worst = delay
    fair, foul, unknown = total.fair, total.foul, total.unknown
    if departure.sky == "fair":
        fair = fair.with_departure(delay)
    elif departure.sky == "foul":
        foul = foul.with_departure(delay)
    else:
        unknown = unknown.with_departure(delay)
    return Delays(fair, foul, unknown, worst)


def summary(total: Delays, airline: Airline | None) -> CarrierDelays:
    """Turn a carrier's totals into what readers want to see."""
    skies = (total.fair, total.foul, total.unknown)
    every = Tally(
        sum(tally.flights for tally in skies),
        sum(tally.cancelled for tally in skies),
        sum(tally.delay_minutes for tally in skies),
    )
    return CarrierDelays(
        name=None if airline is None else airline.name,
        flights=every.flights,
        cancelled=every.cancelled,
        mean_delay_minutes=every.mean_delay_minutes,
        worst_delay_minutes=total.worst_delay_minutes,
        flights_in_foul_weather=total.foul.flights,
        mean_delay_fair_minutes=total.fair.mean_delay_minutes,
        mean_delay_foul_minutes=total.foul.mean_delay_minutes,
        flights_without_weather=total.unknown.flights,
    )


def topology() -> Topology:
    """Build the topology; nothing runs here."""
    builder = KStreamBuilder(default_key_serde=serdes.string())
    flights = (
        builder.stream("flights", value_serde=serdes.json(Flight))
        .filter(has_carrier)
        # A flight is there from its scheduled departure on, and no weather of a later hour is its own.
        .with_window(SlidingWindow(size_ms=0, grace_ms=_HOUR_MS, at_run_end="hold"))
    )
    weather = builder.stream("weather", value_serde=serdes.json(Observation)).with_window(
        # An observation holds for the flights from its timestamp to the last moment of its hour.
        SlidingWindow(size_ms=_HOUR_MS - 1, grace_ms=_HOUR_MS)
    )
    airlines = builder.table("airlines", value_serde=serdes.json(Airline), store="airlines")
    totals = (
        flights.left_join(weather, departure, name="flight-weather")
        .group_by(lambda _origin, departure: departure.carrier, value_serde=serdes.json(Departure))
        .aggregate(Delays, add_departure, store="delays", value_serde=serdes.json(Delays))
        .to_stream()
        # Joined here rather than per flight: the name is looked up once per row that is written.
        .left_join(airlines, summary)
    )
    totals.send_to("carrier-delays", value_serde=serdes.json(CarrierDelays))
    if folder := os.environ.get("FLIGHT_TABLES"):
        send_to_tables(totals, folder)
    return builder.build()


def send_to_tables(totals: KStream[str, CarrierDelays], folder: str) -> None:
    """Keep the last totals of each carrier in two tables: Iceberg's is where its catalogue says."""
    totals.send_to_table(
        IcebergTable(
            "flights.carrier_delays",
            row=CarrierDelays,
            mode="upsert",
            key_column="carrier",
            partition_by=["bucket(4, carrier)"],
        )
    )
    totals.send_to_table(
        DeltaTable(f"{folder}/carrier_delays", row=CarrierDelays, mode="upsert", key_column="carrier")
    )


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
