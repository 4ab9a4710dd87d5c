"""Folds several grouped streams into one table: adds the nodes that bring them together, and the fold.

Invariant: equal keys of all streams lie in one task. Their keys have one serde, a stream whose key changed
goes through a repartition topic of its own, and the topics of a task that shares a store must have the same
partitions (``batch/run/assignment.py``).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import call_site, check_functions
from airflow_kstreams.streams.kstream.arguments import FUNCTIONS, GroupedRecords, StoreArgument
from airflow_kstreams.streams.kstream.graph import Serdes
from airflow_kstreams.streams.kstream.known import KnownStream, KnownTable, KnownWindowedTable
from airflow_kstreams.streams.kstream.lasting_names import lasting_name, reads_together
from airflow_kstreams.streams.kstream.operators.aggregation import (
    Aggregator,
    CogroupInput,
    Initializer,
    KeyFold,
    Merger,
    aggregating,
    cogrouping,
)
from airflow_kstreams.streams.kstream.operators.stateless import PassThrough
from airflow_kstreams.streams.kstream.windows.window_tables import aggregating_windows, folded_by_window
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.windows import FoldWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Cogroup:
    """Grouped streams with the aggregator of each.

    :param groups: the grouped streams, one or more of one builder.
    :param aggregators: the aggregator of each group.
    """

    groups: tuple[GroupedRecords, ...] = ()
    aggregators: tuple[Aggregator, ...] = ()

    def joined_by(self, group: GroupedRecords, aggregator: Aggregator) -> Cogroup:
        """Return the cogroup with one more grouped stream.

        :raises TopologyError: the aggregator is no function, or the group is of another builder, in the
            cogroup already, or has keys of another serde.
        """
        check_functions("cogroup", fix="pass a function: cogroup(aggregator)", aggregator=aggregator)
        if any(known is group for known in self.groups):
            raise TopologyError(
                f"cogroup at {call_site()} is given a group twice",
                fix="fold it once, by one aggregator that does both",
            )
        for known in self.groups[:1]:
            _check_together(known, group)
        return Cogroup(groups=(*self.groups, group), aggregators=(*self.aggregators, aggregator))

    def aggregated(
        self, initializer: Initializer, store: StoreArgument, value_serde: Serde | None, name: str | None
    ) -> KnownTable:
        """Add the fold with its store, and return its table.

        :raises TopologyError: the initializer is no function, a serde is missing, or a name is taken.
        """
        check_functions("aggregate", fix=FUNCTIONS, initializer=initializer)
        spec = self._all.table_spec(store, value_serde, "aggregate")
        fold = KeyFold(fold=aggregating(initializer, cogrouping(self.aggregators)), store=spec)
        return self._merged(spec.name, windowed=False).folded("aggregate", fold, spec, name)

    def aggregated_by_window(
        self,
        window: FoldWindow,
        initializer: Initializer,
        merger: Merger | None,
        store: StoreArgument,
        value_serde: Serde | None,
        name: str | None,
    ) -> KnownWindowedTable:
        """Add the fold by windows with its store, and return its table.

        :raises TopologyError: as :meth:`aggregated`, or the window and the merger do not fit.
        """
        fold = aggregating_windows(window, initializer, cogrouping(self.aggregators), merger)
        spec = self._all.store_spec(store, value_serde, "aggregate", window)
        return folded_by_window(self._merged(spec.name, windowed=True), window, fold, spec, None, name)

    @property
    def _all(self) -> GroupedRecords:
        """The description of all streams' records, for the spec of the fold's store."""
        first = self.groups[0]
        stream = dataclasses.replace(
            first.stream,
            serdes=Serdes(key=_key_serde(first), value=None),
            reads=reads_together(group.stream.reads for group in self.groups),
        )
        return GroupedRecords(stream=stream, name=None, call="cogroup")

    def _merged(self, store: str, *, windowed: bool) -> GroupedRecords:
        """Add the nodes that bring the streams together, and return the group of all.

        :param store: name of the fold's store, with which the names of repartition topics begin unless the
            user named them.
        :param windowed: True if the records are to be folded by windows.
        """
        graph, folded = self.groups[0].stream.graph, self._all.stream
        inputs = []
        for number, group in enumerate(self.groups):
            name = f"{store}-{lasting_name(group.stream.reads)}"
            placed = group.placed(name, anew=group.reads_anew(windowed=windowed))
            inputs.append(graph.operator("COGROUPKSTREAM-INPUT", CogroupInput(number=number), placed))
        node = graph.name("COGROUPKSTREAM-MERGE")
        graph.topology.add_operator(node, PassThrough(type="merge"), *inputs)
        redated = not windowed and any(group.stream.redated for group in self.groups)
        stream = KnownStream(
            graph=graph, node=node, serdes=folded.serdes, reads=folded.reads, redated=redated
        )
        return GroupedRecords(stream=stream, name=None, call="cogroup")


def _check_together(known: GroupedRecords, group: GroupedRecords) -> None:
    if group.stream.graph is not known.stream.graph:
        raise TopologyError(
            f"cogroup at {call_site()} is given a group of another builder", fix="make both with one builder"
        )
    ours, theirs = _key_serde(known), _key_serde(group)
    if ours != theirs:
        raise TopologyError(
            f"cogroup at {call_site()} is to fold keys of {ours!r} and of {theirs!r}: equal keys lie in "
            "different partitions",
            fix="group both by keys of one serde: group_by(selector, key_serde=...)",
        )


def _key_serde(group: GroupedRecords) -> Serde:
    return group.stream.graph.serde("key", None, group.stream.serdes, group.call)
