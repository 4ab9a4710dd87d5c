"""A stream whose records are grouped by key; a fold makes a table of the groups."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.operator_traits import Operator
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.hints.call_site import call_site
from airflow_kstreams.streams.kstream.arguments import check_store, check_store_kind, check_table_keys
from airflow_kstreams.streams.kstream.known import KnownStream, KnownTable, kept_table
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.type_variables import K, V

#: A store's name, a whole spec (to switch caching or logging off), or None for a numbered name.
StoreArgument = str | StoreSpec[K, V] | None

#: What to pass instead of what is no function.
FUNCTIONS = "pass functions: aggregate(initializer, aggregator), reduce(reducer)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRecords:
    """A stream whose records are grouped by key.

    :param stream: what is known of it. If its key changed, the records must first move to the partition of
        their key; if its values are a table's, a fold must not keep them.
    :param name: of the repartition topic, None for one per store.
    :param call: the method that made the group, for messages.
    """

    stream: KnownStream
    name: str | None
    call: str

    def store_spec(self, store: StoreArgument, value_serde: Serde | None, call: str) -> StoreSpec:
        """Return the spec of a fold's store.

        :param store: what the user gave.
        :param value_serde: what the user gave, or the one serde there can be; what ``reduce`` makes of values
            has theirs unless given.
        :param call: the fold, for messages.
        :raises TopologyError: a serde is missing or differs from that of the store's spec.
        """
        check_serdes(call, value_serde=value_serde)
        check_store(store, call)
        if isinstance(store, StoreSpec):
            if value_serde is not None and value_serde != store.value_serde and call != "count":
                raise TopologyError(
                    f"{call} at {call_site()} is given {value_serde!r}, but its store {store.name!r} holds "
                    f"{store.value_serde!r}",
                    fix="leave out value_serde=, the StoreSpec has one",
                )
            if self.stream.serdes.key is not None:
                check_table_keys(store, self.stream.serdes.key, call)
            return store
        inherited = self.stream.serdes if call == "reduce" else None
        return StoreSpec(
            name=store or self.stream.graph.name("KSTREAM-AGGREGATE-STATE-STORE"),
            key_serde=self.stream.graph.serde("key", None, self.stream.serdes, self.call),
            value_serde=self.stream.graph.serde("value", value_serde, inherited, call),
        )

    def table_spec(self, store: StoreArgument, value_serde: Serde | None, call: str) -> StoreSpec:
        """Return the spec of the store of a fold without windows.

        :raises TopologyError: as :meth:`store_spec`, or the store is of another kind.
        """
        spec = self.store_spec(store, value_serde, call)
        check_store_kind(spec, StoreSpec, call)
        return spec

    def folded(self, call: str, operator: Operator, spec: StoreSpec, name: str | None = None) -> KnownTable:
        """Add a fold's node and store, and return its table.

        :param call: ``count``, ``reduce`` or ``aggregate``.
        :param spec: the store.
        :param name: of the node, None for a numbered one.
        :raises TopologyError: a serde is missing, or a name is taken.
        """
        graph = self.stream.graph
        kind = "KSTREAM-REDUCE" if call == "reduce" else "KSTREAM-AGGREGATE"
        anew = self.reads_anew(windowed=type(spec) is not StoreSpec)
        node = graph.operator(kind, operator, self.placed(spec.name, anew=anew), (spec.name,), name=name)
        return kept_table(graph, node, spec, redated=self.stream.redated and not anew)

    def reads_anew(self, *, windowed: bool) -> bool:
        """Say whether the records go through a topic before they are folded: to the partition of their key,
        and where windows are to go by times that stream time does not follow.
        """
        return self.stream.key_changed or (self.stream.redated and windowed)

    def placed(self, name: str, *, anew: bool) -> str:
        """Return the node that gives a fold its records: each in the partition of its key, and its value no
        other table's.

        :param name: of a repartition topic where the group has none of its own.
        :param anew: whether they go through it.
        """
        stream = self.stream
        if not anew:
            return stream.with_own_values().node
        return stream.graph.repartition(
            self.name or name,
            stream.node,
            stream.graph.serde("key", None, stream.serdes, self.call),
            stream.graph.serde("value", None, stream.serdes, self.call),
        )
