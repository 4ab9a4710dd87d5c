"""Hourly windows over real flights are published by the run of their hour, with nothing that comes later; and
one run a day, one an hour and a backfill publish the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from dev.flight_demo.data import Stretch, TimedRecord, records
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("windows-close-in-their-run")

HOUR_MS = 3_600_000
#: A result: carrier and start of its hour, flights in it, time of the last of them.
Result = tuple[str, int, int]


@cache
def flights() -> tuple[TimedRecord, ...]:
    found = [r for r in records(Stretch(first_day=0, end_day=2)) if r.topic == "flights"]
    return tuple(sorted(found, key=lambda record: record.timestamp_ms))


def first_hour_ms() -> int:
    return flights()[0].timestamp_ms // HOUR_MS * HOUR_MS


def end_ms() -> int:
    return (flights()[-1].timestamp_ms // HOUR_MS + 1) * HOUR_MS


def expected(until_ms: int) -> dict[str, Result]:
    """Count flights by carrier and hour, of hours that are over."""
    over = [flight for flight in flights() if flight.timestamp_ms < until_ms // HOUR_MS * HOUR_MS]
    hours = [(json.loads(f.value)["carrier"], f.timestamp_ms // HOUR_MS * HOUR_MS) for f in over]
    last = dict(zip(hours, (flight.timestamp_ms for flight in over), strict=True))
    counts = Counter(hours)
    return {
        f"{carrier}@{start}": (carrier, count, last[carrier, start])
        for (carrier, start), count in counts.items()
    }


def topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    carriers = builder.stream("flights").group_by(
        lambda airport, flight: flight["carrier"], name="by-carrier"
    )
    counts = carriers.windowed_by(TumblingWindow(size_ms=HOUR_MS, grace_ms=0)).count(store="hourly")
    named = (
        counts.suppress().to_stream().map(lambda window, count: (f"{window.key}@{window.start_ms}", count))
    )
    named.send_to("hourly-flights", value_serde=serdes.int64())
    return builder.build()


class Runs:
    """Runs of the application over all flights, which are there from the start."""

    def __init__(self, autostop_at: str) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=end_ms() + 24 * HOUR_MS))
        self.kafka.create_topic("flights", partitions=3)
        self.kafka.create_topic("hourly-flights")
        airports = sorted({flight.key for flight in flights()})
        for flight in flights():
            partition = airports.index(flight.key)
            self.kafka.append(
                "flights", flight.value, flight.key, partition=partition, timestamp_ms=flight.timestamp_ms
            )
        self._application = Application(
            application_id="app",
            topology=topology(),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"autostop.at": autostop_at},
        )

    def every(self, hours: int) -> Iterator[int]:
        """Run for each interval of so many hours; yields the end of each."""
        for start_ms in range(first_hour_ms(), end_ms(), hours * HOUR_MS):
            stop_ms = start_ms + hours * HOUR_MS
            self._application.run(f"run-{start_ms}", interval_ms=(start_ms, stop_ms))
            yield stop_ms

    def results(self) -> dict[str, Result]:
        """Return what was published, once each."""
        found: dict[str, Result] = {}
        for record in self.kafka.records("hourly-flights"):
            name = (record.key() or b"").decode()
            assert name not in found, "a window is published once"
            count = serdes.int64().deserialize(record.value() or b"")
            found[name] = (name.partition("@")[0], count, record.timestamp()[1])
        return found


@pytest.mark.parametrize(
    ("autostop_at", "hours"),
    [("interval_end", 1), ("interval_end", 24), ("interval", 1)],
    ids=["hourly", "daily", "backfill"],
)
def test_windows_are_published_by_the_run_that_ends_past_them(autostop_at: str, hours: int) -> None:
    runs = Runs(autostop_at)
    for stop_ms in runs.every(hours):
        assert runs.results() == expected(stop_ms)
    assert sum(count for _, count, _ in runs.results().values()) == len(flights())
