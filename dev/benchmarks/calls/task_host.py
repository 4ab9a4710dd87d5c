"""Runs one task of this engine whose node makes calls; each call measures itself.

Each line of standard input is a request, each line of standard output its answer, both JSON. Whoever makes
the calls, the task's own thread, an event loop or threads, is the engine's own; Spark, which would only host
the task, is left out.

usage: python -m dev.benchmarks.calls.task_host FOLDER
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from airflow_kstreams.spark.executor.report_rows import sparing_gc
from airflow_kstreams.streams import KStream, KStreamBuilder, Topology, serdes
from tests.support.kafka.in_process import Application


def main() -> int:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        _answer(answers, run(json.loads(line)))
    return 0


def _answer(answers: Any, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


class Clocked:
    """The function that is called, and what its calls have measured.

    :param latency_ms: for which a call sleeps.
    :param hottest: what the values of the most frequent key begin with.
    """

    def __init__(self, latency_ms: float, hottest: bytes) -> None:
        self._seconds = latency_ms / 1_000
        self._hottest = hottest
        self.began, self.ended, self.took = array("d"), array("d"), array("d")
        #: Of calls of the most frequent key.
        self.took_hottest = array("d")

    async def awaited(self, value: bytes) -> bytes:
        """Sleep on the event loop."""
        began = time.perf_counter()
        await asyncio.sleep(self._seconds)
        self._note(began, value)
        return value

    def blocking(self, value: bytes) -> bytes:
        """Sleep in a thread."""
        began = time.perf_counter()
        if self._seconds:
            time.sleep(self._seconds)
        self._note(began, value)
        return value

    def _note(self, began: float, value: bytes) -> None:
        ended = time.perf_counter()
        # Each is one step for Python, so that calls on threads lose nothing.
        self.began.append(began)
        self.ended.append(ended)
        self.took.append(ended - began)
        if value.startswith(self._hottest):
            self.took_hottest.append(ended - began)


def topology(request: Mapping[str, Any], clocked: Clocked) -> Topology:
    """Return the topology that a request asks for."""
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    stream = builder.stream(request["input"])
    _NODES[request["system"]](stream, clocked, request).send_to(request["output"])
    return builder.build()


def _plain(stream: KStream, clocked: Clocked, _request: Mapping[str, Any]) -> KStream:
    return stream.map_values(clocked.blocking)


def _asyncio(stream: KStream, clocked: Clocked, request: Mapping[str, Any]) -> KStream:
    return stream.map_values_async(
        clocked.awaited, max_in_flight=request["in_flight"], order=request["order"]
    )


def _threads(stream: KStream, clocked: Clocked, request: Mapping[str, Any]) -> KStream:
    return stream.map_values_async(
        clocked.blocking, max_in_flight=request["in_flight"], order=request["order"], threads=True
    )


_NODES: Mapping[str, Callable[[KStream, Clocked, Mapping[str, Any]], KStream]] = {
    "plain": _plain,
    "asyncio": _asyncio,
    "threads": _threads,
}


def run(request: Mapping[str, Any]) -> Mapping[str, float]:
    """Run once.

    :return: ``seconds`` from the first call to the commit of the last result, ``calls_seconds`` to the end of
        the last call; ``latency_ms`` of a call on average, as measured in it, and ``hottest_ms`` of a call of
        the most frequent key.
    """
    clocked = Clocked(request["latency_ms"], request["hottest"].encode())
    threads = request["in_flight"] if request["system"] == "threads" else 1
    app = Application(
        application_id=request["application_id"],
        topology=topology(request, clocked),
        bootstrap=request["bootstrap"],
        settings={
            "processing.guarantee": "exactly_once",
            "num.threads.per.task": threads,
            "num.stream.threads": threads,
        },
    )
    slice_ = app.begin("bench")
    # What was made before has nothing to do with this run: collecting it must not be counted as its.
    gc.collect()
    with sparing_gc():  # as every worker does
        app.tasks(slice_)
        committed = time.perf_counter()
    app.finish("bench")
    began = min(clocked.began)
    return {
        "seconds": committed - began,
        "calls_seconds": max(clocked.ended) - began,
        "latency_ms": 1_000 * fmean(clocked.took),
        "hottest_ms": 1_000 * fmean(clocked.took_hottest),
    }


if __name__ == "__main__":
    sys.exit(main())
