from __future__ import annotations

import asyncio
import inspect
import socketserver
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, RecordError, Topology, serdes
from airflow_kstreams.testing import TopologyTestDriver, seeded_caller

RECORDS = [("k", number, number) for number in range(12)]


class Asked:
    """A function that notes in which order its calls end."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.ended: list[int] = []
        self._seconds = seconds

    async def __call__(self, value: int) -> int:
        await asyncio.sleep(self._seconds)
        self.ended.append(value)
        return value


def topology(function: Any, **options: Any) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").map_values_async(function, **options).send_to("out")
    return builder.build()


def order_of(seed: int) -> tuple[int, ...]:
    asked = Asked()
    with TopologyTestDriver(topology(asked), application_id="app", async_seed=seed) as driver:
        driver.pipe_records("in", RECORDS)
        assert [record.value for record in driver.read_output("out")] == [value for _, value, _ in RECORDS]
    return tuple(asked.ended)


def test_seed_draws_the_order_in_which_calls_end() -> None:
    orders = {seed: order_of(seed) for seed in range(8)}
    assert all(order_of(seed) == order for seed, order in orders.items())
    assert len({*orders.values()}) == len(orders)


def test_driver_runs_calls_when_it_stands_inside_a_running_event_loop() -> None:
    async def inside() -> list[Any]:
        asked = Asked(seconds=1.0)
        with TopologyTestDriver(topology(asked), application_id="app") as driver:
            driver.pipe_records("in", RECORDS)
            await asyncio.sleep(0)
            return [record.value for record in driver.read_output("out")]

    assert asyncio.run(inside()) == [value for _, value, _ in RECORDS]


def test_error_of_the_record_is_shown_when_closing_a_resource_fails() -> None:
    @asynccontextmanager
    async def failing() -> AsyncIterator[None]:
        try:
            yield
        finally:
            raise OSError("reset at close")

    async def fails(value: int) -> int:
        raise ValueError("the record's own")

    with (
        pytest.raises(RecordError, match="the record's own"),
        TopologyTestDriver(topology(fails, resource=failing), application_id="app") as driver,
    ):
        driver.pipe_records("in", RECORDS)


def test_sleep_inside_a_coroutine_takes_no_time() -> None:
    began = time.monotonic()
    asked = Asked(seconds=3_000.0)
    with TopologyTestDriver(
        topology(asked, timeout_ms=890_000_000),
        application_id="app",
        settings={"run.stall.timeout.ms": 900_000_000},
    ) as driver:
        driver.pipe_records("in", RECORDS)
        assert len(driver.read_output("out")) == len(RECORDS)
    assert time.monotonic() - began < 3_000.0


def test_call_times_out_in_virtual_time_when_it_sleeps_too_long() -> None:
    driver = TopologyTestDriver(topology(Asked(seconds=31.0)), application_id="app")
    with (
        driver,
        pytest.raises(RecordError, match="CallTimeoutError: the call took longer than timeout_ms=30000"),
    ):
        driver.pipe_records("in", RECORDS)


@pytest.mark.parametrize("seed", range(5))
def test_each_call_has_its_own_time_when_another_one_began_before(seed: int) -> None:
    async def ask(value: int) -> int:
        await asyncio.sleep(60 if value == 0 else 0.6)
        return value

    made = topology(ask, max_in_flight=2, timeout_ms=1_000)
    settings = {"processing.exception.handler": "skip"}
    with TopologyTestDriver(made, application_id="app", settings=settings, async_seed=seed) as driver:
        driver.pipe_records("in", RECORDS)
        assert [record.value for record in driver.read_output("out")] == [*range(1, len(RECORDS))]


def test_piped_record_is_released_before_the_next_when_each_is_a_slice_of_its_own() -> None:
    asked = Asked(seconds=1.0)
    with TopologyTestDriver(topology(asked), application_id="app", async_seed=3) as driver:
        for key, value, timestamp_ms in RECORDS:
            driver.pipe_input("in", key=key, value=value, timestamp_ms=timestamp_ms)
            assert [record.value for record in driver.read_output("out")] == [value]
    assert asked.ended == [value for _, value, _ in RECORDS]


def test_coroutine_waits_for_what_comes_from_outside() -> None:
    async def ask(value: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%d\n" % value)
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return int(answer)

    class Doubling(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"%d\n" % (2 * int(self.rfile.readline())))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Doubling) as server:
        port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with TopologyTestDriver(topology(ask), application_id="app") as driver:
            driver.pipe_records("in", RECORDS)
            assert [record.value for record in driver.read_output("out")] == [
                2 * value for _, value, _ in RECORDS
            ]
        server.shutdown()
        thread.join()


def test_coroutine_waits_for_its_threads_and_the_clock_stands_meanwhile() -> None:
    def slow(value: int) -> int:
        time.sleep(0.05 if value % 2 else 0)
        return 2 * value

    async def ask(value: int) -> list[Any]:
        began = asyncio.get_running_loop().time()
        host = await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        answer = await asyncio.to_thread(slow, value)
        return [answer, bool(host), asyncio.get_running_loop().time() - began]

    def driven() -> list[Any]:
        with TopologyTestDriver(topology(ask, timeout_ms=1), application_id="app", async_seed=5) as driver:
            driver.pipe_records("in", RECORDS)
            return [record.value for record in driver.read_output("out")]

    assert [found[:2] for found in driven()] == [[2 * value, True] for _, value, _ in RECORDS]
    assert {found[2] for found in driven()} == {0}


def test_order_in_which_calls_end_is_the_seeds_when_they_wait_for_threads() -> None:
    def ended(*slow: int) -> list[int]:
        order: list[int] = []

        async def ask(value: int) -> int:
            await asyncio.to_thread(time.sleep, 0.01 if value in slow else 0)
            order.append(value)
            return value

        with TopologyTestDriver(topology(ask), application_id="app", async_seed=5) as driver:
            driver.pipe_records("in", RECORDS)
        return order

    assert ended(1, 2, 5) == ended(0, 3, 7) != sorted(ended())


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
def test_error_on_a_thread_is_that_of_its_call(error: type[BaseException]) -> None:
    def fails() -> None:
        raise error("on the thread")

    async def ask(value: int) -> int:
        if value == 3:
            await asyncio.to_thread(fails)
        return value

    with (
        TopologyTestDriver(topology(ask), application_id="app") as driver,
        pytest.raises(RecordError, match="in-0@3"),
    ):
        driver.pipe_records("in", RECORDS)


def test_thread_that_hangs_holds_up_no_other_when_its_call_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seeded_caller, "_THREAD_SECONDS", 0.01)
    held = threading.Event()

    async def ask(value: int) -> int:
        await asyncio.to_thread(held.wait if value == 3 else int)
        return value

    try:
        with TopologyTestDriver(
            topology(ask, timeout_ms=200),
            application_id="app",
            settings={"processing.exception.handler": "skip"},
        ) as driver:
            driver.pipe_records("in", RECORDS)
            assert [record.value for record in driver.read_output("out")] == [
                value for _, value, _ in RECORDS if value != 3
            ]
    finally:
        held.set()


async def never_rests(value: int) -> int:
    while value == 3:
        await asyncio.sleep(0)
    return value


async def stops_the_loop(value: int) -> int:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.001)
    return value


async def has_a_task_that_exits(value: int) -> int:
    async def exits() -> None:
        sys.exit(3)

    if value == 3:
        await asyncio.create_task(exits())
    return value


def cancels_itself(value: int) -> int:
    if value == 3:
        raise asyncio.CancelledError
    return value


def runs_a_loop(value: int) -> int:
    return asyncio.run(same(value))


async def same(value: int) -> int:
    return value


def forgets_to_await(value: int) -> Any:
    return same(value) if value == 3 else value


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (never_rests, "CallTimeoutError"),
        (stops_the_loop, None),
        (has_a_task_that_exits, "CallEndedError"),
        (cancels_itself, "CallEndedError"),
        (runs_a_loop, None),
        (forgets_to_await, "returned a coroutine"),
    ],
)
def test_call_has_the_outcome_that_a_run_gives_it(
    function: Any, found: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    made = topology(function, threads=not inspect.iscoroutinefunction(function))
    settings = {"processing.exception.handler": "skip"}
    with TopologyTestDriver(made, application_id="app", settings=settings) as driver:
        driver.pipe_records("in", RECORDS)
        assert [record.value for record in driver.read_output("out")] == [
            value for _, value, _ in RECORDS if found is None or value != 3
        ]
    assert found is None or found in caplog.text
