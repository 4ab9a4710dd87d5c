"""Topologies of the suite whose results go to tables: the same work as that of the topics' ones, whose names
they have with the format behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from airflow_kstreams.streams import DeltaTable, IcebergTable, KStreamBuilder, Topology, serdes
from dev.benchmarks.suite_topologies import Event, Newest, Slim

#: A topic and a table; for a run, others are put in their place.
EVENTS = "bench-events"
OUTPUT = "bench-output"

_BUCKETS = 16


class Total(msgspec.Struct):
    """The sum of a key."""

    total: int


def _events(builder: KStreamBuilder) -> Any:
    return builder.stream(EVENTS, key_serde=serdes.string(), value_serde=serdes.json(Event))


def _stateless(builder: KStreamBuilder) -> Any:
    return (
        _events(builder)
        .filter(lambda _, event: event.amount % 10 != 0)
        .map_values(lambda event: Slim(event.id, event.user, event.amount * 100))
    )


def stateless_iceberg() -> Topology:
    """Drop a tenth, keep three fields of the rest."""
    builder = KStreamBuilder()
    _stateless(builder).send_to_table(IcebergTable(OUTPUT, row=Slim))
    return builder.build()


def stateless_delta() -> Topology:
    """Drop a tenth, keep three fields of the rest."""
    builder = KStreamBuilder()
    _stateless(builder).send_to_table(DeltaTable(OUTPUT, row=Slim))
    return builder.build()


def _two_stage(builder: KStreamBuilder) -> Any:
    return (
        _events(builder)
        .map(lambda _, event: (f"{event.kind}-{event.amount}", event.amount))
        .group_by_key(key_serde=serdes.string(), value_serde=serdes.json(int))
        .reduce(lambda total, amount: total + amount, store="totals", value_serde=serdes.json(int))
        .to_stream()
        .map_values(Total)
    )


def two_stage_iceberg() -> Topology:
    """Give every record another key, and sum by that; a row says what a key has come to."""
    builder = KStreamBuilder()
    _two_stage(builder).send_to_table(IcebergTable(OUTPUT, row=Total, key_column="key"))
    return builder.build()


def two_stage_delta() -> Topology:
    """Give every record another key, and sum by that; a row says what a key has come to."""
    builder = KStreamBuilder()
    _two_stage(builder).send_to_table(DeltaTable(OUTPUT, row=Total, key_column="key"))
    return builder.build()


def _newest(builder: KStreamBuilder) -> Any:
    return _events(builder).map_values(lambda event: Newest(event.id, event.amount * 100))


def newest_iceberg() -> Topology:
    """Keep a row for each user: that of the newest event."""
    builder = KStreamBuilder()
    table = IcebergTable(
        OUTPUT, row=Newest, mode="upsert", key_column="user", partition_by=[f"bucket({_BUCKETS}, user)"]
    )
    _newest(builder).send_to_table(table)
    return builder.build()


def newest_delta() -> Topology:
    """Keep a row for each user: that of the newest event."""
    builder = KStreamBuilder()
    _newest(builder).send_to_table(DeltaTable(OUTPUT, row=Newest, mode="upsert", key_column="user"))
    return builder.build()


TABLE_TOPOLOGIES: dict[str, Callable[[], Topology]] = {
    factory.__name__: factory
    for factory in (
        stateless_iceberg,
        stateless_delta,
        two_stage_iceberg,
        two_stage_delta,
        newest_iceberg,
        newest_delta,
    )
}
