from __future__ import annotations

from typing import Any

from airflow_kstreams.streams import KStreamBuilder, KTable, serdes
from airflow_kstreams.streams.graph.components import TableChanges, table_changes


def _changes(*tables: Any) -> TableChanges:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    source = builder.table("in", store="t")
    for make in tables:
        make(source).to_stream().send_to("out")
    return table_changes(builder.build().nodes)


def _mapped(table: KTable) -> KTable:
    return table.map_values(lambda value: value)


def _filtered(table: KTable) -> KTable:
    return table.filter(lambda key, value: True)


def test_no_node_takes_changes_when_there_are_only_streams_below() -> None:
    assert _changes(lambda table: table) == TableChanges(frozenset(), frozenset())


def test_old_values_are_not_needed_when_values_are_only_mapped() -> None:
    changes = _changes(_mapped)
    assert changes.takers == {"KTABLE-MAPVALUES-0000000002"}
    assert changes.old_needed == set()


def test_old_values_are_needed_all_the_way_up_when_the_last_table_needs_them() -> None:
    changes = _changes(lambda table: _filtered(_mapped(table)))
    assert changes.old_needed == {"KTABLE-SOURCE-0000000001", "KTABLE-MAPVALUES-0000000002"}


def test_old_values_are_not_needed_above_a_table_with_a_store() -> None:
    changes = _changes(lambda table: _filtered(table.map_values(lambda value: value, store="kept")))
    assert changes.old_needed == {"KTABLE-MAPVALUES-0000000002"}
