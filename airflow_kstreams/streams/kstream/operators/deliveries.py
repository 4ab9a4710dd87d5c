"""Carries old and new values through tables, and lets one table read another.

**What travels.** A node that keeps or derives a table hands each child either the new value of a key, as it
always did, or a :class:`~airflow_kstreams.streams.serde.changed.OldAndNew` of new and old value. It is the
child's operator that says which (its trait ``old_values``), so streams, sinks and ``suppress`` see nothing
new, and a table without tables below it does what it did, at the cost it had. Where no node below needs old
values, none are computed.

**Where old values come from.** A table with a store has them there: the entry before the record. A cached
table emits once per key and commit point; its old value is the one of the last emission, which it remembers
from the key's first change after that (``TableEmitter.olds``) until it emits the key. A table without a store
computes its old value from its parent's: the function of ``map_values`` runs on both. Functions may change
aggregates in place, so of an aggregate a copy is remembered.

**Null is deletion.** A change whose new value is None deletes the key; one without old value adds it. A table
without a store never emits that nothing became nothing where Kafka Streams would not.

**How a table is read.** A join needs the other table's value of a key, whether that table has a store or
not. Every table therefore answers ``get`` (Java's ``KTableValueGetter``): from its store, or by its function
from its parent's answer. The difference to Java: Java answers with what the table holds now, cached changes
included. Here a join sees the other table **as it has been given it**: without the changes that wait for a
commit point, and without a change that is on its way and has not come to it yet.

Invariant: at every moment, the changes that a child has been given add up to what its parent's ``get``
answers for that child. So a result that is taken back is always one that was given before, and sums of new
minus old values are right for tables of any shape, also where two tables that are joined have cached stores,
or come from one table. (Kafka Streams takes back results that it never gave in both cases, KAFKA-4609.) The
price is an intermediate result: of two changes that Java would join with each other twice, the first is
joined with the other side's earlier value here. The last result is the same, and where each record is
committed alone and the tables come from different topics, so is every other.

A join of a stream with a table without a store asks for the table as it is now, as with a store.

**Crash argument.** What is remembered between two commit points is never saved: at a commit point every
cached table has emitted, in topological order, so nothing is remembered there, and a table's store is what
it has emitted. The attempt that resumes starts from such a point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_kstreams.streams.graph.inlining import LoopCode
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.serde.changed import OldAndNew

#: (value, timestamp_ms) of a key.
Entry = tuple[Any, int]
#: What stands for the entry of a key that has none.
ABSENT: tuple[None, int] = (None, -1)


class Deliveries:
    """Hands a table's changes to its children, one after another, and knows which have got the current one.

    :param forward: hands a value to every child.
    :param children: of the table's node.
    """

    def __init__(self, forward: Forward, context: NodeContext, children: Mapping[str, Forward]) -> None:
        taking = context.taking_changes
        if taking.isdisjoint(children):
            self._edges: tuple[tuple[Forward, bool], ...] = ((forward, False),)
        else:
            self._edges = tuple((child, name in taking) for name, child in children.items())
        self._places = {name: place for place, name in enumerate(children)}
        self._place = len(self._edges)
        self._key: Any = None
        self._change: OldAndNew | None = None
        #: Hands one change to every child, in build order. An only child knows each as soon as there is one.
        self.give: Callable[[Any, OldAndNew], None] = self._to_all
        if len(self._edges) == 1:
            ((child, takes),) = self._edges
            self.give = child if takes else lambda key, change: child(key, change.new)

    def _to_all(self, key: Any, change: OldAndNew) -> None:
        self._key = key
        self._change = change
        for place, (child, takes) in enumerate(self._edges):
            self._place = place
            child(key, change if takes else change.new)
        self._place = len(self._edges)

    def write(self, code: LoopCode, key: str, change: str, new: str) -> None:
        """Write that one change is handed to every child.

        :param new: variable that holds the change's new value.
        """
        if len(self._edges) == 1:
            ((_, takes),) = self._edges
            code.forward(key, change if takes else new)
        else:
            code.line(f"{code.name(self.give, 'give')}({key}, {change})")

    def before(self, key: Any, child: str | None) -> tuple[Entry | None] | None:
        """Return, in a tuple, the entry that a child knows of a key whose change has not come to it yet; None
        if no change is on its way.
        """
        change = self._change
        if child is None or change is None or self._place >= self._places[child] or key != self._key:
            return None
        return (None,) if change.old is None else ((change.old, change.old_ms),)
