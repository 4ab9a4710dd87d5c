"""Two subtopologies that call: a service above a repartition topic, a processor that waits below a store.

Input: topic from KSTREAMS_TEST_IN, key text, value JSON {"n": number, "to": new key}. Output: topic from
KSTREAMS_TEST_OUT, running sum of n per new key. KSTREAMS_TEST_SERVICE is the service's address;
KSTREAMS_TEST_CALLS says how it is called (loop, threads), KSTREAMS_TEST_STORAGE where the sums are kept
(memory, rocksdb), KSTREAMS_TEST_REFUSED which n is refused, KSTREAMS_TEST_DEADLY which n ends the process, if
any.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx
import msgspec

from airflow_kstreams.streams import (
    AsyncProcessor,
    AsyncProcessorContext,
    CallContext,
    KStreamBuilder,
    ProcessorRecord,
    StoreSpec,
    Topology,
    serdes,
)


class Amount(msgspec.Struct):
    """One input record."""

    n: int
    to: str


def service() -> httpx.AsyncClient:
    """The service for coroutines: opened once in each task."""
    return httpx.AsyncClient(base_url=os.environ["KSTREAMS_TEST_SERVICE"], timeout=60)


def blocking_service() -> httpx.Client:
    """The service for threads."""
    return httpx.Client(base_url=os.environ["KSTREAMS_TEST_SERVICE"], timeout=60)


def _request(amount: Amount, context: CallContext) -> dict[str, Any]:
    if str(amount.n) == os.environ.get("KSTREAMS_TEST_REFUSED"):
        raise ValueError(f"no {amount.n}")
    if str(amount.n) == os.environ.get("KSTREAMS_TEST_DEADLY"):
        os._exit(9)
    headers = {"Idempotency-Key": context.idempotency_key, "X-Process": str(os.getpid())}
    return {"json": {"n": amount.n}, "headers": headers}


async def charge(amount: Amount, *, context: CallContext, resource: httpx.AsyncClient) -> Amount:
    """Charge an amount."""
    (await resource.post("/charges", **_request(amount, context))).raise_for_status()
    return amount


def charge_on_thread(amount: Amount, *, context: CallContext, resource: httpx.Client) -> Amount:
    """Charge an amount, and block meanwhile."""
    resource.post("/charges", **_request(amount, context)).raise_for_status()
    return amount


class Late(AsyncProcessor):
    """Passes a sum on after a while, the shorter the larger it is."""

    def init(self, context: AsyncProcessorContext) -> None:
        """Keep the context."""
        self._context = context

    async def process(self, record: ProcessorRecord) -> None:
        """Pass a sum on, from a thread half of the time."""
        await asyncio.sleep(0.02 / (1 + record.value % 7))
        if record.value % 2:
            await asyncio.to_thread(self._context.forward, record.key, record.value)
        else:
            self._context.forward(record.key, record.value)


def topology() -> Topology:
    """Charge, re-key through a repartition topic, sum by key, call below the sums."""
    builder = KStreamBuilder()
    amounts = builder.stream(
        os.environ["KSTREAMS_TEST_IN"], key_serde=serdes.string(), value_serde=serdes.json(Amount)
    )
    if os.environ["KSTREAMS_TEST_CALLS"] == "threads":
        charged = amounts.map_values_async(
            charge_on_thread, threads=True, resource=blocking_service, order="key", name="charge"
        )
    else:
        charged = amounts.map_values_async(
            charge, max_in_flight=16, resource=service, order="key", name="charge"
        )
    storage = os.environ.get("KSTREAMS_TEST_STORAGE", "memory")
    sums = StoreSpec(
        name="sums",
        key_serde=serdes.string(),
        value_serde=serdes.json(int),
        storage="rocksdb" if storage == "rocksdb" else "memory",
    )
    (
        charged.map(lambda _, amount: (amount.to, amount.n))
        .group_by_key(key_serde=serdes.string(), value_serde=serdes.json(int))
        .reduce(lambda total, n: total + n, store=sums)
        .to_stream()
        .process_async(Late, name="late")
        .send_to(os.environ["KSTREAMS_TEST_OUT"], key_serde=serdes.string(), value_serde=serdes.json(int))
    )
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
