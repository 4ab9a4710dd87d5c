"""Checks what users pass to the DSL, so that a mistake is refused at the line that makes it, and defines the
grouped stream, which a fold makes a table of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import Operator
from airflow_kstreams.streams.graph.store_specs import StoreSpec, VersionedStoreSpec
from airflow_kstreams.streams.hints.function_checks import call_site
from airflow_kstreams.streams.kstream.graph import StreamGraph
from airflow_kstreams.streams.kstream.known import KnownStream, KnownTable, kept_table
from airflow_kstreams.streams.kstream.lasting_names import fold_kind, lasting_name
from airflow_kstreams.streams.naming.topic_names import LEGAL_TOPIC, is_legal_topic
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.type_variables import K, V
from airflow_kstreams.streams.windows import FoldWindow

_ONE_BY_ONE = "name them one by one: {call}(definition, 'totals', 'counts')"
#: Type of an argument that is no store -> the remedy.
_NO_STORES = {
    "list": _ONE_BY_ONE,
    "tuple": _ONE_BY_ONE,
    "set": _ONE_BY_ONE,
    "NoneType": "leave it out where there is no store",
    "KTable": "pass the name of the table's store: {call}(definition, table.store)",
    "GlobalKTable": "join with the global table above; its entries are in no store of a task",
}
#: The remedy for a function in the place of a topic.
_TOPICS_BY_RECORD = (
    "write split(small=predicate), and send_to(topic) of each branch; or in a processor "
    "context.send(topic, key, value)"
)


class Partner(Protocol):
    """A stream or table that another one may be brought together with."""

    @property
    def _known(self) -> KnownStream | KnownTable: ...


def check_topic(topic: object, call: str, *, fix: str = "", legal: bool = False) -> None:
    """Refuse an argument that is no topic's name.

    :param call: name of the DSL method, for the message.
    :param fix: the remedy, for the message; a usual one by default.
    :param legal: True also refuses a name that Kafka does not allow: needed where no node checks it.
    :raises TopologyError: the argument is no text, or such a name.
    """
    if not isinstance(topic, str):
        raise TopologyError(
            f"{call} at {call_site()} is given {type(topic).__name__}, expected a topic's name",
            fix=_TOPICS_BY_RECORD if callable(topic) else fix or f"pass a name, {call}('a')",
        )
    if legal and not is_legal_topic(topic):
        raise TopologyError(
            f"{call} at {call_site()} reads {topic!r}, which Kafka does not allow for a topic",
            fix=LEGAL_TOPIC,
        )


def check_partitions(partitions: object, call: str) -> None:
    """Refuse an argument that is no number of partitions.

    :param call: name of the DSL method, for the message.
    :raises TopologyError: the argument is no whole number, or less than 1.
    """
    if type(partitions) is not int or partitions < 1:
        raise TopologyError(
            f"{call} at {call_site()} is given {partitions!r} as partitions, expected how many the topic has",
            fix="give a whole number from 1 on",
        )


def check_store(store: object, call: str) -> None:
    """Refuse an argument that is neither a store's name nor its spec; None is left to the caller.

    :param call: name of the DSL method, for the message.
    :raises TopologyError: the argument is another object.
    """
    if store is not None and (store == "" or not isinstance(store, str | StoreSpec)):
        raise TopologyError(
            f"{call} at {call_site()} is given {store!r} as store, expected a name or a StoreSpec",
            fix="pass the store's name, e.g. store='totals', or StoreSpec(name='totals', ...)",
        )


def check_used_stores(stores: Iterable[object], call: str) -> None:
    """Refuse an argument that names no store.

    :param stores: the arguments that should name stores.
    :param call: name of the DSL method, for the message.
    :raises TopologyError: one of them is neither a name nor a spec.
    """
    for store in stores:
        if isinstance(store, str | StoreSpec):
            continue
        kind = type(store).__name__
        raise TopologyError(
            f"{call} at {call_site()} is given {kind} as a store, expected a name or a StoreSpec",
            fix=_NO_STORES.get(kind, "pass the store's name, or a StoreSpec that says what to make").format(
                call=call
            ),
        )


def check_partner(partner: object, kind: type[Partner], graph: StreamGraph, call: str) -> None:
    """Refuse to bring a stream together with anything but a stream or table of its own builder.

    :param kind: ``KStream`` or ``KTable``.
    :param graph: graph of the stream whose method was called.
    :param call: name of the DSL method, for the message.
    :raises TopologyError: the partner is of another kind or builder.
    """
    if not isinstance(partner, kind) or partner._known.graph is not graph:
        whose = " of another builder" if isinstance(partner, kind) else ""
        raise TopologyError(
            f"{call} at {call_site()} is given a {type(partner).__name__}{whose}, expected a {kind.__name__} "
            "of the same builder",
            fix="make both with one builder; table.to_stream() gives a stream, builder.table(topic) a table",
        )


def no_window_error(which: str, call: str, known: KnownStream) -> TopologyError:
    """Describe a join of two streams of which one has no window: its elements would be kept for ever.

    :param which: place of this stream in the call: ``it is given`` or ``it is called on``.
    :param call: name of the DSL method.
    :param known: description of the stream without a window.
    """
    joining = f"{call} at {call_site()} joins two streams, and the one {which}"
    if known.had_window:
        return TopologyError(
            f"{joining} has lost its window: no operator keeps one",
            fix=f"give it right before the join: stream.filter(...).with_window(window).{call}(...)",
        )
    return TopologyError(
        f"{joining} has no window",
        fix="call with_window(SlidingWindow(size_ms=...)) on both, right before the join",
    )


def no_store_error(call: str) -> TopologyError:
    """Describe a call that asks for the store of a table that has none.

    :param call: name of the DSL method, for the message.
    """
    return TopologyError(
        f"{call} at {call_site()} is asked of a table that is kept in no store of its own",
        fix="name a store where the table is made: store='names'",
    )


def check_source_of_tables(table: KnownTable, call: str) -> None:
    """Refuse to make a table of one whose old values cannot be asked for.

    :param call: name of the DSL method, for the message.
    :raises TopologyError: a store of the table has no changelog, or its entries cannot be made again.
    """
    check_logged(table.kept_in, call)
    if not table.repeatable:
        raise TopologyError(
            f"{call} at {call_site()} is called on a table whose values a transformer with stores makes: "
            "asked for an old value, it would make another one",
            fix="keep them: transform_values(definition, ..., store='values')",
        )


def refuse_windows(table: KnownTable, call: str) -> None:
    """Refuse to join a table of windows with another table.

    :param call: name of the DSL method, for the message.
    :raises TopologyError: the table is one of windows.
    """
    if table.windowed:
        raise TopologyError(
            f"{call} at {call_site()} joins the table of windows {table.kept_in[0].name!r}: windows leave it "
            "when they close, and the join would not see them any more",
            fix="send to_stream() to a topic of yours and join builder.table(topic)",
        )


def check_logged(specs: Iterable[StoreSpec], call: str) -> None:
    """Refuse stores whose values would be lost when a run ends.

    :param specs: specs of the stores from which a table's old values are read.
    :param call: name of the DSL method, for the message.
    :raises TopologyError: one of them has no changelog.
    """
    for spec in specs:
        if not spec.logged:
            raise TopologyError(
                f"{call} at {call_site()} needs the changelog of the store {spec.name!r}: the next run would "
                "not know which values were there before",
                fix="leave out logged=False",
            )


def check_table_keys(spec: StoreSpec, key_serde: Serde, call: str) -> None:
    """Refuse a table whose store writes keys by another serde than the topic that they came from.

    Joins find a table's partition by the bytes of its store's keys.

    :param key_serde: key serde of the records that the table is made of.
    :param call: name of the DSL method, for the message.
    :raises TopologyError: the serdes differ.
    """
    if spec.key_serde != key_serde:
        raise TopologyError(
            f"{call} at {call_site()} reads keys of {key_serde!r}, but its store {spec.name!r} holds keys of "
            f"{spec.key_serde!r}",
            fix="give the StoreSpec the key serde of the records",
        )


def check_table_values(spec: StoreSpec, value_serde: Serde | None, call: str) -> None:
    """Refuse a serde of values beside a store that has another one.

    :param value_serde: the serde that the user gave; None for ``count``, which has one of its own.
    :param call: name of the DSL method, for the message.
    :raises TopologyError: the two differ.
    """
    if value_serde is not None and value_serde != spec.value_serde and call != "count":
        raise TopologyError(
            f"{call} at {call_site()} is given {value_serde!r}, but its store {spec.name!r} holds "
            f"{spec.value_serde!r}",
            fix="leave out value_serde=, the StoreSpec has one",
        )


def check_store_kind(spec: StoreSpec, kind: type[StoreSpec], call: str) -> None:
    """Refuse a spec of another kind of store than the one in which the table is kept.

    :param call: name of the DSL method, for the message.
    :raises TopologyError: the spec is of another kind.
    """
    if type(spec) is not kind:
        raise TopologyError(
            f"{call} at {call_site()} is given the store {spec.name!r} as a {type(spec).__name__}, but keeps "
            f"its table in a store by {kind.__name__}",
            fix="pass a plain StoreSpec, or the store's name",
        )


def check_table_store(spec: StoreSpec, call: str) -> None:
    """Refuse a store that can keep neither one value per key nor its versions.

    :param call: name of the DSL method, for the message.
    :raises TopologyError: the spec is of another kind.
    """
    if type(spec) is not VersionedStoreSpec:
        check_store_kind(spec, StoreSpec, call)


#: A store's name, a whole spec (to switch caching or logging off), or None for a name of what it is.
StoreArgument = str | StoreSpec[K, V] | None

#: The remedy where an argument of a fold is no function.
FUNCTIONS = "pass functions: aggregate(initializer, aggregator), reduce(reducer)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRecords:
    """A stream whose records are grouped by key.

    :param stream: the stream. If its key changed, the records must first move to the partition of their key;
        if its values are a table's, a fold must not keep them.
    :param name: the repartition topic's name given by the user; None for a topic per store.
    :param call: name of the DSL method that made the group, for messages.
    """

    stream: KnownStream
    name: str | None
    call: str

    def store_spec(
        self, store: StoreArgument, value_serde: Serde | None, call: str, window: FoldWindow | None = None
    ) -> StoreSpec:
        """Return the spec of a fold's store.

        :param store: name or spec given by the user; None for a name made of the topics that the stream
            reads.
        :param value_serde: the serde that the user gave, or the only possible one; without it, results of
            ``reduce`` have the serde of the values.
        :param call: name of the fold's DSL method, for messages.
        :param window: windows by which the records are folded; None for a fold without windows.
        :raises TopologyError: a serde is missing or differs from that of the store's spec.
        """
        check_serdes(call, value_serde=value_serde)
        check_store(store, call)
        graph, reads = self.stream.graph, self.stream.reads
        name = graph.store_name(store, reads, self._kind(call, window), call)
        if isinstance(store, StoreSpec):
            check_table_values(store, value_serde, call)
            if self.stream.serdes.key is not None:
                check_table_keys(store, self.stream.serdes.key, call)
            return store
        inherited = self.stream.serdes if call == "reduce" else None
        return StoreSpec(
            name=name,
            key_serde=graph.serde("key", None, self.stream.serdes, self.call),
            value_serde=graph.serde("value", value_serde, inherited, call),
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
        :param operator: the operator that folds.
        :param spec: the store's spec.
        :param name: the node's name; None for a numbered one.
        :raises TopologyError: a serde is missing, or a name is taken.
        """
        graph = self.stream.graph
        kind = "KSTREAM-REDUCE" if call == "reduce" else "KSTREAM-AGGREGATE"
        anew = self.reads_anew(windowed=type(spec) is not StoreSpec)
        node = graph.operator(kind, operator, self.placed(spec.name, anew=anew), (spec.name,), name=name)
        reads = (lasting_name(self.stream.reads, self._kind(call, operator.traits.windows.get(spec.name))),)
        return kept_table(graph, node, spec, reads, redated=self.stream.redated and not anew)

    def _kind(self, call: str, window: FoldWindow | None) -> str:
        return fold_kind("cogroup" if self.call == "cogroup" else call, window)

    def reads_anew(self, *, windowed: bool) -> bool:
        """Return True if the records go through a repartition topic before they are folded: to get to their
        key's partition, or because windows go by times that stream time does not follow.
        """
        return self.stream.key_changed or (self.stream.redated and windowed)

    def placed(self, name: str, *, anew: bool) -> str:
        """Return the node that gives a fold its records: each in the partition of its key, and its value no
        other table's.

        :param name: the repartition topic's name where the group has none.
        :param anew: True if the records go through a repartition topic.
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
