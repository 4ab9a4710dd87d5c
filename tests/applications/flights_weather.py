"""Every flight with the weather at its origin in the hour of its scheduled departure, if there was any."""

from __future__ import annotations

import os
from typing import Any

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, Topology, serdes

HOUR_MS = 3_600_000
#: Longer than the weather of the test ever lags behind the flights.
GRACE_MS = 72 * HOUR_MS


def beside(flight: dict[str, Any], weather: dict[str, Any] | None) -> list[Any]:
    """Return what tells one joined flight from another."""
    names = ("carrier", "flight", "time_hour", "sched_dep_time", "dest", "dep_delay")
    seen = ("time_hour", "precip", "visib", "wind_gust")
    return [*(flight[name] for name in names), *(weather[name] if weather else None for name in seen)]


def flights_with_weather(flights: str, weather: str, joined: str) -> Topology:
    """Join two topics into a third."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    departures = builder.stream(flights).with_window(SlidingWindow(size_ms=0, grace_ms=GRACE_MS))
    observations = builder.stream(weather).with_window(SlidingWindow(size_ms=HOUR_MS - 1, grace_ms=GRACE_MS))
    departures.left_join(observations, beside, name="weather").send_to(joined)
    return builder.build()


def topology() -> Topology:
    """Join the topics that the environment names."""
    return flights_with_weather(
        os.environ["KSTREAMS_TEST_FLIGHTS"],
        os.environ["KSTREAMS_TEST_WEATHER"],
        os.environ["KSTREAMS_TEST_JOINED"],
    )


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
