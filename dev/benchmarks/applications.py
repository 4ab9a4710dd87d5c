"""The topologies that are measured, as a user would write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from dev.benchmarks.suite_topologies import Event, Slim

if TYPE_CHECKING:
    import pyarrow as pa


def _events(builder: KStreamBuilder):  # type: ignore[no-untyped-def]
    return builder.stream("bench-events", key_serde=serdes.string(), value_serde=serdes.json(Event))


def filter_map() -> Topology:
    """Filter and map: the work of the hand-written loop."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .filter(lambda _, event: event.amount % 10 != 0)
        .map_values(lambda event: Slim(event.id, event.user, event.amount * 100))
        .send_to("bench-out", key_serde=serdes.string(), value_serde=serdes.json(Slim))
    )
    return builder.build()


def flat_map() -> Topology:
    """One record in, two out."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .flat_map(lambda key, event: ((key, event.amount), (event.user, event.id)))
        .send_to("bench-out", key_serde=serdes.string(), value_serde=serdes.json())
    )
    return builder.build()


def map_batches() -> Topology:
    """Filter and map once more, vectorised: records to Arrow columns and back."""
    builder = KStreamBuilder()
    (
        builder.stream("bench-events", key_serde=serdes.string(), value_serde=serdes.json())
        .map_batches(_kept_in_cents)
        .send_to("bench-out", key_serde=serdes.string(), value_serde=serdes.json())
    )
    return builder.build()


def _kept_in_cents(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    events = batch.column("value")
    amounts = pc.struct_field(events, "amount")
    tens = pc.multiply(pc.divide(amounts, 10), 10)
    slim = pa.StructArray.from_arrays(
        [pc.struct_field(events, "id"), pc.struct_field(events, "user"), pc.multiply(amounts, 100)],
        names=["id", "user", "cents"],
    )
    return batch.set_column(1, "value", slim).filter(pc.not_equal(amounts, tens))


def branch_aggregate() -> Topology:
    """Split in two, sum one side by key."""
    builder = KStreamBuilder()
    small, large = _events(builder).branch(lambda _, event: event.amount < 500, lambda _, event: True)
    (
        small.group_by_key()
        .aggregate(
            lambda: 0, lambda _, event, total: total + event.amount, store="sums", value_serde=serdes.int64()
        )
        .to_stream()
        .send_to("bench-sums", key_serde=serdes.string(), value_serde=serdes.int64())
    )
    large.send_to("bench-out", key_serde=serdes.string(), value_serde=serdes.json(Event))
    return builder.build()


def two_stage() -> Topology:
    """Re-key through a repartition topic, then sum by the new key."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .map(lambda _, event: (event.user, event.amount))
        .group_by_key(key_serde=serdes.string(), value_serde=serdes.json(int))
        .reduce(lambda total, amount: total + amount, store="totals", value_serde=serdes.json(int))
        .to_stream()
        .send_to("bench-sums", key_serde=serdes.string(), value_serde=serdes.json(int))
    )
    return builder.build()


def sum_by_key() -> Topology:
    """Sum by key: state grows with the keys, never with the records."""
    builder = KStreamBuilder()
    (
        _events(builder)
        .group_by_key()
        .aggregate(
            lambda: 0, lambda _, event, total: total + event.amount, store="sums", value_serde=serdes.int64()
        )
        .to_stream()
        .send_to("bench-sums", key_serde=serdes.string(), value_serde=serdes.int64())
    )
    return builder.build()
