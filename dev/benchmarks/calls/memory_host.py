"""Runs one task over many records and tells how its memory grows; one request, one answer, both JSON.

Calls end at once, but for one in some thousand, which holds up all behind it: so as much waits as may.
Without calls the same records go through a plain node: what client and engine take anyway.

usage: python -m dev.benchmarks.calls.memory_host FOLDER
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from tests.support.kafka.in_process import Application

_SAMPLE_SECONDS = 0.5


def main() -> int:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()
    return 0


class Counted:
    """The function that is called; it counts its calls.

    :param every: of so many calls one is slow.
    :param slow_seconds: for so long.
    """

    def __init__(self, every: int, slow_seconds: float) -> None:
        self.calls = 0
        self._every = every
        self._slow_seconds = slow_seconds

    async def awaited(self, value: bytes) -> bytes:
        """End at once, most times."""
        self.calls += 1
        if not self.calls % self._every:
            await asyncio.sleep(self._slow_seconds)
        return value

    def at_once(self, value: bytes) -> bytes:
        """Give back."""
        self.calls += 1
        return value


def topology(request: Mapping[str, Any], counted: Counted) -> Topology:
    """Return the topology that a request asks for."""
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    stream = builder.stream(request["input"])
    if request["in_flight"]:
        stream = stream.map_values_async(counted.awaited, max_in_flight=request["in_flight"], order="key")
    else:
        stream = stream.map_values(counted.at_once)
    stream.send_to(request["output"])
    return builder.build()


def run(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run once.

    :return: ``curve``: pairs of how many calls were made and MB of the process; the last one has the peak.
    """
    counted = Counted(request["every"], request["slow_seconds"])
    app = Application(
        application_id=request["application_id"],
        topology=topology(request, counted),
        bootstrap=request["bootstrap"],
        settings={"processing.guarantee": "exactly_once"},
    )
    slice_ = app.begin("bench")
    gc.collect()
    # Lets the kernel forget the peak so far, see proc(5).
    Path("/proc/self/clear_refs").write_text("5")
    curve: list[tuple[int, float]] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            curve.append((counted.calls, _megabytes("VmRSS")))

    sampling = threading.Thread(target=sample, name="memory", daemon=True)
    sampling.start()
    began = time.monotonic()
    app.tasks(slice_)
    seconds = time.monotonic() - began
    ended.set()
    sampling.join()
    app.finish("bench")
    return {"seconds": seconds, "curve": [*curve, (counted.calls, _megabytes("VmHWM"))]}


def _megabytes(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:"))
    return round(int(kilobytes) * 1024 / 1e6, 1)


if __name__ == "__main__":
    sys.exit(main())
