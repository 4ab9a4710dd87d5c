"""Writes each record as a row to an Iceberg and to a Delta table."""

from __future__ import annotations

import os
from dataclasses import dataclass

from airflow_kstreams.streams import DeltaTable, IcebergTable, KStreamBuilder, Topology, serdes


@dataclass
class Number:
    """A row of both tables."""

    n: int
    to: str


def topology() -> Topology:
    """Return the topology; the environment names its input, and the folder of the Delta table."""
    builder = KStreamBuilder(default_key_serde=serdes.string())
    numbers = builder.stream(os.environ["KSTREAMS_TEST_IN"], value_serde=serdes.json(Number))
    numbers.send_to_table(IcebergTable("lake.numbers", row=Number))
    numbers.send_to_table(DeltaTable(os.environ["KSTREAMS_TEST_DELTA_TABLE"], row=Number))
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
