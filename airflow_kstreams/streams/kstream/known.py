"""What is known of a stream or a table while its topology is built.

The streams and tables that users see (``kstream.py``) return each other, and each holds one of these. What
their methods do is written in modules below them, as functions of these descriptions.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from airflow_kstreams.streams.graph.nodes import Operator
from airflow_kstreams.streams.graph.store_specs import SessionStoreSpec, Storage, StoreSpec, WindowStoreSpec
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph
from airflow_kstreams.streams.kstream.operators.stateless import CopyValues, DropNulls, PassThrough
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.windows import SessionWindow, SlidingWindow, TimeWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStream:
    """What is known of a stream.

    :param graph: what is being built.
    :param node: the node whose results the stream is.
    :param serdes: what is known of its bytes.
    :param key_changed: whether records may sit in another partition than their key belongs to.
    :param table_values: whether values may be, or hold, objects that a table goes on changing.
    """

    graph: StreamGraph
    node: str
    serdes: Serdes
    key_changed: bool = False
    table_values: bool = False

    def at(self, node: str) -> KnownStream:
        """Return the stream of another node's results, otherwise alike."""
        return dataclasses.replace(self, node=node)

    def behind(self, kind: str, operator: Operator) -> KnownStream:
        """Add a numbered operator node below, and return the stream of its results, otherwise alike."""
        return self.at(self.graph.operator(kind, operator, self.node))

    def with_new_key(self, call: str) -> KnownStream:
        """Return what is known after a method that changed the key."""
        return dataclasses.replace(self, serdes=self.serdes.with_new_key(call), key_changed=True)

    def with_new_value(self, call: str) -> KnownStream:
        """Return what is known after a method that changed the value."""
        return dataclasses.replace(self, serdes=self.serdes.with_new_value(call))

    def given(self, call: str, key: Serde | None, value: Serde | None) -> KnownStream:
        """Return what is known with the serdes that the user gave.

        :param call: the DSL method that was given them, for messages.
        :raises TopologyError: one of them is no serde.
        """
        return dataclasses.replace(self, serdes=self.serdes.given(call, key, value))

    def with_own_values(self) -> KnownStream:
        """Return a stream of the same records, whose values no table goes on changing."""
        return self.behind("KSTREAM-COPYVALUES", CopyValues()) if self.table_values else self

    def sent_to(self, topic: str, key: Serde | None, value: Serde | None, call: str) -> tuple[Serde, Serde]:
        """Add the sink that writes the stream to a topic, and return the serdes of what it writes.

        :param key: the serde that the user gave.
        :param value: the serde that the user gave.
        :param call: the DSL method, for messages.
        :raises TopologyError: a serde is missing.
        """
        key_serde = self.graph.serde("key", key, self.serdes, call)
        value_serde = self.graph.serde("value", value, self.serdes, call)
        self.graph.sink(topic, self.node, key_serde, value_serde)
        return key_serde, value_serde

    def repartitioned(
        self, partitions: int, name: str | None, key: Serde | None, value: Serde | None
    ) -> KnownStream:
        """Add a repartition topic, and return the stream of what is read from it.

        :param partitions: how many it has.
        :param name: of the topic, None for a numbered one.
        :param key: the serde that the user gave.
        :param value: the serde that the user gave.
        :raises TopologyError: a serde is missing, or another stream was repartitioned under the name.
        """
        graph = self.graph
        key_serde = graph.serde("key", key, self.serdes, "repartition")
        value_serde = graph.serde("value", value, self.serdes, "repartition")
        name = name or graph.name("KSTREAM-REPARTITION")
        drop = DropNulls(keep_null_values=True)
        node = graph.repartition(name, self.node, key_serde, value_serde, drop=drop, partitions=partitions)
        return KnownStream(graph=graph, node=node, serdes=Serdes(key=key_serde, value=value_serde))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedStream:
    """A stream, and for how long, and where, its elements are kept for those of another stream."""

    stream: KnownStream
    window: SlidingWindow
    storage: Storage = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """What is known of a table.

    :param graph: what is being built.
    :param node: the node that keeps the table.
    :param spec: its store.
    """

    graph: StreamGraph
    node: str
    spec: StoreSpec

    def changes(self, windowed_keys: Serde | None = None) -> KnownStream:
        """Add the node whose results are the table's changes, and return their stream.

        :param windowed_keys: the serde of its keys if they have windows; the stream then has other bytes than
            those by which its records were partitioned.
        """
        return KnownStream(
            graph=self.graph,
            node=self.graph.operator("KTABLE-TOSTREAM", PassThrough(type="to_stream"), self.node),
            serdes=Serdes(key=windowed_keys or self.spec.key_serde, value=self.spec.value_serde),
            key_changed=windowed_keys is not None,
            table_values=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWindowedTable:
    """What is known of a table of windows.

    :param spec: its store; that of ``table``.
    :param window: what it was folded by.
    :param suppressed: whether updates are held back until they are final.
    """

    table: KnownTable
    spec: WindowStoreSpec | SessionStoreSpec
    window: TimeWindow | SessionWindow
    suppressed: bool = False

    @property
    def keys(self) -> Serde:
        """The serde of its windowed keys."""
        if isinstance(self.window, SessionWindow):
            return builtin_serdes.session_windowed(self.spec.key_serde)
        return builtin_serdes.time_windowed(self.spec.key_serde, self.window.size_ms)

    def changes(self) -> KnownStream:
        """Add the node whose results are the table's changes, and return their stream."""
        return self.table.changes(self.keys)
