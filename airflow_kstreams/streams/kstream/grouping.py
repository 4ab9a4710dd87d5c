"""What a grouped stream knows of itself, and how it becomes the input of a fold."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kstreams.streams.call_site import call_site
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.arguments import check_table_keys
from airflow_kstreams.streams.kstream.graph import Serdes, StreamGraph
from airflow_kstreams.streams.kstream.stateless import CopyValues
from airflow_kstreams.streams.serde.base import Serde

#: A store's name, a whole spec (to switch caching or logging off), or None for a numbered name.
StoreArgument = str | StoreSpec | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """How a stream is grouped.

    :param serdes: what is known of the grouped records' bytes.
    :param repartition: whether the records must first move to the partition of their key.
    :param copy_values: whether values may be objects that a table goes on changing; a fold must not keep
        those.
    :param name: of the repartition topic, None for one per store.
    :param call: the method that made the group, for messages.
    """

    serdes: Serdes
    repartition: bool
    copy_values: bool
    name: str | None
    call: str


class GroupedRecords:
    """A stream and how it is grouped.

    :param graph: what is being built.
    :param node: the node whose results are grouped.
    :param grouping: how.
    """

    def __init__(self, graph: StreamGraph, node: str, grouping: Grouping) -> None:
        self.graph = graph
        self.serdes = grouping.serdes
        self._node = node
        self._grouping = grouping

    def store_spec(
        self, store: StoreArgument, value_serde: Serde | None, call: str, *, inherited: Serdes | None = None
    ) -> StoreSpec:
        """Return the spec of a fold's store.

        :param store: what the user gave.
        :param value_serde: what the user gave, or the one serde there can be.
        :param call: the fold, for messages.
        :param inherited: where to look for a value serde that is not given.
        :raises TopologyError: a serde is missing or differs from that of the store's spec.
        """
        if isinstance(store, StoreSpec):
            if value_serde is not None and value_serde != store.value_serde and call != "count":
                raise TopologyError(
                    f"{call} at {call_site()} is given {value_serde!r}, but its store {store.name!r} holds "
                    f"{store.value_serde!r}",
                    fix="leave out value_serde=, the StoreSpec has one",
                )
            if self.serdes.key is not None:
                check_table_keys(store, self.serdes.key, call)
            return store
        return StoreSpec(
            name=store or self.graph.name("KSTREAM-AGGREGATE-STATE-STORE"),
            key_serde=self.graph.serde("key", None, self.serdes, self._grouping.call),
            value_serde=self.graph.serde("value", value_serde, inherited, call),
        )

    def parent(self, spec: StoreSpec) -> str:
        """Return the node that gives a fold its records: each in the partition of its key, and its value no
        other table's.
        """
        if self._grouping.repartition:
            call = self._grouping.call
            return self.graph.repartition(
                self._grouping.name or spec.name,
                self._node,
                self.graph.serde("key", None, self.serdes, call),
                self.graph.serde("value", None, self.serdes, call),
            )
        if self._grouping.copy_values:
            return self.graph.operator("KSTREAM-COPYVALUES", CopyValues(), self._node)
        return self._node
