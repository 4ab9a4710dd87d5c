from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_kstreams.pages.live_readings import LiveReading, LiveReadings
from airflow_kstreams.pages.page_connections import NotReadError, PageSource
from airflow_kstreams.streams.errors import KafkaClientError, TopologyError
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.testing import InMemoryKafka

_SOURCE = PageSource("kafka", None)


@pytest.fixture
def opened() -> list[PageSource]:
    return []


@pytest.fixture
def make(opened: list[PageSource]) -> Iterator[Callable[..., LiveReadings]]:
    made: list[LiveReadings] = []

    def readings(**how: Any) -> LiveReadings:
        def open_cluster(source: PageSource, look_ms: int) -> ClusterPort:
            opened.append(source)
            return InMemoryKafka()

        made.append(LiveReadings(**{"open_cluster": open_cluster, "allowed": lambda: True, **how}))
        return made[-1]

    yield readings
    for each in made:
        each.close()


def read(
    readings: LiveReadings, look: Callable[[ClusterPort], Any], what: object = "look"
) -> LiveReading[Any]:
    return asyncio.run(readings.read(_SOURCE, what, look))


def test_value_is_what_the_look_reads(make: Callable[..., LiveReadings]) -> None:
    found = read(make(), lambda cluster: cluster.admin().topic_names())

    assert (found.value, found.why_not) == (set(), None)


def test_kafka_is_not_opened_when_the_deployment_does_not_let_pages_read_it(
    make: Callable[..., LiveReadings], opened: list[PageSource]
) -> None:
    found = read(make(allowed=lambda: False), lambda cluster: 1)

    assert found.value is None
    assert "pages_read_kafka" in str(found.why_not)
    assert opened == []


def test_waiter_gets_a_reason_when_a_look_lasts_longer_than_the_bound(
    make: Callable[..., LiveReadings],
) -> None:
    ends = threading.Event()
    readings = make(bound_seconds=0.05)
    try:
        found = read(readings, lambda cluster: ends.wait())
        assert found.value is None
        assert "within 0.05 s" in str(found.why_not)
        # While it lasts, another look of the connection is not begun.
        behind = read(readings, lambda cluster: 1, "another")
        assert behind.value is None
    finally:
        ends.set()


def test_look_is_not_begun_when_nobody_waits_for_it_any_more(
    make: Callable[..., LiveReadings], opened: list[PageSource]
) -> None:
    ends = threading.Event()
    readings = make(bound_seconds=0.05)
    read(readings, lambda cluster: ends.wait())
    read(readings, lambda cluster: 1, "another")
    ends.set()
    readings.close()

    assert opened == [_SOURCE]


def test_one_look_at_a_time_is_made_by_a_connection(make: Callable[..., LiveReadings]) -> None:
    readings, running, most = make(), list[int](), list[int]()

    def look(cluster: ClusterPort) -> int:
        running.append(1)
        most.append(len(running))
        running.pop()
        return len(most)

    async def all_at_once() -> list[LiveReading[int]]:
        return await asyncio.gather(*(readings.read(_SOURCE, number, look) for number in range(20)))

    assert len(asyncio.run(all_at_once())) == 20
    assert most == [1] * 20


def test_waiters_share_a_look_when_they_ask_for_the_same(
    make: Callable[..., LiveReadings], opened: list[PageSource]
) -> None:
    readings = make()

    async def all_at_once() -> list[LiveReading[int]]:
        return await asyncio.gather(*(readings.read(_SOURCE, "same", lambda cluster: 7) for _ in range(20)))

    assert [each.value for each in asyncio.run(all_at_once())] == [7] * 20
    assert opened == [_SOURCE]


@pytest.mark.promise("pages-refuse-strangers")
def test_connections_of_two_teams_share_no_look(
    make: Callable[..., LiveReadings], opened: list[PageSource]
) -> None:
    readings, north, south = make(), PageSource("kafka", "north"), PageSource("kafka", "south")

    async def both() -> list[Any]:
        return [await readings.read(each, "same", lambda cluster: 1) for each in (north, south)]

    asyncio.run(both())
    assert opened == [north, south]


@pytest.mark.promise("pages-show-no-values")
def test_reason_has_no_address_when_kafka_does_not_answer(make: Callable[..., LiveReadings]) -> None:
    def look(cluster: ClusterPort) -> None:
        raise KafkaClientError("broker at secret-host:9092 is away", fix="start it", kafka_code="_TRANSPORT")

    found = read(make(), look)

    assert found.value is None
    assert "_TRANSPORT" in str(found.why_not)
    assert "secret-host" not in str(found.why_not)


@pytest.mark.promise("pages-show-no-values")
def test_reason_names_the_error_alone_when_what_kafka_has_cannot_be_read(
    make: Callable[..., LiveReadings],
) -> None:
    def look(cluster: ClusterPort) -> None:
        raise TopologyError("secret words", fix="mend it")

    found = read(make(), look)

    assert found.value is None
    assert "TopologyError" in str(found.why_not)
    assert "secret" not in str(found.why_not)


def test_reason_is_that_of_the_connection_when_it_cannot_be_used(make: Callable[..., LiveReadings]) -> None:
    def refuse(source: PageSource, look_ms: int) -> ClusterPort:
        raise NotReadError("it is no connection")

    assert read(make(open_cluster=refuse), lambda cluster: 1).why_not == "it is no connection"
