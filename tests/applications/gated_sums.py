"""Two subtopologies with a gate in each: a task that reaches it says so in a file and waits until it may go
on.

Input: topic from KSTREAMS_TEST_IN, key text, value JSON {"n": number, "to": new key}. Output: topic from
KSTREAMS_TEST_OUT, running sum of n per new key. The gates let a test kill a process at a known point in the
middle of a run.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes


class Amount(msgspec.Struct):
    """One input record."""

    n: int
    to: str


def gate(name: str, number: int) -> None:
    """Wait at a gate that the test has armed for this record number."""
    folder = Path(os.environ["KSTREAMS_TEST_GATES"])
    armed = folder / f"{name}-{number}.armed"
    if armed.exists():
        (folder / f"{name}-{number}.reached").write_text(str(os.getpid()))
        while armed.exists():
            time.sleep(0.02)


def first(_: str, amount: Amount) -> tuple[str, int]:
    """Re-key; the gate ``first`` counts by the record's own number."""
    if amount.n % 100 == 0:
        gate("first", amount.n)
    return amount.to, amount.n


def add(total: int, n: int) -> int:
    """Sum; the gate ``second`` counts by the record's own number."""
    if n % 100 == 0:
        gate("second", n)
    return total + n


def topology() -> Topology:
    """Re-key through a repartition topic, then sum by key."""
    builder = KStreamBuilder()
    (
        builder.stream(
            os.environ["KSTREAMS_TEST_IN"], key_serde=serdes.string(), value_serde=serdes.json(Amount)
        )
        .map(first)
        .group_by_key(key_serde=serdes.string(), value_serde=serdes.json(int))
        .reduce(add, store="sums", value_serde=serdes.json(int))
        .to_stream()
        .send_to(os.environ["KSTREAMS_TEST_OUT"], key_serde=serdes.string(), value_serde=serdes.json(int))
    )
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
