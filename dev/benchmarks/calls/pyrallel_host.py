"""Makes calls in pyrallel-consumer; started by the Python of an environment of its own.

Each line of standard input is a request, each line of standard output its answer, both JSON. A run lasts
until the broker has acknowledged as many results as there are records. Its function sends the result itself
and waits for nothing, which is the fastest that it can do: offsets may be committed without their results.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

_PATIENCE_SECONDS = 120
_ORDERS = {"partition": "partition", "key": "key_hash", "unordered": "unordered"}


def main() -> int:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the library prints is no answer
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        _answer(answers, asyncio.run(Run(json.loads(line)).answer()))
    return 0


def _answer(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


class Run:
    """One run."""

    def __init__(self, request: dict[str, Any]) -> None:
        from confluent_kafka import Producer

        self._request = request
        self._seconds = request["latency_ms"] / 1_000
        self._output = request["output"]
        self._left = request["records"]
        self._began, self._ended = float("inf"), 0.0
        self._acknowledged = self._took = 0.0
        self._done = asyncio.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": request["bootstrap"],
                "linger.ms": 20,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 1_000_000,
                "compression.type": "lz4",
                "log_level": 2,
            }
        )

    async def answer(self) -> dict[str, float]:
        """Run, and return what was measured."""
        from pyrallel_consumer.consumer import (  # type: ignore[import-not-found]  # it is in another environment
            PyrallelConsumer,
        )

        consumer = PyrallelConsumer(config=self._config(), worker=self._call, topic=self._request["input"])
        await consumer.start()
        try:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while not self._done.is_set():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self._left} results are missing")
                await asyncio.sleep(0.01)
                self._producer.poll(0)
        finally:
            await consumer.stop()
        records = self._request["records"]
        return {
            "seconds": self._acknowledged - self._began,
            "calls_seconds": self._ended - self._began,
            "latency_ms": 1_000 * self._took / records,
        }

    def _config(self) -> Any:
        from pyrallel_consumer.config import KafkaConfig  # type: ignore[import-not-found]
        from pyrallel_consumer.dto import ExecutionMode, OrderingMode  # type: ignore[import-not-found]

        config = KafkaConfig(
            BOOTSTRAP_SERVERS=[self._request["bootstrap"]], CONSUMER_GROUP=self._request["application_id"]
        )
        config.dlq_enabled = False
        parallel = config.parallel_consumer
        parallel.ordering_mode = OrderingMode(_ORDERS[self._request["order"]])
        parallel.execution.mode = ExecutionMode.ASYNC
        parallel.execution.max_in_flight = self._request["in_flight"]
        # As many calls of different keys as may be in flight.
        parallel.worker_pool_size = self._request["in_flight"]
        return config

    async def _call(self, item: Any) -> None:
        began = time.perf_counter()
        await asyncio.sleep(self._seconds)
        ended = time.perf_counter()
        self._began = min(self._began, began)
        self._ended = ended
        self._took += ended - began
        self._producer.produce(self._output, item.payload, item.key, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        self._left -= 1
        if self._left == 0:
            self._acknowledged = time.perf_counter()
            self._done.set()


if __name__ == "__main__":
    sys.exit(main())
