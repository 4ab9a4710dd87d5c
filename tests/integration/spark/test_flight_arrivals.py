"""Real flights announced at a slow service; two airports recover in a later run, and one run is killed.

The judge knows the data set and the service's own list: nothing of streams, runs or parked records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.kafka.cluster import KafkaCluster
from dev.airport_service import AirportService, airport_names
from dev.flight_demo.data import Stretch, TimedRecord, records
from tests.conftest import Row
from tests.support.spark.driver_process import ROOT, DriverProcess, driver

APPLICATION = ROOT / "spark_apps" / "flight_arrivals.py"
DOWN = {"IAH", "CLT"}
Flight = tuple[str, int, str, str]


@pytest.fixture
def drivers() -> Iterator[list[DriverProcess]]:
    started: list[DriverProcess] = []
    yield started
    for each in started:
        each.stop()


@pytest.fixture(scope="module")
def departures() -> list[TimedRecord]:
    """A day's flights, in the order of their scheduled departures."""
    return [record for record in records(Stretch(first_day=0, end_day=1)) if record.topic == "flights"]


def by_carrier(flights: Iterable[dict[str, object]]) -> dict[str, list[Flight]]:
    """The flights of each carrier in the order given."""
    found: dict[str, list[Flight]] = defaultdict(list)
    for each in flights:
        flight = msgspec.convert([each[n] for n in ("carrier", "flight", "origin", "dest")], Flight)
        found[flight[0]].append(flight)
    return dict(found)


@pytest.mark.prove  # dev/test has the calls in simulated runs, and one of the examples on Spark
def test_each_flight_is_announced_once_and_in_order_when_airports_recover_in_a_later_run(
    kafka: str,
    application_id: str,
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
    wait_until: Callable[..., object],
    drivers: list[DriverProcess],
    departures: list[TimedRecord],
    tmp_path: Path,
) -> None:
    create_topic("departures")
    create_topic("departures-by-carrier", 2)
    create_topic("arrivals", 2)
    expected = by_carrier(msgspec.json.decode(each.value) for each in departures)
    rows = [Row(key=each.key, value=each.value, timestamp_ms=each.timestamp_ms) for each in departures]
    cluster = KafkaCluster({"bootstrap.servers": kafka})

    def start(run_id: str, service: AirportService, **settings: str) -> DriverProcess:
        settings = {"processing_guarantee": "exactly_once", "commit_interval_ms": "200", **settings}
        process = driver(
            APPLICATION,
            tmp_path,
            bootstrap=kafka,
            application_id=application_id,
            run_id=run_id,
            client={},
            **settings,
        )
        process.environment["AIRPORT_SERVICE_URL"] = service.url
        drivers.append(process.start())
        return process

    produce("departures", rows)
    with AirportService(delay_ms=10, down=DOWN) as service:
        killed = start("run-1", service, lease_ms="3000", retry_run_budget_ms="1000")

        def half_way() -> bool:
            killed.check_alive()
            return service.requests > 150

        wait_until(half_way, "150 requests", seconds=120)
        killed.stop()
        again = start("run-1", service, lease_ms="3000", retry_run_budget_ms="1000")
        assert again.wait() == 0, again.output()[-6000:]

        heard = by_carrier(service.announced)
        assert 0 < sum(map(len, heard.values())) < len(departures)
        for carrier, flights in heard.items():
            assert flights == expected[carrier][: len(flights)], "up to the first that was not announced"
        first = read_ledger(cluster, application_id).last()
        assert first is not None
        others = len(departures) - sum(map(len, heard.values()))
        assert first.parked == {"arrivals": others}
        assert first.state == f"completed_with_parked({others})"

        service.set_down(())
        last = start("run-2", service, retry_run_budget_ms="60000")
        assert last.wait() == 0, last.output()[-6000:]

        second = read_ledger(cluster, application_id).last()
        assert second is not None
        assert not second.parked
        assert by_carrier(service.announced) == expected
        assert service.requests > len(departures)

    arrivals = [row.json() for row in consume_all("arrivals")]
    assert by_carrier(arrivals) == expected
    names = airport_names()
    assert all(each["airport"] == names.get(each["dest"], each["dest"]) for each in arrivals)
