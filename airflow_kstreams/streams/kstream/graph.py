"""The graph that all streams and tables of one builder add to: the topology being built, names, sources and
default serdes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import (
    Node,
    Operator,
    Partitioner,
    ProcessorNode,
    SinkNode,
    SourceNode,
)
from airflow_kstreams.streams.graph.store_specs import GlobalTableDef, StoreSpec
from airflow_kstreams.streams.hints.function_checks import CallSite, call_site
from airflow_kstreams.streams.kstream.lasting_names import Reads, lasting_name
from airflow_kstreams.streams.kstream.operators.function_kinds import SELECT_KEY, FunctionOperator
from airflow_kstreams.streams.kstream.operators.stateless import DropNulls
from airflow_kstreams.streams.naming.topic_names import LEGAL_TOPIC, is_legal_topic
from airflow_kstreams.streams.partitioning.partition_groups import PartitionGrouper
from airflow_kstreams.streams.plan import MadeOf, NamedBy
from airflow_kstreams.streams.serde.base import Serde, Side
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.timestamps import TimestampExtractor
from airflow_kstreams.streams.topic_patterns import pattern_of
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.streams.topology.topology_builder import TopologyBuilder
from airflow_kstreams.streams.topology.validation import same_timestamps, two_sources_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Serdes:
    """The serdes of a stream's keys and values.

    :param key: serde of keys; None after an operator that made a new key.
    :param value: serde of values; None after an operator that made a new value.
    :param key_lost: operator that made the new key, for messages, e.g. ``map at app.py:12``.
    :param value_lost: operator that made the new value.
    """

    key: Serde | None
    value: Serde | None
    key_lost: str = ""
    value_lost: str = ""

    def known(self, side: Side) -> Serde | None:
        """Return the serde of keys or of values."""
        return self.key if side == "key" else self.value

    def lost(self, side: Side) -> str:
        """Return the operator that made keys or values new, for messages."""
        return self.key_lost if side == "key" else self.value_lost

    def with_new_key(self, call: str) -> Serdes:
        """Return the description after a method that changed the key."""
        return dataclasses.replace(self, key=None, key_lost=f"{call} at {call_site()}")

    def with_new_value(self, call: str) -> Serdes:
        """Return the description after a method that changed the value."""
        return dataclasses.replace(self, value=None, value_lost=f"{call} at {call_site()}")

    def given(self, call: str, key: Serde | None, value: Serde | None) -> Serdes:
        """Return the description with the serdes that the user gave.

        :raises TopologyError: one of them is no serde.
        """
        check_serdes(call, key_serde=key, value_serde=value)
        return dataclasses.replace(self, key=key or self.key, value=value or self.value)


def check_name(name: object) -> None:
    """Refuse a name that can name no topic: what is made for an operator may be called after it.

    :param name: name given by the user; None for none.
    :raises TopologyError: the name is not legal for a topic.
    """
    if name is not None and not (isinstance(name, str) and is_legal_topic(name)):
        raise TopologyError(
            f"the node at {call_site()} has name={name!r}",
            fix=LEGAL_TOPIC,
        )


@dataclass(frozen=True, slots=True)
class _NamedBy:
    """A call of the user whose store or topic has a name.

    :param call: name of the DSL method.
    :param site: the user's file and line.
    :param option: argument with which the user would name the store or topic.
    """

    call: str
    site: CallSite
    option: str

    def __str__(self) -> str:
        return f"the {self.call} at {self.site}"


class StreamGraph:
    """Compiles the calls of the DSL to a topology.

    :param default_key_serde: serde of keys where none is given or inherited.
    :param default_value_serde: serde of values where none is given or inherited.
    :param make_stream: the class ``KStream``, which makes a user's stream of a description; its module
        imports this one.
    :param partition_grouper: decides which partitions one task reads together; None for equal numbers.
    """

    def __init__(
        self,
        make_stream: Callable[[Any], Any],
        *,
        default_key_serde: Serde | None,
        default_value_serde: Serde | None,
        partition_grouper: PartitionGrouper | None = None,
    ) -> None:
        check_serdes(
            "KStreamBuilder", default_key_serde=default_key_serde, default_value_serde=default_value_serde
        )
        self.make_stream = make_stream
        self.topology = TopologyBuilder(partition_grouper=partition_grouper)
        self._defaults = Serdes(key=default_key_serde, value=default_value_serde)
        #: Nodes of joins that take records without key.
        self.without_key: list[str] = []
        #: Name of a store that an operator keeps -> what it is made of.
        self.made_of: dict[str, MadeOf] = {}
        self._count = 0
        self._sources: dict[str, SourceNode] = {}
        self._owners: dict[str, _NamedBy] = {}
        self._tables: dict[str, tuple[str, CallSite]] = {}
        self._global_tables: dict[str, GlobalTableDef] = {}
        self._repartitions: dict[str, tuple[tuple[str, Serde, Serde, DropNulls, int | None], CallSite]] = {}
        self._selected: dict[tuple[str, str], tuple[Callable[[Any, Any], Any], str]] = {}

    def name(self, kind: str) -> str:
        """Return the next numbered name of a node in Kafka Streams' shape, e.g.
        ``KSTREAM-FILTER-0000000001``. No store and no topic has such a name.
        """
        number = self._count
        self._count += 1
        return f"{kind}-{number:010d}"

    def lasting_name(self, reads: Reads, kind: str, call: str, *, option: str) -> str:
        """Return the name of the store or topic of a call, where the user gave none.

        :param reads: topics that the stream or table reads.
        :param kind: kind of the operator, e.g. ``count`` or ``left-join``.
        :param call: name of the DSL method, for messages.
        :param option: argument with which the user would name it.
        :raises TopologyError: another call has the name.
        """
        name, ours = lasting_name(reads, kind), _NamedBy(call, call_site(), option)
        known = self._owners.setdefault(name, ours)
        if known is not ours:
            raise TopologyError(
                f"{ours} would have the name {name!r}, which {known} has: both are a {kind} of "
                f"{', '.join(reads)}, and nothing else tells them apart",
                fix=f'name one of them: {option}="..."',
            )
        return name

    def store_name(self, given: str | StoreSpec | None, reads: Reads, kind: str, call: str) -> str:
        """Return the name of a table's store, and note what the store is made of.

        :param given: name or spec given by the user; None for a name made of the rest, see
            :meth:`lasting_name`.
        """
        by: NamedBy = "spec" if isinstance(given, StoreSpec) else "store"
        name = given.name if isinstance(given, StoreSpec) else given
        lasting = name or self.lasting_name(reads, kind, call, option="store")
        self.made_of[lasting] = MadeOf(kind, reads, lasting, by, named=name is not None)
        return lasting

    def note_beside(self, store: str, other: str) -> None:
        """Note a second store of an operator."""
        self.made_of[other] = self.made_of[store]

    def join_name(self, given: str | None, reads: Reads, kind: str, call: str, *endings: str) -> str:
        """Return the name of a join with stores of its own, and note what these are made of.

        :param given: name given by the user; None for a name made of the rest, see :meth:`lasting_name`.
        :param endings: what follows the join's name in the names of its stores.
        """
        name = given or self.lasting_name(reads, kind, call, option="name")
        made_of = MadeOf(kind, reads, name, "name", named=given is not None)
        self.made_of.update((f"{name}{ending}", made_of) for ending in endings)
        return name

    def serde(
        self, side: Side, given: Serde | None, inherited: Serdes | None, call: str, *, option: str = ""
    ) -> Serde:
        """Return the serde to use where bytes are needed: the given one, else the inherited, else the
        default.

        :param side: ``key`` or ``value``.
        :param given: serde given by the user; None if there is none.
        :param inherited: serdes known from upstream; None if there are none.
        :param call: the DSL method's call, for the message, e.g. ``stream('orders')``.
        :param option: the method's parameter for the serde, unless that is ``<side>_serde``.
        :raises TopologyError: no serde is known.
        """
        option = option or f"{side}_serde"
        check_serdes(call.partition("(")[0], **{option: given})
        known = given or (inherited.known(side) if inherited else None) or self._defaults.known(side)
        if known is None:
            lost = inherited.lost(side) if inherited else ""
            why = f" after {lost}" if lost else ""
            raise TopologyError(
                f"{call} at {call_site()} needs a {side} serde, and none is known{why}",
                fix=f"pass {option}= to {call.partition('(')[0]}, or set default_{side}_serde",
            )
        return known

    def source(
        self,
        topics: tuple[str, ...],
        key_serde: Serde,
        value_serde: Serde,
        timestamps: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> str:
        """Return the name of the node that reads topics; asking twice, in any order, gives the same node.

        :param topics: names of topics, or the placeholder of one pattern.
        :param name: the node's name given by the user; None for a numbered one.
        :raises TopologyError: one of the topics is read with other serdes, together with other topics, or
            under another name, already.
        """
        shared = next((topic for topic in topics if topic in self._sources), None)
        if shared is None:
            name = self.node_name("KSTREAM-SOURCE", name)
            pattern = pattern_of(topics[0]) or ""
            self.topology.add_source(
                name,
                *(() if pattern else topics),
                key_serde=key_serde,
                value_serde=value_serde,
                timestamps=timestamps,
                pattern=pattern,
            )
            source = _source(name, topics, key_serde, value_serde, timestamps)
            self._sources.update(dict.fromkeys(topics, source))
            return name
        known = self._sources[shared]
        asked = _source(known.name, topics, key_serde, value_serde, timestamps)
        if _reading(known) != _reading(asked) or not same_timestamps(known.timestamps, timestamps):
            raise two_sources_error(shared, known, asked)
        if name is not None and name != known.name:
            raise TopologyError(
                f"the topic {shared!r} is read as {name!r} at {call_site()}, and as {known.name!r} at "
                f"{known.site}",
                fix="name the source where it is made first, or nowhere",
            )
        return known.name

    def global_table(self, definition: GlobalTableDef) -> GlobalTableDef:
        """Note a global table; asking twice for the same topic, name and storage is allowed.

        :raises TopologyError: the topic is a global table already that has another name or storage.
        """
        known = self._global_tables.setdefault(definition.topic, definition)
        if (known.name, known.storage) != (definition.name, definition.storage):
            raise TopologyError(
                f"the topic {definition.topic!r} is a global table with name={known.name or None!r} and "
                f"storage={known.storage!r} at {known.site}, and with name={definition.name or None!r} and "
                f"storage={definition.storage!r} at {definition.site}",
                fix="make the table once, and use it in each join",
            )
        return definition

    def node_name(self, kind: str, given: str | None) -> str:
        """Return the name that the user gave a node, else the next numbered one.

        :param kind: the beginning of a numbered name, e.g. ``KSTREAM-FILTER``.
        :param given: name given by the user; None for a numbered one.
        :raises TopologyError: the name is not legal for a topic: topics of the node may be called after it.
        """
        check_name(given)
        return self.name(kind) if given is None else given

    def operator(
        self,
        kind: str,
        operator: Operator,
        parent: str,
        stores: Sequence[str] = (),
        *,
        name: str | None = None,
    ) -> str:
        """Add an operator node and return its name.

        :param kind: the beginning of a numbered name, e.g. ``KSTREAM-FILTER``.
        :param parent: node whose results the operator takes.
        :param stores: names of the stores that it uses.
        :param name: the node's name given by the user; None for a numbered one.
        """
        name = self.node_name(kind, name)
        self.topology.add_operator(name, operator, parent, stores=tuple(stores))
        return name

    def sink(
        self,
        topic: str,
        parent: str,
        key_serde: Serde,
        value_serde: Serde,
        *,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Add a sink node.

        :param name: the node's name given by the user; None for a numbered one.
        """
        self.topology.add_sink(
            self.node_name("KSTREAM-SINK", name),
            topic,
            parent,
            key_serde=key_serde,
            value_serde=value_serde,
            partitioner=partitioner,
        )

    def selected(self, parent: str, selector: Callable[[Any, Any], Any], group: str | None) -> str:
        """Return the node that rekeys ``parent``; asking twice under one group name and function gives the
        same node.
        """
        known = self._selected.get((parent, group)) if group else None
        if known is not None and known[0] == selector:
            return known[1]
        name = self.operator(
            "KSTREAM-KEY-SELECT", FunctionOperator(kind=SELECT_KEY, function=selector), parent, name=group
        )
        if group and known is None:
            self._selected[parent, group] = (selector, name)
        return name

    def repartition(
        self,
        name: str,
        parent: str,
        key_serde: Serde,
        value_serde: Serde,
        *,
        drop: DropNulls | None = None,
        partitions: int | None = None,
    ) -> str:
        """Return the source that reads ``parent`` rekeyed; the same arguments give the same source.

        :param drop: operator that leaves out records; by default those without key or value. A record without
            key that goes through gets any partition.
        :param partitions: number of the topic's partitions; None for as many as the largest source of the
            writing subtopology has.
        :raises TopologyError: another stream was repartitioned under the name.
        """
        drop = drop or DropNulls()
        asked, site = (parent, key_serde, value_serde, drop, partitions), call_site()
        known, first = self._repartitions.get(name, (None, site))
        if known is not None and known != asked:
            raise TopologyError(
                f"two streams are repartitioned under the name {name!r}, at {first} and at {site}",
                fix='give one of the groups or joins a name of its own: name="..."; to share the topic, use '
                "one stream twice",
            )
        if known is None:
            self._repartitions[name] = asked, site
            self.topology.add_operator(f"{name}-repartition-filter", drop, parent)
            self.topology.add_repartition(
                name,
                f"{name}-repartition-filter",
                key_serde=key_serde,
                value_serde=value_serde,
                partitions=partitions,
            )
        return f"{name}-repartition-source"

    def add_table_store(self, spec: StoreSpec, node: str) -> None:
        """Add the store of the table that ``node`` keeps.

        :raises TopologyError: another table has the store: each would overwrite the other's entries.
        """
        site = call_site()
        known, first = self._tables.setdefault(spec.name, (node, site))
        if known != node:
            raise TopologyError(
                f"two tables are kept in the store {spec.name!r}, at {first} and at {site}",
                fix='give each table a store of its own: store="..."',
            )
        self.topology.add_state_store(spec, node)

    def add_join_store(self, spec: StoreSpec, nodes: Sequence[str]) -> None:
        """Add a store of a join and connect it to the join's nodes.

        :raises TopologyError: another join or a table has the store.
        """
        site = call_site()
        if spec.name in self._tables:
            raise TopologyError(
                f"the join at {site} would keep its elements in the store {spec.name!r}, which the join or "
                f"table at {self._tables[spec.name][1]} has",
                fix='give each join a name of its own: name="..."',
            )
        self._tables[spec.name] = nodes[0], site
        self.topology.add_state_store(spec, *nodes)


def _source(
    name: str,
    topics: tuple[str, ...],
    key_serde: Serde,
    value_serde: Serde,
    timestamps: TimestampExtractor | None,
) -> SourceNode:
    return SourceNode(
        name=name,
        topics=topics,
        key_serde=key_serde,
        value_serde=value_serde,
        timestamps=timestamps,
        site=call_site(),
    )


def _reading(source: SourceNode) -> tuple[object, ...]:
    return {*source.topics}, source.key_serde, source.value_serde


def kept_ahead(topology: Topology, joins: Sequence[str]) -> Topology:
    """Return the topology in which records without key pass each ``repartition`` above the given joins.

    Rule, that of Kafka Streams (KIP-962): ``repartition`` leaves records without key out, unless a left or
    outer join lies behind it, however far, but not behind a topic of the user's. Such a join joins them with
    None.

    :param joins: nodes of joins that take records without key.
    """
    ahead = _ahead(topology, joins)
    return dataclasses.replace(
        topology, nodes=tuple(_keeping(node) if node.name in ahead else node for node in topology.nodes)
    )


def _ahead(topology: Topology, joins: Sequence[str]) -> set[str]:
    """Return the nodes above the given ones, across internal topics, and the given ones."""
    nodes = {node.name: node for node in topology.nodes}
    writers = {node.topic: node.name for node in topology.nodes if isinstance(node, SinkNode)}
    internal = {topic.name: writers[topic.name] for topic in topology.internal_topics}
    waiting, ahead = [*joins], {*joins}
    while waiting:
        parents = {*_parents(nodes[waiting.pop()], internal)} - ahead
        waiting += parents
        ahead |= parents
    return ahead


def _parents(node: Node, internal: dict[str, str]) -> Iterable[str]:
    if isinstance(node, SourceNode):
        return [internal[topic] for topic in node.topics if topic in internal]
    return node.parents


def _keeping(node: Node) -> Node:
    # The filter of a fold's topic drops records without value too, and stays: the fold takes none without
    # key.
    if isinstance(node, ProcessorNode) and isinstance(node.operator, DropNulls):
        drop = node.operator
        if drop.keep_null_values:
            return dataclasses.replace(node, operator=dataclasses.replace(drop, keep_null_keys=True))
    return node
