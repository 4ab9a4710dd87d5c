"""The application of the rounds with tables: a copy of the input in ``chaos-echo``, and four tables.

Each payment becomes a row of ``payments``, in Iceberg and in Delta; ``accounts``, in both, has each account's
last payment. Each record takes a moment, so that a run is long enough to be hit in the middle of its work.
"""

from __future__ import annotations

import os

from airflow_kstreams.streams import DeltaTable, IcebergTable, KStreamBuilder, Topology, serdes
from dev.chaos_rounds.application import Payment, slowly
from dev.chaos_rounds.tables.names import DELTA_ROOT, KEY_COLUMN, NAMESPACE
from dev.chaos_rounds.topics import ECHO, PAYMENTS


def topology() -> Topology:
    """Build it."""
    root = os.environ[DELTA_ROOT]
    text, payment = serdes.string(), serdes.json(Payment)
    builder = KStreamBuilder()
    payments = builder.stream(PAYMENTS, key_serde=text, value_serde=payment).map_values(slowly)
    payments.send_to(ECHO, key_serde=text, value_serde=payment)
    payments.send_to_table(
        IcebergTable(f"{NAMESPACE}.payments", row=Payment, partition_by=["bucket(2, shop)"], provenance=True)
    )
    payments.send_to_table(DeltaTable(f"{root}/payments", row=Payment, provenance=True))
    payments.send_to_table(DeltaTable(f"{root}/accounts", row=Payment, mode="upsert", key_column=KEY_COLUMN))
    payments.send_to_table(
        IcebergTable(
            f"{NAMESPACE}.accounts",
            row=Payment,
            mode="upsert",
            key_column=KEY_COLUMN,
            partition_by=[f"bucket(2, {KEY_COLUMN})"],
        )
    )
    return builder.build()


if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
