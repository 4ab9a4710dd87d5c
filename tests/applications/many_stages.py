"""Subtopologies in a row, with a gate in each: the last collects what has come through all the others.

Input: topic from KSTREAMS_TEST_IN, key text, value JSON {"n": number, "to": key of the result}. Each of
KSTREAMS_TEST_STAGES subtopologies but the last gives every record another key, so that it goes to any
partition. The last one keeps a list of the numbers that came, by key of the result, and writes it to
KSTREAMS_TEST_OUT: a record that is processed twice, or not at all, is seen there.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from tests.applications.gated_sums import gate


class Amount(msgspec.Struct):
    """One record."""

    n: int
    to: str


def between(stage: int) -> str:
    """Return the topic behind a stage."""
    return f"{os.environ['KSTREAMS_TEST_IN']}-{stage}"


def moved(stage: int) -> Callable[[str, Amount], tuple[str, Amount]]:
    """Return what a stage does; the gate ``stage-<number>`` counts by the record's own number."""

    def move(_: str, amount: Amount) -> tuple[str, Amount]:
        if amount.n % 100 == 0:
            gate(f"stage-{stage}", amount.n)
        return f"{stage}-{amount.n}", amount

    return move


def by_result(stage: int) -> Callable[[str, Amount], tuple[str, Amount]]:
    """Return what the stage before the last does."""
    move = moved(stage)
    return lambda key, amount: (amount.to, move(key, amount)[1])


def topology() -> Topology:
    """Move each record through the stages, then collect the numbers by key of the result."""
    last = int(os.environ["KSTREAMS_TEST_STAGES"]) - 1

    def collect(_: str, amount: Amount, numbers: list[int]) -> list[int]:
        if amount.n % 100 == 0:
            gate(f"stage-{last}", amount.n)
        return [*numbers, amount.n]

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(Amount))
    stream = builder.stream(os.environ["KSTREAMS_TEST_IN"])
    for stage in range(last - 1):
        stream = stream.map(moved(stage)).through(between(stage))
    collected = (
        stream.map(by_result(last - 1))
        .group_by_key()
        .aggregate(list, collect, store="numbers", value_serde=serdes.json(list[int]))
    )
    collected.to_stream().send_to(os.environ["KSTREAMS_TEST_OUT"], value_serde=serdes.json(list[int]))
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
