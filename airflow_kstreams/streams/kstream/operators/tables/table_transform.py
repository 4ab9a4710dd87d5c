"""The operator that replaces the values of a table by a transformer with stores and time.

Rule: as in Kafka Streams, the transformer sees every change, deletions too, and may give a deleted key a
value. Without stores of its own it runs again where an old value or an entry is asked for. With stores that
would give another value than before, so tables below such a table are refused unless it is kept in a store.
What it gives for a key that is not in the table is the old value of a key that is new, as there, though no
table below was given it, unless the values are kept in a store.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Never

from airflow_kstreams.streams.changes import Change
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.deliveries import Deliveries
from airflow_kstreams.streams.kstream.operators.tables.table_changes import DerivedView
from airflow_kstreams.streams.kstream.operators.tables.versioned_source import keeping
from airflow_kstreams.streams.processor.context import ProcessorContext
from airflow_kstreams.streams.processor.definitions import check_transformer_class, made
from airflow_kstreams.streams.processor.value_transformer import ValueTransformer, ValueTransformerDef


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTransformValues:
    """Replaces the values of a table.

    :param definition: makes a new transformer.
    :param stores_of_user: names of the stores that the transformer may use.
    :param parent: name of the table's node.
    :param store: where the result is kept; None if it is not.
    """

    definition: ValueTransformerDef
    stores_of_user: tuple[str, ...]
    parent: str
    store: StoreSpec | None

    type: ClassVar[str] = "table_transform_values"

    @property
    def traits(self) -> OperatorTraits:
        """What the engine knows of the operator."""
        return OperatorTraits(
            old_values="passes on" if self.store is None else "ignores",
            asks_for_commits=True,
            free_times=True,
            stores_of_user=self.stores_of_user,
        )

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        """Make the transformer and the closure that feeds it.

        :raises TopologyError: the definition made something else than a transformer.
        """
        transformer: ValueTransformer = made(self.definition, ValueTransformer, context.task_id, context.node)
        check_transformer_class(type(transformer), f"transformer {context.node!r}")
        where = f"task {context.task_id}: transformer {context.node!r}"
        transformer_context = ProcessorContext(context, lambda key, value: _refuse(where), {}, None)
        context.allow_commit_requests()

        def init(_node: str = context.node) -> None:
            transformer.init(transformer_context)

        def close(_node: str = context.node) -> None:
            transformer.close()

        context.on_open(init)
        context.on_close(close)
        transform = transformer.transform
        if self.store is not None:
            keep = keeping(self.store).bind(forward, context, children)

            def run_kept(key: Any, change: Change, _node: str = context.node) -> None:
                keep(key, copy.deepcopy(transform(key, change.new)))

            return run_kept
        deliveries = Deliveries(forward, context, children)
        record_context = context.record_context

        def derive(key: Any, value: Any, timestamp_ms: int) -> Any:
            before = record_context.timestamp_ms
            record_context.timestamp_ms = timestamp_ms
            try:
                return transform(key, value)
            finally:
                record_context.timestamp_ms = before

        context.tables[context.node] = DerivedView(context, self.parent, derive, deliveries, absent_too=True)
        give, old_needed = deliveries.give, context.old_needed

        def run(key: Any, change: Change, _node: str = context.node) -> None:
            new = transform(key, change.new)
            old = derive(key, change.old, change.old_ms) if old_needed else None
            give(key, type(change)(new, old, change.old_ms))

        return run


def _refuse(where: str) -> Never:
    raise TopologyError(
        f"{where} forwards: it makes the values of a table, one for each", fix="return the value instead"
    )
