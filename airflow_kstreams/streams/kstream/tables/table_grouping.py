"""Groups the entries of a table by a key of their own; a fold makes a table of the groups."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.arguments import (
    StoreArgument,
    check_logged,
    check_source_of_tables,
    check_store,
    check_store_kind,
    check_table_keys,
    check_table_values,
)
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph
from airflow_kstreams.streams.kstream.known import KnownTable, kept_table
from airflow_kstreams.streams.kstream.lasting_names import Reads, lasting_name
from airflow_kstreams.streams.kstream.operators.aggregation import Aggregator, Fold, TableFold
from airflow_kstreams.streams.kstream.operators.tables.table_select import EntrySelector, TableSelect
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.internal_serdes import changed
from airflow_kstreams.streams.serde.serde_checks import check_serdes

#: The remedy where an argument of a fold is no function.
TABLE_FUNCTIONS = (
    "pass functions: aggregate(initializer, adder, subtractor), reduce(adder, subtractor); the subtractor "
    "takes back what the adder did with a value"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedEntries:
    """Entries of a table, grouped.

    :param graph: graph of the topology that is being built.
    :param node: name of the node that selects group and value.
    :param serdes: the serdes of group and value, where known.
    :param reads: topics that the table is made of.
    :param name: the repartition topic's name given by the user; None for a topic per store.
    """

    graph: StreamGraph
    node: str
    serdes: Serdes
    reads: Reads
    name: str | None

    def spec(self, store: StoreArgument, value_serde: Serde | None, call: str) -> StoreSpec:
        """Return the spec of a fold's store.

        :param store: name or spec given by the user; None for a name made of the topics that the table reads.
        :param value_serde: the serde that the user gave, or the only possible one; without it, results of
            ``reduce`` have the serde of the values.
        :param call: name of the fold's DSL method, for messages.
        :raises TopologyError: a serde is missing or differs, or the store is of another kind.
        """
        check_serdes(call, value_serde=value_serde)
        check_store(store, call)
        keys = self.graph.serde("key", None, self.serdes, "group_by")
        name = self.graph.store_name(store, self.reads, f"table-{call}", call)
        if isinstance(store, StoreSpec):
            check_store_kind(store, StoreSpec, call)
            check_table_keys(store, keys, call)
            check_table_values(store, value_serde, call)
            return store
        inherited = self.serdes if call == "reduce" else None
        return StoreSpec(
            name=name,
            key_serde=keys,
            value_serde=self.graph.serde("value", value_serde, inherited, call),
        )

    def folded(
        self, fold: Fold, subtract: Aggregator, spec: StoreSpec, name: str | None = None
    ) -> KnownTable:
        """Add a fold's node and store behind the repartition topic, and return its table.

        :param fold: the fold that adds values.
        :param subtract: (key, value, aggregate) -> the aggregate without the value.
        :param spec: spec of the fold's store.
        :param name: the node's name given by the user; None for a numbered one.
        :raises TopologyError: a serde is missing, or a name is taken.
        """
        graph = self.graph
        check_logged([spec], fold.kind)
        keys = graph.serde("key", None, self.serdes, "group_by")
        values = changed(graph.serde("value", None, self.serdes, "group_by"))
        parent = graph.repartition(self.name or spec.name, self.node, keys, values)
        kind = "KTABLE-REDUCE" if fold.kind == "reduce" else "KTABLE-AGGREGATE"
        operator = TableFold(fold=fold, subtract=subtract, store=spec)
        node = graph.operator(kind, operator, parent, (spec.name,), name=name)
        return kept_table(graph, node, spec, (lasting_name(self.reads, f"table-{fold.kind}"),))


def grouped_entries(
    table: KnownTable,
    selector: EntrySelector,
    key_serde: Serde | None,
    value_serde: Serde | None,
    name: str | None,
) -> GroupedEntries:
    """Add the node that selects group and value of each entry.

    :param selector: function that gives the pair of group and value of an entry.
    :param key_serde: serde of the groups' keys given by the user; None if there is none.
    :param value_serde: serde of the values given by the user; None if there is none.
    :param name: name of the node, and in the repartition topic's name; None for a numbered node and a topic
        per store.
    :raises TopologyError: one of them is no serde, or the table's store has no changelog.
    """
    check_source_of_tables(table, "group_by")
    serdes = table.serdes.with_new_key("group_by").with_new_value("group_by")
    node = table.graph.operator(
        "KTABLE-SELECT", TableSelect(selector=selector), table.latest().node, name=name
    )
    known = serdes.given("group_by", key_serde, value_serde)
    return GroupedEntries(graph=table.graph, node=node, serdes=known, reads=table.reads, name=name)
