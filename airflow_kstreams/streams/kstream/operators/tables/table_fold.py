"""The operator that folds the entries of a table that belong to one group.

Rule: of a change of a group, the old value is subtracted first, if the group has an aggregate, and the new
one added then, to an empty aggregate if there is none. An aggregate that becomes None deletes the group. The
entry has the largest timestamp that was added or subtracted. What is emitted, and when, is the rule of
:mod:`airflow_kstreams.streams.kstream.operators.aggregation`, and so is when
functions get a copy of the aggregate: a change whose adder raises is not subtracted either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.changes import Change
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.aggregation import Aggregator, TableEmitter, copier
from airflow_kstreams.streams.kstream.operators.windows.window_fold import Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFold:
    """Folds a grouped table.

    :param fold: how values are added.
    :param subtract: (key, value, aggregate) -> the aggregate without the value.
    """

    fold: Fold
    subtract: Aggregator
    store: StoreSpec

    @property
    def type(self) -> str:
        """Kind of node."""
        return f"table_{self.fold.kind}"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        begin, add, subtract = self.fold.begin, self.fold.add, self.subtract
        store = context.store(self.store.name)
        serialize_key, get_entry = store.serialize_key, store.get_entry
        copied = copier(context, self.fold.kind)
        record_context = context.record_context
        emitter = TableEmitter(
            forward, context, children, store=self.store.name, cached=self.store.cached and bool(children)
        )
        before, emit_change = emitter.before, emitter.change

        def run(key: Any, change: Change, _node: str = context.node) -> None:
            key_bytes = serialize_key(key)
            entry = get_entry(key_bytes)
            kept = before(key_bytes, entry)
            result, newest_ms = None, record_context.timestamp_ms
            if entry is not None:
                result, newest_ms = entry[0], max(newest_ms, entry[1])
                if copied is not None:
                    result = copied(result)
                if change.old is not None:
                    result = subtract(key, change.old, result)
            if change.new is not None:
                result = begin(key, change.new) if result is None else add(key, change.new, result)
            emit_change(key_bytes, key, kept, result, newest_ms)

        return run
