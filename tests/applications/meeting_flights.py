"""Copies flights in runs of one day each, which can only go on while another one is under way.

Each task waits before its first record until runs of two days have got that far: every day leaves a file in
the folder from KSTREAMS_TEST_MEETING.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from airflow_kstreams.streams import KStreamBuilder, Processor, Topology, serdes

_DAY_MS = 86_400_000
_RUNS = 2
_SECONDS = 100.0


class Meet(Processor):
    """Forwards every record."""

    def init(self, context: Any) -> None:
        """Nobody was met."""
        self._context = context
        self._met = False

    def process(self, record: Any) -> None:
        """Wait for the other run, once."""
        if not self._met:
            meet(record.timestamp_ms // _DAY_MS)
            self._met = True
        self._context.forward(record.key, record.value)


def meet(day: int) -> None:
    """Wait until as many runs are here as must be.

    :raises TimeoutError: they do not come.
    """
    folder = Path(os.environ["KSTREAMS_TEST_MEETING"])
    (folder / str(day)).touch()
    deadline = time.monotonic() + _SECONDS
    while len(list(folder.iterdir())) < _RUNS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no other run came beside that of day {day}")
        time.sleep(0.05)


def topology() -> Topology:
    """Copy ``flights``."""
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream("flights").process(Meet).send_to("flights-live")
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
