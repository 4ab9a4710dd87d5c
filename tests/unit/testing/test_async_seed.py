from __future__ import annotations

import asyncio
import socketserver
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, RecordError, Topology, serdes
from airflow_kstreams.testing import TopologyTestDriver

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
