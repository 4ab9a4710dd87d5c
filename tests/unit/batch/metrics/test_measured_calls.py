"""Tasks with calls on the in-memory Kafka. The calls' clock is virtual: it moves only where all wait."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.metrics import node_figures, thread_figures
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.report.counts import finished_text
from airflow_kstreams.streams import KStreamBuilder, RetryPolicy, serdes
from airflow_kstreams.streams.calls.call import AsyncNode
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.testing import InMemoryKafka, ManualClock, seeded_caller
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("calls-are-measured")

#: What follows the name of the node of these tests.
_PURPOSE = r" \(map values async at test_measured_calls\.py:\d+\)"

CALL_SECONDS = 0.01


@pytest.fixture(autouse=True)
def _plain_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is held up, and the task takes each as soon as it has ended."""
    monkeypatch.setattr(seeded_caller, "_HELD_UP", 0.0)
    monkeypatch.setattr(seeded_caller, "_ALL_OF_THEM", 0.0)


def make_caller(async_nodes: Sequence[AsyncNode]) -> SeededCaller:
    return SeededCaller(async_nodes, seed=1)


@dataclass
class Service:
    """Takes 10 ms for each value; those that are down fail, and those that hang never answer."""

    down: set[str] = field(default_factory=set)
    hang: set[str] = field(default_factory=set)

    async def __call__(self, value: str) -> str:
        await asyncio.sleep(3_600 if value in self.hang else CALL_SECONDS)
        if value in self.down:
            raise OSError(value)
        return value


def application(
    function: Callable[..., Any], settings: dict[str, Any] | None = None, **call: Any
) -> Application:
    """An application that calls for each record of ``in``, on a Kafka of its own."""
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_000_000))
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").map_values_async(function, name="ask", **call).send_to("out")
    return Application(
        on=kafka,
        clock=kafka.clock,
        application_id="app",
        topology=builder.build(),
        settings={"autostop.at": "eol", **(settings or {})},
        make_caller=make_caller,
    )


def send(app: Application, *values: str) -> None:
    assert isinstance(app.on, InMemoryKafka)
    for value in values:
        app.on.append("in", value.encode(), value.encode())


def ran(app: Application, run_id: str = "r") -> TaskReport:
    (report,) = app.tasks(app.begin(run_id))
    return report


def asked(report: TaskReport) -> dict[str, float | None]:
    ((node, found),) = node_figures([report]).items()
    assert node == "ask"
    return found


def test_figures_are_exact_when_two_of_four_calls_may_run_at_once() -> None:
    app = application(Service(), max_in_flight=2)
    send(app, *"abcd")
    report = ran(app)

    assert asked(report) == {
        "call-total": 4,
        "call-rate": pytest.approx(200),
        "call-latency-avg": pytest.approx(10),
        "call-latency-p50": pytest.approx(10, rel=0.05),
        "call-latency-p99": pytest.approx(10, rel=0.05),
        "call-latency-max": pytest.approx(10),
        "call-failed-total": 0,
        "call-timeout-total": 0,
        "call-retry-total": 0,
        "calls-in-flight-avg": pytest.approx(2),
        "calls-in-flight-max": 2,
        # Two waited for 10 of 20 ms.
        "calls-queued-avg": pytest.approx(1),
        "records-parked": 0,
    }
    # Four are under way for 10 ms, two for 10 more.
    found = thread_figures([report])
    assert found["records-waiting-avg"] == pytest.approx(3)
    assert found["records-waiting-max"] == 4
    assert (found["thread-running"], found["thread-idle"]) == (0, 0), "the task's own thread runs them"
    assert (found["thread-busy-ratio"], found["event-loop-busy-ratio"]) == (None, None)


def test_records_wait_for_a_slow_one_before_them_when_order_is_kept() -> None:
    async def slow_first(value: str) -> str:
        await asyncio.sleep(10 * CALL_SECONDS if value == "a" else CALL_SECONDS)
        return value

    app = application(slow_first, max_in_flight=8)
    send(app, *"abcde")
    report = ran(app)
    found = asked(report)
    # One call of 100 ms, and four of 10 ms, in 100 ms.
    assert found["calls-in-flight-avg"] == pytest.approx(1.4)
    assert (found["calls-in-flight-max"], found["calls-queued-avg"]) == (5, 0)
    assert thread_figures([report])["records-waiting-avg"] == pytest.approx(5)


def test_calls_that_fail_and_time_out_are_counted() -> None:
    service = Service(down={"b"}, hang={"c"})
    app = application(service, {"processing.exception.handler": "skip"}, timeout_ms=50)
    send(app, *"abcd")
    found = asked(ran(app))
    assert (found["call-total"], found["call-failed-total"], found["call-timeout-total"]) == (4, 2, 1)
    assert found["call-latency-max"] == pytest.approx(50)


@pytest.mark.parametrize("order", ["key", "unordered"])
def test_calls_of_parked_records_count_as_retries_when_the_next_run_makes_them(order: str) -> None:
    service = Service(down={"b"})
    retry = RetryPolicy(backoff_ms=1_000, jitter=0)
    app = application(service, {"retry.run.budget.ms": 0}, order=order, retry=retry)
    send(app, *"abc")
    report = ran(app, "one")
    found = asked(report)
    assert (found["call-total"], found["call-failed-total"], found["call-retry-total"]) == (3, 1, 0)
    assert found["records-parked"] == 1
    app.finish("one")

    service.down.clear()
    assert app.clock is not None
    app.clock.sleep(2)
    found = asked(ran(app, "two"))
    assert (found["call-total"], found["call-retry-total"], found["records-parked"]) == (1, 1, 0)


def test_call_of_a_record_that_was_parked_behind_another_counts_as_no_retry() -> None:
    service = Service(down={"b"})
    app = application(
        service, {"retry.run.budget.ms": 0}, order="key", retry=RetryPolicy(backoff_ms=1_000, jitter=0)
    )
    send(app, *"bb")
    assert asked(ran(app, "one"))["records-parked"] == 2
    app.finish("one")
    service.down.clear()
    assert app.clock is not None
    app.clock.sleep(2)
    found = asked(ran(app, "two"))
    # Without a budget the task calls what is due when it gets there, and leaves the rest.
    assert (found["call-total"], found["call-retry-total"], found["records-parked"]) == (1, 1, 1)
    app.finish("two")
    found = asked(ran(app, "three"))
    assert (found["call-total"], found["call-retry-total"], found["records-parked"]) == (1, 0, 0)


def test_calls_repeated_in_place_count_as_retries() -> None:
    class FirstFails(Service):
        async def __call__(self, value: str) -> str:
            try:
                return await super().__call__(value)
            finally:
                self.down.discard(value)

    app = application(FirstFails(down={"b"}), retry=RetryPolicy(backoff_ms=1_000, jitter=0))
    send(app, *"abc")
    found = asked(ran(app))
    assert (found["call-total"], found["call-failed-total"], found["call-retry-total"]) == (4, 1, 1)


@dataclass
class FailingCommit:
    """Fails one commit of the tasks."""

    fails: int
    commits: int = 0

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "writer.commit":
            self.commits += 1
            if self.commits == self.fails:
                raise KafkaClientError("no answer", fix="", kafka_code="_TIMED_OUT", retriable_code=True)
        return effect()


def test_nodes_are_told_apart_in_the_order_of_the_topology() -> None:
    async def twice_as_long(value: str) -> str:
        await asyncio.sleep(2 * CALL_SECONDS)
        return value

    app = application(Service())
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    above = builder.stream("in").map_values_async(Service(), name="above")
    above.map_values_async(twice_as_long, name="below").send_to("out")
    app.topology = builder.build()
    send(app, *"ab")
    found = node_figures([ran(app)])
    assert {node: of_node["call-latency-max"] for node, of_node in found.items()} == {
        "above": pytest.approx(10),
        "below": pytest.approx(20),
    }
    assert list(found) == ["above", "below"]


def test_attempts_add_up_as_far_as_they_were_committed() -> None:
    app = application(Service(), {"commit.every.records": 2}, max_in_flight=2, order="key")
    send(app, *"abcd")
    slice_ = app.begin("r")
    app.interceptor = FailingCommit(fails=2)
    (report,) = app.tasks(slice_)

    assert report.attempts == 2
    found = asked(report)
    # The first commit holds two calls; the attempt that follows makes the other two again.
    assert found["call-total"] == 4
    assert found["calls-in-flight-avg"] == pytest.approx(2)
    assert thread_figures([report])["thread-running"] == 0


def test_run_says_it_when_it_is_finished_and_status_while_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = application(Service(down={"b"}), {"processing.exception.handler": "skip"}, max_in_flight=2)
    send(app, *"abcd")
    with caplog.at_level("INFO", logger="airflow_kstreams.batch.task"):
        ran(app)
    of_node = (
        "node ask: call-total 4, call-rate 200/s, call-latency p50 10.0 ms, p99 10.0 ms, max 10.0 ms, "
        "calls-in-flight avg 2.0, max 2, calls-queued avg 1.0, call-failed-total 1"
    )
    of_threads = "records-waiting avg 3.0, max 4"
    (line,) = [message for message in caplog.messages if message.startswith("task 0_0 done")]
    assert re.sub(_PURPOSE, "", line).endswith(f"; {of_node}; {of_threads}")

    assert app.on is not None
    (seen,) = read_status(app.on, "app", clock=app.clock).tasks
    assert asked(seen)["call-total"] == 4
    summary = app.finish("r")
    lines = finished_text(summary).splitlines()
    (said,) = [line for line in lines if line.startswith("  subtopology 0, node ask (")]
    assert re.sub(_PURPOSE, "", said) == (f"  subtopology 0, {of_node}")
    assert f"  subtopology 0, {of_threads}" in lines
    assert [task.metrics is not None and task.metrics.calls is not None for task in summary.tasks] == [True]


def test_nothing_is_measured_or_shown_when_no_node_makes_calls() -> None:
    app = application(Service())
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").map_values(str.upper).send_to("out")
    app.topology = builder.build()
    send(app, "a")
    report = ran(app)
    assert report.metrics is not None
    assert report.metrics.calls is None
    assert node_figures([report]) == {}
    assert set(thread_figures([report]).values()) == {None}
    assert "call" not in finished_text(app.finish("r"))
