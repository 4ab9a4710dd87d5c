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
from airflow_kstreams.streams.kstream.operators.function_kinds import COPY_VALUES
from airflow_kstreams.streams.kstream.operators.stateless import DropNulls, PassThrough, Stateless
from airflow_kstreams.streams.kstream.operators.tables.derived_table import TableLatest
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde, Side
from airflow_kstreams.streams.windows import FoldWindow, SessionWindow, SlidingWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStream:
    """A stream, as its builder knows it.

    :param graph: the topology that is being built.
    :param node: the node whose results the stream is.
    :param serdes: the serdes of its keys and values, where known.
    :param reads: what it is made of, for names of what lasts.
    :param key_changed: whether records may sit in another partition than their key belongs to.
    :param table_values: whether values may be, or hold, objects that a table goes on changing.
    :param redated: whether records may have other times than those that stream time goes by.
    :param had_window: whether the user gave a stream above it a window, for messages: no operator keeps one.
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
        """Return the stream of another node's results, otherwise alike."""
        return dataclasses.replace(self, node=node)

    def behind(self, kind: str, operator: Operator, name: str | None = None) -> KnownStream:
        """Add an operator node below, and return the stream of its results, otherwise alike.

        :param kind: begins the name of a node that the user gave none.
        :param name: that the user gave.
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

        :param call: the DSL method that was given them, for messages.
        :raises TopologyError: one of them is no serde.
        """
        return dataclasses.replace(self, serdes=self.serdes.given(call, key, value))

    def with_own_values(self) -> KnownStream:
        """Return a stream of the same records, whose values no table goes on changing."""
        return (
            self.behind("KSTREAM-COPYVALUES", Stateless(kind=COPY_VALUES, function=copy.deepcopy))
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
        """Add the sink that writes the stream to a topic, and return the serdes of what it writes.

        :param key: the serde that the user gave.
        :param value: the serde that the user gave.
        :param call: the DSL method, for messages.
        :param partitioner: that the user gave.
        :param name: that the user gave the node.
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
        """Add a repartition topic, and return the stream of what is read from it.

        :param partitions: number of its partitions.
        :param name: of the topic, None for one of what the stream is.
        :param key: the serde that the user gave.
        :param value: the serde that the user gave.
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

    :param name: that the user gave the node.
    :raises TopologyError: there is one stream only, one is named twice, or two have different serdes; with
        the user's line.
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
    """Return the description of a merged stream.

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
    """A stream, and for how long, and where, its elements are kept for those of another stream."""

    stream: KnownStream
    window: SlidingWindow
    storage: Storage = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """A table, as its builder knows it.

    :param graph: the topology that is being built.
    :param node: the node that keeps or derives the table.
    :param serdes: the serdes of its keys and values, where known.
    :param reads: what it is made of, for names of what lasts.
    :param spec: the store that it is kept in; None if it is derived from others each time.
    :param kept_in: the stores that its entries are read from: its own, or those of the tables it is derived
        from.
    :param windowed: whether its keys have windows; its stream then has other bytes than those by which its
        records were partitioned.
    :param repeatable: whether its entries can be made again, where it is kept in no store.
    :param redated: whether its changes may have other times than those that stream time goes by.
    :param passing: whether its node hands values on and keeps nothing that they can be made of again.
    :param versioned: whether it can be read as of a moment.
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
        """Return the table of each key's latest value; behind a node of its own if this one has versions."""
        if not self.versioned:
            return self
        node = self.graph.operator("KTABLE-LATEST", TableLatest(parent=self.node), self.node)
        return dataclasses.replace(self, node=node, spec=None, versioned=False)

    def changes(self, name: str | None = None) -> KnownStream:
        """Add the node whose results are the table's changes, and return their stream.

        :param name: that the user gave the node.
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

    :param reads: what the table is made of.
    :param redated: whether its changes may have other times than those that stream time goes by.
    :raises TopologyError: another table keeps its entries there.
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
    """A table of windows, as its builder knows it.

    :param spec: its store; that of ``table``.
    :param window: the windows that it was folded by.
    :param suppressed: whether updates are held back until they are final.
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
