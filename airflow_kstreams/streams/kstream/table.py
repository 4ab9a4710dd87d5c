"""A table: the newest value of each key."""

from __future__ import annotations

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph
from airflow_kstreams.streams.kstream.kstream import KStream
from airflow_kstreams.streams.kstream.stateless import PassThrough


class KTable:
    """A topic's newest values or the result of a fold per key, kept in a store.

    :param graph: what is being built.
    :param node: the node that keeps the table.
    :param spec: its store.
    """

    def __init__(self, graph: StreamGraph, node: str, spec: StoreSpec) -> None:
        self._graph = graph
        self._node = node
        self._spec = spec

    @property
    def store(self) -> str:
        """Name of the table's store; processors that name it in ``KStream.process`` may read it.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> prices = builder.table("prices", store="newest-prices")
        >>> prices.store
        'newest-prices'
        """
        return self._spec.name

    @property
    def spec(self) -> StoreSpec:
        """The table's store: its name, and the serdes of keys and values."""
        return self._spec

    def to_stream(self) -> KStream:
        """Return the stream of the table's changes: (key, newest value), or (key, None) for a deleted key.

        A table with a cached store changes once per key and commit point, any other with every record. The
        values belong to the table's store: a processor that keeps one keeps a copy.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.table("prices").to_stream().send_to("price-changes")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("prices", key="a", value=3, timestamp_ms=0)
        ...     driver.pipe_input("prices", key="a", value=None, timestamp_ms=1)
        ...     [(record.key, record.value) for record in driver.read_output("price-changes")]
        [('a', 3), ('a', None)]
        """
        node = self._graph.operator("KTABLE-TOSTREAM", PassThrough(type="to_stream"), self._node)
        serdes = Serdes(key=self._spec.key_serde, value=self._spec.value_serde)
        return KStream(self._graph, node, serdes, table_values=True)

    def suppress(self) -> KTable:
        """Hold back results until they are final; for tables of windows only.

        :raises TopologyError: always; a table without windows is never final.
        """
        raise TopologyError(
            f"suppress at {call_site()} is called on the table {self.store!r}, which has no windows and so "
            "is never final",
            fix="fold per window: group_by_key().windowed_by(TumblingWindow(size_ms=3_600_000))",
        )
