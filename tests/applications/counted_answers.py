"""One task that counts, asks a paying service, which may be away, and folds what it was asked: a retry topic
between two stores.

Input: topic from KSTREAMS_TEST_IN, key text, value JSON. Output: topic from KSTREAMS_TEST_OUT, for each
record the counts that the service was asked for of its key so far, in order. KSTREAMS_TEST_SERVICE is the
service's address, KSTREAMS_TEST_STORAGE says where the counts are kept (memory, rocksdb).
"""

from __future__ import annotations

import os
from typing import Any

import httpx

from airflow_kstreams.streams import CallContext, KStreamBuilder, RetryPolicy, StoreSpec, Topology, serdes

_AWAY = 503


def service() -> httpx.AsyncClient:
    """The service: opened once in each task."""
    return httpx.AsyncClient(base_url=os.environ["KSTREAMS_TEST_SERVICE"], timeout=60)


async def ask(counted: list[Any], *, context: CallContext, resource: httpx.AsyncClient) -> list[Any]:
    """Ask for a count of a key."""
    headers = {"Idempotency-Key": context.idempotency_key, "X-Process": str(os.getpid())}
    key, count = counted
    answer = await resource.post("/charges", json={"key": key, "count": count}, headers=headers)
    if answer.status_code == _AWAY:
        raise ConnectionError(f"the service is away for {key}")
    answer.raise_for_status()
    return counted


def _store(name: str, storage: str) -> StoreSpec:
    return StoreSpec(
        name=name,
        key_serde=serdes.string(),
        value_serde=serdes.json(),
        storage="rocksdb" if storage == "rocksdb" else "memory",
        cached=False,
    )


def topology() -> Topology:
    """Count, ask, and keep the answers."""
    storage = os.environ.get("KSTREAMS_TEST_STORAGE", "memory")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counted = builder.stream(os.environ["KSTREAMS_TEST_IN"]).group_by_key()
    counts = counted.aggregate(
        lambda: ["", 0], lambda key, value, before: [key, before[1] + 1], store=_store("counts", storage)
    )
    asked = counts.to_stream().map_values_async(
        ask,
        max_in_flight=16,
        order="key",
        resource=service,
        retry=RetryPolicy(attempts=10_000, backoff_ms=400, multiplier=1, errors=(ConnectionError,)),
        name="ask",
    )
    answers = asked.group_by_key().aggregate(
        list, lambda key, counted, before: [*before, counted[1]], store=_store("answers", storage)
    )
    answers.to_stream().send_to(os.environ["KSTREAMS_TEST_OUT"])
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
