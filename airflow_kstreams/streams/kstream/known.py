"""Describes streams and tables while their topology is built: the node that gives their records, their
serdes, and the changes by the methods called so far.

The streams and tables that users see (``kstream.py``, ``ktable.py``) return each other, and each holds one of
these. What their methods do is written in modules below them, as functions of these descriptions.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import Operator, Partitioner
from airflow_kstreams.streams.graph.store_specs import (
    SessionStoreSpec,
    Storage,
    StoreSpec,
    VersionedStoreSpec,
    WindowStoreSpec,
)
from airflow_kstreams.streams.hints.function_checks import CallSite, call_site, check_functions
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph, check_name
from airflow_kstreams.streams.kstream.lasting_names import Reads, lasting_name, reads_together
from airflow_kstreams.streams.kstream.operators.function_kinds import COPY_VALUES, FunctionOperator
from airflow_kstreams.streams.kstream.operators.stateless import DropNulls, PassThrough
from airflow_kstreams.streams.kstream.operators.tables.derived_table import TableLatest
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde, Side
from airflow_kstreams.streams.windows import FoldWindow, SessionWindow, SlidingWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStream:
    """The description of a stream.

    :param graph: graph of the topology that is being built.
    :param node: name of the node that gives the stream's records.
    :param serdes: the serdes of its keys and values, where known.
    :param reads: topics that it is made of, for names of stores and topics.
    :param key_changed: True if records may lie in another partition than the one of their key.
    :param table_values: True if values may be, or hold, objects that a table goes on changing.
    :param redated: True if records may have other times than those that stream time goes by.
    :param had_window: True if the user gave a stream above it a window, for messages: no operator keeps one.
    """

    graph: StreamGraph
    node: str
    serdes: Serdes
    reads: Reads
    key_changed: bool = False
    table_values: bool = False
    redated: bool = False
    had_window: bool = False

    def at(self, node: str) -> KnownStream:
        """Return the same description with another node."""
        return dataclasses.replace(self, node=node)

    def behind(self, kind: str, operator: Operator, name: str | None = None) -> KnownStream:
        """Add an operator node below, and return the same description with this node.

        :param kind: the beginning of a numbered name, e.g. ``KSTREAM-FILTER``.
        :param name: the node's name given by the user; None for a numbered one.
        """
        return self.at(self.graph.operator(kind, operator, self.node, name=name))

    def with_new_key(self, call: str) -> KnownStream:
        """Return the description after a method that changed the key."""
        return dataclasses.replace(self, serdes=self.serdes.with_new_key(call), key_changed=True)

    def with_new_value(self, call: str) -> KnownStream:
        """Return the description after a method that changed the value."""
        return dataclasses.replace(self, serdes=self.serdes.with_new_value(call))

    def given(self, call: str, key: Serde | None, value: Serde | None) -> KnownStream:
        """Return the description with the serdes that the user gave.

        :param call: name of the DSL method that was given the serdes, for messages.
        :raises TopologyError: one of them is no serde.
        """
        return dataclasses.replace(self, serdes=self.serdes.given(call, key, value))

    def with_own_values(self) -> KnownStream:
        """Return a stream of the same records, whose values no table goes on changing."""
        return (
            self.behind("KSTREAM-COPYVALUES", FunctionOperator(kind=COPY_VALUES, function=copy.deepcopy))
            if self.table_values
            else self
        )

    def sent_to(
        self,
        topic: str,
        key: Serde | None,
        value: Serde | None,
        call: str,
        *,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> tuple[Serde, Serde]:
        """Add the sink that writes the stream to a topic, and return its serdes of keys and values.

        :param key: serde of keys given by the user; None if there is none.
        :param value: serde of values given by the user; None if there is none.
        :param call: the DSL method's call, for messages, e.g. ``send_to('words')``.
        :param partitioner: partitioner given by the user; None if there is none.
        :param name: the node's name given by the user; None for a numbered one.
        :raises TopologyError: a serde is missing, or the partitioner is no function.
        """
        if partitioner is not None:
            check_functions(call, partitioner=partitioner)
        key_serde = self.graph.serde("key", key, self.serdes, call)
        value_serde = self.graph.serde("value", value, self.serdes, call)
        self.graph.sink(topic, self.node, key_serde, value_serde, partitioner=partitioner, name=name)
        return key_serde, value_serde

    def repartitioned(
        self, partitions: int, name: str | None, key: Serde | None, value: Serde | None
    ) -> KnownStream:
        """Add a repartition topic, and return the stream of the records read from it.

        :param partitions: number of its partitions.
        :param name: the topic's name given by the user; None for one made of the topics that the stream
            reads.
        :param key: serde of keys given by the user; None if there is none.
        :param value: serde of values given by the user; None if there is none.
        :raises TopologyError: a serde is missing, or another stream was repartitioned under the name.
        """
        graph = self.graph
        key_serde = graph.serde("key", key, self.serdes, "repartition")
        value_serde = graph.serde("value", value, self.serdes, "repartition")
        check_name(name)
        name = name or lasting_name(self.reads)
        drop = DropNulls(keep_null_values=True)
        node = graph.repartition(name, self.node, key_serde, value_serde, drop=drop, partitions=partitions)
        serdes = Serdes(key=key_serde, value=value_serde)
        return KnownStream(graph=graph, node=node, serdes=serdes, reads=self.reads)


def merged(streams: Sequence[KnownStream], name: str | None) -> KnownStream:
    """Add the node that merges streams of one builder, and return the stream of its results.

    :param name: the node's name given by the user; None for a numbered one.
    :raises TopologyError: there is one stream only, one is named twice, or two have different serdes; the
        error names the user's line.
    """
    graph, nodes = streams[0].graph, [stream.node for stream in streams]
    serdes = _merged_serdes(nodes, [stream.serdes for stream in streams])
    node = graph.node_name("KSTREAM-MERGE", name)
    graph.topology.add_operator(node, PassThrough(type="merge"), *nodes)
    return KnownStream(
        graph=graph,
        node=node,
        serdes=serdes,
        reads=reads_together(stream.reads for stream in streams),
        key_changed=any(stream.key_changed for stream in streams),
        table_values=any(stream.table_values for stream in streams),
        redated=any(stream.redated for stream in streams),
    )


def _merged_serdes(nodes: Sequence[str], streams: Sequence[Serdes]) -> Serdes:
    """Return the serdes of a merged stream.

    A side that one stream has lost is lost for all: its objects may be of another kind than the known serde
    writes.
    """
    site = call_site()
    if len({*nodes}) < max(len(nodes), 2):
        raise TopologyError(
            f"merge at {site} needs two or more different streams, each once",
            fix="pass the other streams; to double records, use flat_map_values(lambda v: [v, v])",
        )
    key, key_lost = _merged("key", streams, site)
    value, value_lost = _merged("value", streams, site)
    return Serdes(key=key, value=value, key_lost=key_lost, value_lost=value_lost)


def _merged(side: Side, streams: Sequence[Serdes], site: CallSite) -> tuple[Serde | None, str]:
    known = [serde for stream in streams if (serde := stream.known(side)) is not None]
    other = next((serde for serde in known if serde != known[0]), None)
    if other is not None:
        forget = "map_values(lambda v: v)" if side == "value" else "select_key(lambda k, v: k)"
        raise TopologyError(
            f"merge at {site} is given streams of different {side} serdes, {known[0]!r} and {other!r}",
            fix=f"end one stream with {forget}, and pass {side}_serde= where the merged one is written",
        )
    if len(known) == len(streams):
        return known[0], ""
    return None, next(stream.lost(side) for stream in streams if stream.known(side) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedStream:
    """A stream whose elements wait for those of another stream.

    :param stream: the stream.
    :param window: the time for which an element waits.
    :param storage: place in which waiting elements are kept.
    """

    stream: KnownStream
    window: SlidingWindow
    storage: Storage = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """The description of a table.

    :param graph: graph of the topology that is being built.
    :param node: name of the node that keeps or derives the table.
    :param serdes: the serdes of its keys and values, where known.
    :param reads: topics that it is made of, for names of stores and topics.
    :param spec: spec of the store that it is kept in; None if it is derived from others each time.
    :param kept_in: specs of the stores that its entries are read from: its own, or those of the tables that
        it is derived from.
    :param windowed: True if its keys have windows; the keys of its stream then have other bytes than those by
        which its records were partitioned.
    :param repeatable: True if its entries are kept in a store, or can be made again from others.
    :param redated: True if its changes may have other times than those that stream time goes by.
    :param passing: True if its node hands values on and keeps nothing from which they can be made again.
    :param versioned: True if its store keeps versions, so that it can be read as of a time.
    """

    graph: StreamGraph
    node: str
    serdes: Serdes
    reads: Reads
    spec: StoreSpec | None
    kept_in: tuple[StoreSpec, ...]
    windowed: bool = False
    repeatable: bool = True
    redated: bool = False
    passing: bool = False
    versioned: bool = False

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores that its entries are read from."""
        return tuple(spec.name for spec in self.kept_in)

    def latest(self) -> KnownTable:
        """Return the table of each key's latest value: behind an added node if this table has versions, else
        this table.
        """
        if not self.versioned:
            return self
        node = self.graph.operator("KTABLE-LATEST", TableLatest(parent=self.node), self.node)
        return dataclasses.replace(self, node=node, spec=None, versioned=False)

    def changes(self, name: str | None = None) -> KnownStream:
        """Add the node whose results are the table's changes, and return their stream.

        :param name: the node's name given by the user; None for a numbered one.
        """
        return KnownStream(
            graph=self.graph,
            node=self.graph.operator("KTABLE-TOSTREAM", PassThrough(type="to_stream"), self.node, name=name),
            serdes=self.serdes,
            reads=self.reads,
            key_changed=self.windowed,
            table_values=True,
            redated=self.redated,
        )


def kept_table(
    graph: StreamGraph, node: str, spec: StoreSpec, reads: Reads, *, redated: bool = False
) -> KnownTable:
    """Add the store of a table that a node keeps, and return the table's description.

    :param reads: topics that the table is made of.
    :param redated: True if its changes may have other times than those that stream time goes by.
    :raises TopologyError: another table is kept in the store.
    """
    graph.add_table_store(spec, node)
    serdes = Serdes(key=spec.key_serde, value=spec.value_serde)
    return KnownTable(
        graph=graph,
        node=node,
        serdes=serdes,
        reads=reads,
        spec=spec,
        kept_in=(spec,),
        redated=redated,
        versioned=isinstance(spec, VersionedStoreSpec),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWindowedTable:
    """The description of a table of windows.

    :param table: the table's description, with plain keys.
    :param spec: spec of the store of ``table``.
    :param window: the windows that it was folded by.
    :param suppressed: True if updates are held back until they are final.
    """

    table: KnownTable
    spec: WindowStoreSpec | SessionStoreSpec
    window: FoldWindow
    suppressed: bool = False

    @property
    def keys(self) -> Serde:
        """The serde of its windowed keys."""
        if isinstance(self.window, SessionWindow):
            return builtin_serdes.session_windowed(self.spec.key_serde)
        return builtin_serdes.time_windowed(self.spec.key_serde, self.window.size_ms)

    @property
    def entries(self) -> KnownTable:
        """The table with its windowed keys."""
        serdes = dataclasses.replace(self.table.serdes, key=self.keys)
        return dataclasses.replace(self.table, serdes=serdes, windowed=True)
