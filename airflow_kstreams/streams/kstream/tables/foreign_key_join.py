"""Adds the nodes, topics and stores that join two tables by a foreign key. The operators of these nodes
stand in ``operators/tables/foreign_key_steps.py``.

**The shape.** Kafka Streams (KIP-213) sends subscriptions to the right table's task, and its responses back
to the left table's: a cycle of topics, which a run that reads up to frozen stops could never end. Here no
topic leads back:

```
left table ── subscribe ──► <name>-subscriptions ──► answer (beside the right table) ──► <name>-answers ──┐
                  └────────► <name>-copies ──────────────────────────────────────────────────► resolve ◄──┘
```

The resolver is a subtopology of its own. It has a copy of the left table, fed by ``<name>-copies``, and does
the work that Kafka Streams does beside the left table itself.

**Equal keys.** ``<name>-subscriptions`` has the right table's key serde and partition count, and the other
two the bytes of the left table's keys and one partition count: so a subscription lies with the right entry,
and an answer with the copy.

**Results.** Record by record, as in the test driver, a copy is read before the answer to its subscription,
and results are those of Kafka Streams in its order. In a run the two topics are read in any order between
them; the last result of each key is the same, since the resolver counts (it says how).

**Crash argument.** The state of the three nodes is in stores with changelogs, committed with their results.
For stores in memory, the subscribers of each foreign key are also kept beside the store, and read from it
again by the next attempt.

**The hash** of a left value is Kafka Streams' idea, but another function: no reader outside the application
sees it. It is BLAKE2b of the bytes that the value's serde writes, with 16 bytes, as Kafka Streams' murmur3.
It is salted with the entry's time, so that a value that comes back has another hash than before.

**At least once.** An attempt that dies may leave some copies and some subscriptions, and the next one sends
all of them again. The resolver's counts are then wrong; it finds that by the hashes, and keeps the answers
that may still be needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_kstreams.streams.graph.nodes import SerdeOfTopic
from airflow_kstreams.streams.graph.store_specs import Storage, StoreSpec
from airflow_kstreams.streams.hints.function_checks import check_functions
from airflow_kstreams.streams.kstream.arguments import StoreArgument, check_source_of_tables, refuse_windows
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph, check_name
from airflow_kstreams.streams.kstream.known import KnownTable, kept_table
from airflow_kstreams.streams.kstream.lasting_names import lasting_name
from airflow_kstreams.streams.kstream.operators.tables.foreign_key_steps import (
    ForeignKey,
    ForeignKeyAnswer,
    ForeignKeyResolve,
    ForeignKeySubscribe,
)
from airflow_kstreams.streams.kstream.operators.tables.table_source import TableSource
from airflow_kstreams.streams.kstream.operators.tables.tables_join import TablesJoiner
from airflow_kstreams.streams.kstream.tables.derived_tables import derived_spec
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.serde import internal_serdes
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde

ForeignKeyJoinKind = Literal["join", "left_join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinByForeignKey:
    """The options of a join by a foreign key, see :meth:`KTable.join`.

    :param foreign_key: function that gives the other table's key for each entry.
    :param store: name or spec of the result's store; None if it is kept in none.
    :param value_serde: serde of the results; None if the user gave none.
    :param name: the join's name given by the user; None for one made of the topics that the tables read.
    """

    foreign_key: ForeignKey
    store: StoreArgument
    value_serde: Serde | None
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Join:
    """The facts of one join that the functions which add its nodes share.

    :param graph: graph of the topology that is being built.
    :param name: name of the join, with which its topics and stores begin.
    :param left: True for a left join.
    :param storage: place of the entries of its stores.
    :param left_keys: serde of the left table's keys.
    :param left_values: serde of the left table's values.
    :param right_keys: serde of the right table's keys.
    :param right_values: serde of the right table's values.
    """

    graph: StreamGraph
    name: str
    left: bool
    storage: Storage
    left_keys: Serde
    left_values: Serde
    right_keys: Serde
    right_values: Serde

    @property
    def subscriptions(self) -> str:
        return f"{self.name}-subscriptions"

    @property
    def copies(self) -> str:
        return f"{self.name}-copies"

    @property
    def answers(self) -> str:
        return f"{self.name}-answers"

    @property
    def keys_of_left(self) -> SerdeOfTopic:
        return _of(self.copies, "key", self.left_keys)

    @property
    def values_of_left(self) -> SerdeOfTopic:
        return _of(self.copies, "value", self.left_values)

    @property
    def keys_of_right(self) -> SerdeOfTopic:
        return _of(self.subscriptions, "key", self.right_keys)

    @property
    def values_of_right(self) -> SerdeOfTopic:
        return _of(self.answers, "value", self.right_values)


def join_by_foreign_key(
    call: ForeignKeyJoinKind,
    left: KnownTable,
    right: KnownTable,
    joiner: TablesJoiner,
    options: JoinByForeignKey,
) -> KnownTable:
    """Add the nodes and topics of the join, and return the table of its results.

    :raises TopologyError: the foreign key is no function, a table has windows or a store without changelog, a
        serde is missing, or the store for the result does not fit.
    """
    check_functions(call, foreign_key=options.foreign_key)
    graph = left.graph
    for table in (left, right):
        refuse_windows(table, call)
        check_source_of_tables(table, call)
    left, right = left.latest(), right.latest()
    serdes = left.serdes.with_new_value(call).given(call, None, options.value_serde)
    reads, kind = (*left.reads, *right.reads), f"foreign-key-{call.replace('_', '-')}"
    spec = derived_spec(left, serdes, options.store, options.value_serde, call, reads)
    check_name(options.name)
    keys = [graph.serde("key", None, table.serdes, call) for table in (left, right)]
    values = [graph.serde("value", None, table.serdes, call) for table in (left, right)]
    name = graph.join_name(options.name, reads, kind, call, "-subscriptions", "-copies")
    join = _Join(
        graph=graph,
        name=name,
        left=call == "left_join",
        storage="rocksdb" if any(kept.storage == "rocksdb" for kept in left.kept_in) else "memory",
        left_keys=keys[0],
        left_values=values[0],
        right_keys=keys[1],
        right_values=values[1],
    )
    subscriptions, copies = _subscribing(join, left, options.foreign_key)
    node, kept_in = _resolving(join, joiner, copies, _answering(join, right, subscriptions))
    known = Serdes(key=join.left_keys, value=serdes.value, value_lost=serdes.value_lost)
    result = KnownTable(
        graph=graph,
        node=node,
        serdes=known,
        reads=(lasting_name(reads, kind),),
        spec=None,
        kept_in=(kept_in,),
        passing=True,
    )
    return result if spec is None else _kept(result, spec)


def kept_by_itself(table: KnownTable, call: str) -> KnownTable:
    """Add a store, called after the join, for a table whose node only hands values on, and return the table.

    :param call: name of the DSL method that needs its entries.
    :raises TopologyError: the serde of its values is not known.
    """
    graph = table.graph
    keys, values = (
        graph.serde("key", None, table.serdes, call),
        graph.serde("value", None, table.serdes, call),
    )
    (copies,) = table.stores
    name = f"{copies.removesuffix('-copies')}-table"
    graph.note_beside(copies, name)
    return _kept(table, StoreSpec(name=name, key_serde=keys, value_serde=values))


def _kept(table: KnownTable, spec: StoreSpec) -> KnownTable:
    node = table.graph.operator("KTABLE-SOURCE", TableSource(store=spec), table.node, (spec.name,))
    # A stream of the table that was made before now comes from the store's node: its records match the store.
    table.graph.topology.move_children(table.node, node)
    return kept_table(table.graph, node, spec, table.reads)


def _subscribing(join: _Join, left: KnownTable, foreign_key: ForeignKey) -> tuple[str, str]:
    """Add the node below the left table, and return the sources of subscriptions and of copies."""
    graph = join.graph
    operator = ForeignKeySubscribe(
        foreign_key=foreign_key,
        left=join.left,
        left_keys=join.keys_of_left,
        left_values=join.values_of_left,
        right_keys=join.keys_of_right,
        copies=f"{join.copies}-repartition-filter",
        subscriptions=f"{join.subscriptions}-repartition-filter",
    )
    node = graph.operator("KTABLE-FK-JOIN-SUBSCRIBE", operator, left.node)
    copies = graph.repartition(
        join.copies, node, builtin_serdes.bytes(), internal_serdes.left_copies(join.left_values)
    )
    subscriptions = graph.repartition(
        join.subscriptions, node, join.right_keys, internal_serdes.subscriptions(join.left_keys)
    )
    return subscriptions, copies


def _answering(join: _Join, right: KnownTable, subscriptions: str) -> str:
    """Add the node below the right table, and return the source of its answers."""
    graph = join.graph
    store = StoreSpec(
        name=join.subscriptions,
        key_serde=internal_serdes.subscription_keys(join.right_keys, join.left_keys),
        value_serde=builtin_serdes.bytes(),
        cached=False,
        storage=join.storage,
    )
    operator = ForeignKeyAnswer(
        table=right.node, store=store, right_keys=join.keys_of_right, right_values=join.values_of_right
    )
    node = graph.name("KTABLE-FK-JOIN-ANSWER")
    # It reads the stores of the right table: without an edge to them they would be another subtopology's.
    graph.topology.add_operator(node, operator, subscriptions, right.node, stores=right.stores)
    graph.add_table_store(store, node)
    answers = internal_serdes.answers(join.right_keys, join.right_values)
    return graph.repartition(join.answers, node, builtin_serdes.bytes(), answers)


def _resolving(join: _Join, joiner: TablesJoiner, copies: str, answers: str) -> tuple[str, StoreSpec]:
    """Add the node that makes the results, and return its name and store."""
    graph = join.graph
    store = StoreSpec(
        name=join.copies,
        key_serde=builtin_serdes.bytes(),
        value_serde=internal_serdes.resolver_entries(join.left_values, join.right_keys, join.right_values),
        cached=False,
        storage=join.storage,
    )
    operator = ForeignKeyResolve(
        joiner=joiner,
        left=join.left,
        store=store,
        left_keys=join.keys_of_left,
        left_values=join.values_of_left,
        right_values=join.values_of_right,
    )
    node = graph.name("KTABLE-FK-JOIN-RESOLVE")
    graph.topology.add_operator(node, operator, copies, answers)
    graph.add_table_store(store, node)
    return node, store


def _of(name: str, side: Literal["key", "value"], serde: Serde) -> SerdeOfTopic:
    return SerdeOfTopic(topic=ProtocolTopics.repartition(name), side=side, serde=serde)
