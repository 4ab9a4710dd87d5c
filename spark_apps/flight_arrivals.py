"""Every departure with the name of the airport that it goes to, asked of a slow service: ``departures`` in,
``arrivals`` out.

The service (``dev/airport_service.py``) announces each arrival at its airport: asking it has an effect, which
it takes once per idempotency key. While an airport is down, departures to it are parked, and what comes later
of their carrier behind them: airports hear of each carrier's flights in the order of their departures, over
as many runs as it takes. ``dags/flight_arrivals_hourly.py`` runs it.
"""

from __future__ import annotations

import os

import httpx
import msgspec

from airflow_kstreams.streams import CallContext, KStreamBuilder, RetryPolicy, Topology, serdes

#: Where the service is.
URL = os.environ.get("AIRPORT_SERVICE_URL", "http://127.0.0.1:8099")


class Departure(msgspec.Struct, frozen=True):
    """What this application reads of a flight. Its record has the scheduled departure as timestamp."""

    carrier: str
    flight: int
    origin: str
    dest: str


class Arrival(msgspec.Struct, frozen=True):
    """A departure with the name of its destination."""

    carrier: str
    flight: int
    origin: str
    dest: str
    airport: str


def service() -> httpx.AsyncClient:
    """Connect to the service; each task does so once."""
    return httpx.AsyncClient(base_url=URL, timeout=5, trust_env=False)


async def announced(departure: Departure, *, context: CallContext, resource: httpx.AsyncClient) -> Arrival:
    """Announce a flight at its destination, which answers with its name."""
    answer = await resource.post(
        f"/airports/{departure.dest}/arrivals",
        json=msgspec.to_builtins(departure),
        headers={"Idempotency-Key": context.idempotency_key},
    )
    answer.raise_for_status()
    return Arrival(
        departure.carrier, departure.flight, departure.origin, departure.dest, answer.json()["name"]
    )


def topology() -> Topology:
    """Build the topology; nothing runs here."""
    builder = KStreamBuilder(default_key_serde=serdes.string())
    (
        builder.stream("departures", value_serde=serdes.json(Departure))
        .select_key(lambda _origin, departure: departure.carrier)
        # All flights of a carrier in one partition: only there can an order be kept.
        .through("departures-by-carrier", value_serde=serdes.json(Departure))
        .map_values_async(
            announced,
            order="key",
            resource=service,
            retry=RetryPolicy(
                attempts=1_000, backoff_ms=200, backoff_max_ms=5_000, errors=(httpx.HTTPError,)
            ),
            name="arrivals",
        )
        .send_to("arrivals", value_serde=serdes.json(Arrival))
    )
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
