"""What a task's loop does about parked records: it stays for those that are due soon, and commits what became
of them.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, RetryPolicy, Topology, serdes
from airflow_kstreams.streams.ports import Clock
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("parked-records-end-no-run-late")


class Service:
    """Fails so many times for each value.

    :ivar failures: value -> how often it fails for it still.
    :ivar look: is told what is asked for.
    """

    def __init__(self, **failures: int) -> None:
        self.failures = defaultdict(int, failures)
        self.called: list[str] = []
        self.look: Callable[[str], None] = lambda value: None

    async def ask(self, value: str) -> str:
        self.called.append(value)
        self.look(value)
        self.failures[value] -= 1
        if self.failures[value] >= 0:
            raise ConnectionError
        return value


@dataclass
class WrongClock:
    """A machine's clock.

    :param ahead_ms: how far it is ahead of another one.
    :param set_by_ms: by how much it is set after two seconds.
    """

    right: Clock
    ahead_ms: int = 0
    set_by_ms: int = 0

    def now_ms(self) -> int:
        set_by_ms = self.set_by_ms if self.monotonic_seconds() > 2 else 0
        return self.right.now_ms() + self.ahead_ms + set_by_ms

    def monotonic_seconds(self) -> float:
        return self.right.monotonic_seconds()

    def sleep(self, seconds: float) -> None:
        self.right.sleep(seconds)


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


def calling(service: Service, *, counted: bool = False, max_in_flight: int = 64, **policy: Any) -> Topology:
    """Return a topology that sends what the service answers, or how many answers there were of each key."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    retry = RetryPolicy(**{"jitter": 0, **policy})
    stream = builder.stream("in").map_values_async(
        service.ask, order="key", retry=retry, name="ask", max_in_flight=max_in_flight
    )
    if counted:
        counts = stream.group_by_key().count(store="counts").to_stream()
        stream = counts.map(lambda key, count: (key, f"{key}{count}"))
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


@pytest.mark.parametrize("counted", [False, True], ids=["at once", "at commit points"])
def test_a_task_commits_meanwhile_when_it_stays_longer_than_its_transaction_may(
    kafka: InMemoryKafka, counted: bool
) -> None:
    arrive(kafka, "a1", "b1", "c1")
    service, seen = Service(a1=5, b1=2), list[tuple[str, list[bytes]]]()
    service.look = lambda value: seen.append((value, written(kafka)))
    topology = calling(service, counted=counted, backoff_ms=4_000, multiplier=1, attempts=9)
    settings = {"transaction_timeout_ms": 10_000, "commit_interval_ms": 1_000, "lease_ms": 60_000}
    application(kafka, topology, **settings).run("run-1")
    assert written(kafka) == [b"c1", b"b1", b"a1"]
    assert seen[-1] == ("a1", [b"c1", b"b1"])
    assert [values for value, values in seen if value == "a1"][1] == [b"c1"]


@pytest.mark.parametrize("counted", [False, True], ids=["at once", "at commit points"])
def test_a_task_commits_meanwhile_when_so_much_is_parked_that_it_chooses_no_more(
    kafka: InMemoryKafka, counted: bool
) -> None:
    arrive(kafka, "c1", "a1", "b1")
    service, seen = Service(a1=5), list[tuple[str, list[bytes]]]()
    service.look = lambda value: seen.append((value, written(kafka)))
    topology = calling(service, counted=counted, max_parked=1, backoff_ms=4_000, multiplier=1, attempts=9)
    settings = {"transaction_timeout_ms": 10_000, "commit_interval_ms": 1_000, "lease_ms": 60_000}
    application(kafka, topology, max_waiting_results=1, **settings).run("run-1")
    assert sorted(written(kafka)) == [b"a1", b"b1", b"c1"]
    assert [value for value, _ in seen].index("b1") == 7, "it is chosen when nothing is parked any more"
    assert seen[3] == ("a1", [b"c1"])


def test_a_task_leaves_when_its_budget_is_used_up(kafka: InMemoryKafka) -> None:
    arrive(kafka, "a1")
    service = Service(a1=1_000)
    topology = calling(service, attempts=1_000, backoff_ms=1_000, multiplier=1)
    began_ms = kafka.clock.now_ms()
    application(kafka, topology, retry_run_budget_ms=5_000).run("run-1")
    assert 4_000 <= kafka.clock.now_ms() - began_ms <= 5_000
    assert len(service.called) == 5


@pytest.mark.parametrize(("budget_ms", "run"), [(60_000, "run-2"), (10_000, "run-3")])
def test_a_parked_record_waits_for_its_back_off_only_when_it_was_parked_by_a_clock_far_ahead(
    kafka: InMemoryKafka, budget_ms: int, run: str
) -> None:
    arrive(kafka, "a1", "a2")
    service = Service(a1=1)
    right = application(
        kafka, calling(service, backoff_ms=20_000), retry_run_budget_ms=budget_ms, run_stall_timeout_ms=90_000
    )
    ahead = dataclasses.replace(right, clock=WrongClock(kafka.clock, 8 * 3_600_000))
    if budget_ms > 20_000:
        ahead = dataclasses.replace(ahead, settings={**right.settings, "retry.run.budget.ms": 1})
    ahead.run("run-1")
    assert written(kafka) == []
    for number in (2, 3):
        kafka.clock.sleep(20)
        right.run(f"run-{number}")
        if f"run-{number}" == run:
            break
    assert written(kafka) == [b"a1", b"a2"]


@pytest.mark.parametrize("set_by_ms", [-3_000, 3_600_000])
def test_a_task_stays_for_its_budget_when_its_clock_is_set_meanwhile(
    kafka: InMemoryKafka, set_by_ms: int
) -> None:
    arrive(kafka, "a1")
    service = Service(a1=1_000)
    topology = calling(service, attempts=1_000, backoff_ms=1_000, multiplier=1)
    app = application(kafka, topology, retry_run_budget_ms=5_500)
    began = kafka.clock.monotonic_seconds()
    dataclasses.replace(app, clock=WrongClock(kafka.clock, set_by_ms=set_by_ms)).run("run-1")
    assert 4.9 <= kafka.clock.monotonic_seconds() - began <= 6
    assert len(service.called) == 6


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


def test_a_task_without_budget_makes_as_many_calls_as_may_run_at_once(kafka: InMemoryKafka) -> None:
    arrive(kafka, *(f"{key}1" for key in "abcde"))
    service = Service(**{f"{key}1": 1_000 for key in "abcde"})
    application(kafka, calling(service), retry_run_budget_ms=0).run("run-1")
    kafka.clock.sleep(60)
    service.called.clear()
    two_at_once = calling(service, attempts=1_000, max_in_flight=2)
    application(kafka, two_at_once, retry_run_budget_ms=0).run("run-2")
    assert len({*service.called}) == len(service.called) == 2


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
