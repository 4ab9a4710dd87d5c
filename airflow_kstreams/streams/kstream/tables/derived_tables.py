"""Makes tables of other tables, and of streams, entry by entry. The rules of their nodes stand in
:mod:`airflow_kstreams.streams.kstream.operators.table_emitter`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import Operator
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.hints.function_checks import KEY, call_site, declared_beside
from airflow_kstreams.streams.kstream.arguments import (
    StoreArgument,
    check_source_of_tables,
    check_store,
    check_store_kind,
    check_table_keys,
    check_table_store,
    check_table_values,
    check_used_stores,
)
from airflow_kstreams.streams.kstream.graph import Serdes
from airflow_kstreams.streams.kstream.known import KnownStream, KnownTable, kept_table
from airflow_kstreams.streams.kstream.lasting_names import Reads
from airflow_kstreams.streams.kstream.operators.stateless import DropNulls, Predicate
from airflow_kstreams.streams.kstream.operators.tables.derived_table import (
    TableTransformValues,
    table_filter,
    table_map_values,
)
from airflow_kstreams.streams.kstream.operators.tables.table_source import keeping
from airflow_kstreams.streams.processor.definitions import check_transformer_def
from airflow_kstreams.streams.processor.processor import ValueTransformerDef
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes


def filtered(
    table: KnownTable, predicate: Predicate, store: StoreArgument, name: str | None, *, passing: bool
) -> KnownTable:
    """Add the node that filters a table.

    :param name: the node's name given by the user; None for a numbered one.
    :param passing: the predicate's answer for entries that stay.
    :raises TopologyError: as :func:`derived_spec`.
    """
    call = "filter" if passing else "filter_not"
    spec = derived_spec(table, table.serdes, store, None, call, table.reads)
    operator = table_filter(predicate, table.node, spec, passing=passing, versioned=table.versioned)
    return derived(table, call, operator, spec, table.serdes, name)


def with_values_mapped(
    table: KnownTable,
    mapper: Callable[..., Any],
    store: StoreArgument,
    value_serde: Serde | None,
    name: str | None,
) -> KnownTable:
    """Add the node that replaces a table's values.

    :param value_serde: serde of the new values given by the user; None if there is none.
    :param name: the node's name given by the user; None for a numbered one.
    :raises TopologyError: the store does not fit, a serde is missing, the table's store has no changelog, or
        the name is taken.
    """
    call = "map_values"
    with_key = KEY in declared_beside(call, (KEY,), mapper=mapper)
    serdes = table.serdes.with_new_value(call).given(call, None, value_serde)
    spec = derived_spec(table, serdes, store, value_serde, call, table.reads)
    operator = table_map_values(mapper, table.node, spec, with_key=with_key)
    return derived(table, call, operator, spec, serdes, name)


def with_values_transformed(
    table: KnownTable,
    definition: ValueTransformerDef,
    stores: tuple[str | StoreSpec, ...],
    store: StoreArgument,
    value_serde: Serde | None,
    name: str | None,
) -> KnownTable:
    """Add the node that replaces a table's values by a transformer.

    :param stores: names of the stores that it may use, or specs to add here.
    :param value_serde: serde of the new values given by the user; None if there is none.
    :param name: the node's name given by the user; None for a numbered one.
    :raises TopologyError: the definition cannot be called, a store does not fit or a name is taken, a serde
        is missing, or the table's store has no changelog.
    """
    call = "transform_values"
    check_transformer_def(definition, call, call_site())
    check_used_stores(stores, call)
    for each in stores:
        if not isinstance(each, str):
            check_store_kind(each, StoreSpec, call)
            table.graph.topology.add_state_store(each)
    names = tuple(each if isinstance(each, str) else each.name for each in stores)
    serdes = table.serdes.with_new_value(call).given(call, None, value_serde)
    spec = derived_spec(table, serdes, store, value_serde, call, table.reads)
    operator = TableTransformValues(
        definition=definition, stores_of_user=names, parent=table.node, store=spec
    )
    found = derived(table, call, operator, spec, serdes, name, names)
    return dataclasses.replace(found, repeatable=spec is not None or not names)


def table_of(
    stream: KnownStream,
    store: StoreArgument,
    key_serde: Serde | None,
    value_serde: Serde | None,
    name: str | None,
) -> KnownTable:
    """Add the node that keeps a stream's newest values, behind a repartition topic if the key changed.

    :param name: name of the node, and in the repartition topic's name; None for a numbered node and the
        store's name.
    :raises TopologyError: a serde is missing, or the store does not fit.
    """
    call, graph = "to_table", stream.graph
    check_store(store, call)
    check_serdes(call, key_serde=key_serde, value_serde=value_serde)
    if isinstance(store, StoreSpec):
        key_serde = key_serde or stream.serdes.key or store.key_serde
        value_serde = value_serde or store.value_serde
    keys = graph.serde("key", key_serde, stream.serdes, call)
    values = graph.serde("value", value_serde, stream.serdes, call)
    name_of_store = graph.store_name(store, stream.reads, "to-table", call)
    if isinstance(store, StoreSpec):
        check_table_store(store, call)
        check_table_keys(store, keys, call)
        spec = store
    else:
        spec = StoreSpec(name=name_of_store, key_serde=keys, value_serde=values)
    if stream.key_changed:
        drop = DropNulls(keep_null_values=True)
        parent = graph.repartition(name or spec.name, stream.node, keys, values, drop=drop)
    else:
        _check_same_keys(stream, keys)
        parent = stream.with_own_values().node
    node = graph.operator("KSTREAM-TOTABLE", keeping(spec), parent, (spec.name,), name=name)
    return kept_table(graph, node, spec, stream.reads, redated=stream.redated and not stream.key_changed)


def derived_spec(
    table: KnownTable,
    serdes: Serdes,
    store: StoreArgument,
    value_serde: Serde | None,
    call: str,
    reads: Reads,
) -> StoreSpec | None:
    """Return the spec of the store that a derived table is kept in; None if the user named none.

    :param serdes: the serdes of the derived table, where known.
    :param value_serde: serde of its values given by the user; None if there is none.
    :param reads: topics that the derived table is made of.
    :raises TopologyError: a serde is missing or differs, or the store is of another kind.
    """
    check_store(store, call)
    if store is None:
        return None
    if table.windowed:
        raise TopologyError(
            f"{call} at {call_site()} is given a store for a table of windows, which would keep every window "
            "for ever",
            fix="leave out store=",
        )
    keys = table.graph.serde("key", None, serdes, call)
    name = table.graph.store_name(store, reads, f"{call.replace('_', '-')}-table", call)
    if not isinstance(store, StoreSpec):
        values = table.graph.serde("value", value_serde, serdes, call)
        return StoreSpec(name=name, key_serde=keys, value_serde=values)
    check_table_store(store, call)
    check_table_keys(store, keys, call)
    check_table_values(store, value_serde, call)
    return store


def derived(
    table: KnownTable,
    call: str,
    operator: Operator,
    spec: StoreSpec | None,
    serdes: Serdes,
    name: str | None,
    stores: tuple[str, ...] = (),
) -> KnownTable:
    """Add a node that derives a table of one other.

    :param call: the DSL method, after which the node is named unless the user names it.
    :param table: the table from which it is derived.
    :param operator: the node's operator.
    :param spec: spec of the store that keeps the new table; None if it is kept in none.
    :param serdes: serdes of the new table, where known.
    :param name: the node's name given by the user; None for a numbered one.
    :param stores: names of the stores that the operator may use beside the store of ``spec``.
    """
    check_source_of_tables(table, call)
    kind = f"KTABLE-{call.removesuffix('_not').replace('_', '').upper()}"
    node = table.graph.operator(kind, operator, table.node, stores, name=name)
    if spec is not None:
        return kept_table(table.graph, node, spec, table.reads, redated=table.redated)
    return dataclasses.replace(table, node=node, serdes=serdes, spec=None)


def _check_same_keys(stream: KnownStream, keys: Serde) -> None:
    if stream.serdes.key is not None and stream.serdes.key != keys:
        raise TopologyError(
            f"to_table at {call_site()} is to keep keys of {keys!r}, but reads keys of "
            f"{stream.serdes.key!r}: equal keys would lie in other partitions than their entries",
            fix="leave out key_serde=, or repartition the stream: select_key(selector) before to_table, with "
            f"a selector that gives keys of {keys!r}",
        )
