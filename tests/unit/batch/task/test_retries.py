"""What a task's loop does about parked records: it stays for those that are due soon, and commits what became
of them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, RetryPolicy, Topology, serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application


class Service:
    """Fails so many times for each value.

    :ivar failures: value -> how often it fails for it still.
    """

    def __init__(self, **failures: int) -> None:
        self.failures = defaultdict(int, failures)
        self.called: list[str] = []

    async def ask(self, value: str) -> str:
        self.called.append(value)
        self.failures[value] -= 1
        if self.failures[value] >= 0:
            raise ConnectionError
        return value


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    return kafka


def arrive(kafka: InMemoryKafka, *values: str) -> None:
    for value in values:
        kafka.append("in", value.encode(), value[:1].encode(), timestamp_ms=1)


def written(kafka: InMemoryKafka) -> list[bytes]:
    return [value or b"" for value in kafka.values("out")]


def calling(service: Service, **policy: Any) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    retry = RetryPolicy(**{"jitter": 0, **policy})
    stream = builder.stream("in").map_values_async(service.ask, order="key", retry=retry, name="ask")
    stream.send_to("out")
    return builder.build()


def application(kafka: InMemoryKafka, topology: Topology, **settings: Any) -> Application:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Application(application_id="app", topology=topology, on=kafka, clock=kafka.clock, settings=named)


def test_a_task_stays_when_parked_records_are_due_within_the_budget(kafka: InMemoryKafka) -> None:
    arrive(kafka, "a1", "b1", "a2")
    service = Service(a1=3)
    application(kafka, calling(service)).run("run-1")
    assert service.called.count("a1") == 4
    assert [value for value in written(kafka) if value[:1] == b"a"] == [b"a1", b"a2"]
    assert sorted(written(kafka)) == [b"a1", b"a2", b"b1"]


def test_a_task_leaves_when_nothing_is_due_within_the_budget(kafka: InMemoryKafka) -> None:
    arrive(kafka, "a1", "b1", "a2")
    service = Service(a1=1)
    topology = calling(service, backoff_ms=40_000)
    began_ms = kafka.clock.now_ms()
    application(kafka, topology).run("run-1")
    assert kafka.clock.now_ms() - began_ms < 30_000
    assert written(kafka) == [b"b1"]
    assert len(kafka.records("app-ask-retry")) == 2
    arrive(kafka, "a3", "b2")
    kafka.clock.sleep(40)
    application(kafka, topology).run("run-2")
    assert [value for value in written(kafka) if value[:1] == b"a"] == [b"a1", b"a2", b"a3"]
    assert [value for value in service.called if value[0] == "a"] == ["a1", "a1", "a2", "a3"]


def test_a_task_leaves_when_its_budget_is_used_up(kafka: InMemoryKafka) -> None:
    arrive(kafka, "a1")
    service = Service(a1=1_000)
    topology = calling(service, attempts=1_000, backoff_ms=1_000, multiplier=1)
    began_ms = kafka.clock.now_ms()
    application(kafka, topology, retry_run_budget_ms=5_000).run("run-1")
    assert 4_000 <= kafka.clock.now_ms() - began_ms <= 5_000
    assert len(service.called) == 5


def test_a_run_has_a_dead_letter_topic_when_records_may_be_given_up(kafka: InMemoryKafka) -> None:
    arrive(kafka, "a1", "a2")
    application(kafka, calling(Service(a1=9), attempts=3, backoff_ms=100)).run("run-1")
    (letter,) = kafka.records("app-dead-letter")
    assert (letter.key(), letter.value()) == (b"a", b"a1")
    assert written(kafka) == [b"a2"]


def test_a_task_without_budget_calls_once_what_is_due_when_it_gets_there(kafka: InMemoryKafka) -> None:
    arrive(kafka, "a1", "b1")
    service = Service(a1=1_000, b1=1_000)
    application(kafka, calling(service), retry_run_budget_ms=0).run("run-1")
    kafka.clock.sleep(60)
    service.called.clear()
    due_again_at_once = calling(service, attempts=1_000, backoff_ms=0, backoff_max_ms=0)
    application(kafka, due_again_at_once, retry_run_budget_ms=0).run("run-2")
    assert sorted(service.called) == ["a1", "b1"]


def test_no_more_is_fetched_when_so_much_is_parked_as_may_be(kafka: InMemoryKafka) -> None:
    arrive(kafka, *(f"{key}{at}" for at in range(300) for key in "abc"))
    service = Service(a0=2, b0=2)
    topology = calling(service, max_parked=1, backoff_ms=2_000)
    application(kafka, topology, max_waiting_results=1).run("run-1")
    values = written(kafka)
    assert len(values) == len({*values}) == 900
    for key in (b"a", b"b", b"c"):
        assert [value for value in values if value[:1] == key] == [key + b"%d" % at for at in range(300)]


def test_a_continuous_run_commits_what_became_of_parked_records(kafka: InMemoryKafka) -> None:
    app = SwitchingApplication(
        topology=calling(Service(a1=1), backoff_ms=3_000),
        cluster=kafka,
        clock=kafka.clock,
        settings={"commit.interval.ms": 1},
    )
    running = app.run_continuously("continuous-1")
    arrive(kafka, "a1", "a2")
    for _ in range(500):
        running.rounds()
        if written(kafka):
            break
    running.rounds(50)
    assert written(kafka) == [b"a1", b"a2"], "what was parked waits for a record to be committed with"
    running.stop()
