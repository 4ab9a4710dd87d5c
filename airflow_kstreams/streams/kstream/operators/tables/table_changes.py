"""How old and new values travel through tables, and how one table reads another.

**What travels.** A node that keeps or derives a table hands each child either the new value of a key, as it
always did, or a :class:`~airflow_kstreams.streams.changes.Change` of new and old value. It is the child's
operator that says which (``old_values``, see ``graph/table_changes.py``), so streams, sinks and ``suppress``
see nothing new, and a table without tables below it does what it did, at the cost it had. Where no node below
needs old values, none are computed.

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

import copy
from collections.abc import Callable
from typing import Any, Protocol

from airflow_kstreams.streams.changes import Change
from airflow_kstreams.streams.graph.services import Forward, NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.deliveries import Deliveries, Entry
from airflow_kstreams.streams.kstream.operators.tables.versioned_source import keeping

#: (key, value) -> the derived table's value; None if the key is not in it.
Derivation = Callable[[Any, Any], Any]


class _Derived(Protocol):
    """An operator that makes a table of one other, entry by entry.

    :ivar parent: name of the other table's node.
    :ivar store: where the derived table is kept; None if it is not.
    """

    @property
    def parent(self) -> str: ...

    @property
    def store(self) -> StoreSpec | None: ...


class DerivedView:
    """A table without a store, read through its parent.

    :param parent: name of the other table's node.
    :param derive: (key, value, timestamp_ms) -> the table's value, None if the key is not in it.
    :param absent_too: whether a key that the parent does not hold may be in it; its value is made of None.
    """

    def __init__(
        self,
        context: NodeContext,
        parent: str,
        derive: Callable[[Any, Any, int], Any],
        deliveries: Deliveries,
        *,
        absent_too: bool = False,
    ) -> None:
        self._tables, self._node, self._parent = context.tables, context.node, parent
        self._derive, self._deliveries, self._absent_too = derive, deliveries, absent_too

    def get(self, key: Any, child: str | None) -> Entry | None:
        """Return the entry of a key, as a child knows it."""
        before = self._deliveries.before(key, child)
        if before is not None:
            return before[0]
        entry = self._tables[self._parent].get(key, None if child is None else self._node)
        if entry is None and not self._absent_too:
            return None
        return self._derived(key, entry)

    def get_as_of(self, key: Any, timestamp_ms: int) -> Entry | None:
        """Return the entry of a key as it was at a moment, of a table that is made of a versioned one."""
        parent: Any = self._tables[self._parent]
        entry = parent.get_as_of(key, timestamp_ms)
        return None if entry is None and not self._absent_too else self._derived(key, entry)

    def _derived(self, key: Any, entry: Entry | None) -> Entry | None:
        parents_value, timestamp_ms = entry or (None, -1)
        value = self._derive(key, parents_value, timestamp_ms)
        return None if value is None else (value, timestamp_ms)


def bind_derived(
    operator: _Derived,
    derive: Derivation,
    forward: Forward,
    context: NodeContext,
    children: dict[str, Forward],
    *,
    quiet: bool,
) -> Forward:
    """Make the closure of a table that is made of another one, with a store or without.

    :param derive: called for values, never for None.
    :param quiet: whether a key that was not in the table and is not now is passed over.
    """
    if operator.store is not None:
        return bind_kept(operator.store, derive, forward, context, children)
    deliveries = Deliveries(forward, context, children)

    def derive_entry(key: Any, value: Any, timestamp_ms: int) -> Any:
        return derive(key, value)

    context.tables[context.node] = DerivedView(context, operator.parent, derive_entry, deliveries)
    give, old_needed = deliveries.give, context.old_needed

    def run(key: Any, change: Change, _node: str = context.node) -> None:
        new, old, old_ms = change
        if new is not None:
            new = derive(key, new)
        # Without a table below, the value before says only whether a key leaves the table.
        with_old = old is not None and (old_needed or (quiet and new is None))
        old = derive(key, old) if with_old else None
        if new is not None or old is not None or not quiet:
            give(key, type(change)(new, old, old_ms))

    return run


def bind_kept(
    store: StoreSpec,
    derive: Derivation,
    forward: Forward,
    context: NodeContext,
    children: dict[str, Forward],
) -> Forward:
    """Make the closure of a derived table with a store, which keeps and emits as every table with one does.

    :param derive: called for values, never for None.
    """
    keep = keeping(store).bind(forward, context, children)

    def run(key: Any, change: Change, _node: str = context.node) -> None:
        # What is derived may be, or hold, an object that the parent's aggregator goes on changing.
        new = change.new
        keep(key, None if new is None else copy.deepcopy(derive(key, new)))

    return run
