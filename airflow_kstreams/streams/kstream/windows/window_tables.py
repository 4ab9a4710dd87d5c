"""Makes tables of windows: folds grouped records, and holds results back until they are final.

Windows of later records begin with the aggregates of closed ones, so a fold by sliding windows keeps closed
windows for another size. Rule: it keeps them in the store of the open ones. Where ``suppress`` waits for
windows it cannot: a store hands a window over as the window leaves it. There, and where a processor of the
user reads it, the closed windows have a second store.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar, cast

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import ProcessorNode
from airflow_kstreams.streams.graph.store_specs import SessionStoreSpec, StoreSpec, WindowStoreSpec
from airflow_kstreams.streams.hints.function_checks import call_site, check_functions
from airflow_kstreams.streams.kstream.arguments import GroupedRecords, StoreArgument, check_store_kind
from airflow_kstreams.streams.kstream.known import KnownTable, KnownWindowedTable
from airflow_kstreams.streams.kstream.operators.aggregation import (
    Aggregator,
    Fold,
    Initializer,
    Merger,
    aggregating,
)
from airflow_kstreams.streams.kstream.operators.windows.sliding_fold import SlidingWindowFold
from airflow_kstreams.streams.kstream.operators.windows.suppress import Suppress
from airflow_kstreams.streams.kstream.operators.windows.window_fold import SessionFold, TimeWindowFold
from airflow_kstreams.streams.serde import serdes as builtin_serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.streams.windows import FoldWindow, SessionWindow, SlidingWindow, sliding_retention_ms

S = TypeVar("S", WindowStoreSpec, SessionStoreSpec)

#: The remedy where an argument of a fold is no function.
WINDOW_FUNCTIONS = (
    "pass functions: aggregate(initializer, aggregator), for sessions with a merger, reduce(reducer)"
)


def check_fold_window(window: object) -> None:
    """Refuse an argument that is no window to fold by.

    :raises TopologyError: it is another object; the error names the user's line.
    """
    if not isinstance(window, FoldWindow):
        raise TopologyError(
            f"windowed_by at {call_site()} is given {type(window).__name__}, expected a window to fold by",
            fix="pass a TumblingWindow, HoppingWindow, SlidingWindow or SessionWindow",
        )


def aggregating_windows(
    window: FoldWindow,
    initializer: Initializer,
    aggregator: Aggregator,
    merger: Merger | None,
) -> Fold:
    """Return the fold of the functions given to ``aggregate``.

    :param merger: function that merges the aggregates of two sessions; None for other windows.
    :raises TopologyError: an argument is no function, or the window and the merger do not fit.
    """
    sessions = isinstance(window, SessionWindow)
    if sessions != (merger is not None):
        found = "no merger" if sessions else "a merger, but its windows never merge"
        raise TopologyError(
            f"aggregate by {type(window).__name__} at {call_site()} is given {found}",
            fix="pass aggregate(initializer, aggregator, merger) for sessions, without merger otherwise",
        )
    merge = merger or (lambda key, left, right: None)
    check_functions(
        "aggregate", fix=WINDOW_FUNCTIONS, initializer=initializer, aggregator=aggregator, merger=merge
    )
    return aggregating(initializer, aggregator, merge)


def folded_by_window(
    records: GroupedRecords,
    window: FoldWindow,
    fold: Fold,
    store: StoreArgument,
    value_serde: Serde | None,
    name: str | None,
) -> KnownWindowedTable:
    """Add a fold's node and store, and return its table.

    :param store: name or spec given by the user; None for a name made of the topics that the stream reads.
    :param value_serde: the serde that the user gave, or the only possible one.
    :param name: the node's name given by the user; None for a numbered one.
    :raises TopologyError: a serde is missing, or a name is taken, or the store's spec does not fit.
    """
    given = records.store_spec(store, value_serde, fold.kind, window)
    operator: TimeWindowFold | SessionFold | SlidingWindowFold
    open_ms = _open_ms(window)
    if isinstance(window, SessionWindow):
        session_spec = _window_spec(given, SessionStoreSpec, open_ms, fold.kind)
        operator = SessionFold(fold=fold, window=window, store=session_spec)
    elif isinstance(window, SlidingWindow):
        sliding_spec = _window_spec(given, WindowStoreSpec, open_ms, fold.kind)
        closed = _closed_spec(sliding_spec, window)
        operator = SlidingWindowFold(fold=fold, window=window, store=sliding_spec, closed=closed)
    else:
        window_spec = _window_spec(given, WindowStoreSpec, open_ms, fold.kind)
        operator = TimeWindowFold(fold=fold, window=window, store=window_spec)
    table = records.folded(fold.kind, operator, operator.store, name)
    if isinstance(operator, SlidingWindowFold) and operator.closed is not None:
        table.graph.add_table_store(operator.closed, table.node)
        table.graph.note_beside(operator.store.name, operator.closed.name)
    return KnownWindowedTable(table=table, spec=operator.store, window=window)


def suppressed(windows: KnownWindowedTable, name: str | None) -> KnownWindowedTable:
    """Add the node that holds updates back until they are final, and return the table of the final ones.

    :param name: the node's name given by the user; None for a numbered one.
    :raises TopologyError: the table's store has no changelog, or keeps windows longer than they are open.
    """
    _check_suppressible(windows)
    graph, spec, parent = windows.table.graph, windows.spec, windows.table.node
    marks = None
    if windows.window.at_run_end == "flush":
        marks = StoreSpec(
            name=f"{spec.name}-flushed",
            key_serde=windows.keys,
            value_serde=builtin_serdes.int64(),
            changelog_configs=spec.changelog_configs,
        )
    operator = Suppress(store=spec, windowed_keys=windows.keys, marks=marks)
    node = graph.operator("KTABLE-SUPPRESS", operator, parent, (spec.name,), name=name)
    if marks is not None:
        graph.add_table_store(marks, node)
        graph.note_beside(spec.name, marks.name)
    table = dataclasses.replace(windows.table, node=node)
    return dataclasses.replace(windows, table=table, suppressed=True)


def entries_of_windows(windows: KnownWindowedTable, call: str) -> KnownTable:
    """Return the table with its windowed keys, for a stream or another table of it.

    :param call: name of the DSL method that makes the stream or table.
    :raises TopologyError: old values would be needed, which the table does not keep.
    """
    if call != "to_stream" and windows.suppressed and windows.window.at_run_end == "flush":
        raise TopologyError(
            f"{call} at {call_site()} is called on a table that emits its open windows at every end of a "
            "run, and keeps none of the values that it has emitted",
            fix="call it before suppress(), or have the window hold them: at_run_end='hold'",
        )
    return windows.entries


def _check_suppressible(windows: KnownWindowedTable) -> None:
    spec, window = windows.spec, windows.window
    if not spec.logged:
        raise TopologyError(
            f"suppress at {call_site()} needs the changelog of the store {spec.name!r}: windows that are "
            "open when a run ends would be lost",
            fix="leave out logged=False",
        )
    open_ms = _open_ms(window)
    if spec.retention_ms > open_ms:
        raise TopologyError(
            f"suppress at {call_site()} hands over windows as they leave the store {spec.name!r}, which "
            f"keeps them for {spec.retention_ms} ms, longer than the {open_ms} ms they "
            "are open",
            fix="pass a plain StoreSpec, which keeps windows as long as they are open",
        )


def _open_ms(window: FoldWindow) -> int:
    """Return the milliseconds of stream time for which a window stays open from the time at which its age
    begins.
    """
    if isinstance(window, SessionWindow):
        return window.gap_ms + window.grace_ms
    # The end of a sliding window belongs to it.
    return window.size_ms + window.grace_ms + isinstance(window, SlidingWindow)


def _closed_spec(spec: WindowStoreSpec, window: SlidingWindow) -> WindowStoreSpec | None:
    """Return the spec of the store of closed windows, with whose aggregates windows of later records begin;
    None if the store of the open ones keeps windows as long.
    """
    needed_ms = sliding_retention_ms(window)
    if spec.retention_ms >= needed_ms:
        return None
    return dataclasses.replace(spec, name=f"{spec.name}-closed", retention_ms=needed_ms)


def _window_spec(given: StoreSpec, kind: type[S], least_ms: int, call: str) -> S:
    """Return the spec of a store that keeps windows at least until they close.

    :param given: the spec given by the user, or made of a name.
    :param kind: class of the spec.
    :param least_ms: least retention for that, in milliseconds.
    :param call: name of the DSL method, for messages.
    """
    if type(given) is StoreSpec:
        facts = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
        return kind(**facts, retention_ms=least_ms)
    check_store_kind(given, kind, call)
    spec = cast("S", given)
    if spec.retention_ms < least_ms:
        raise TopologyError(
            f"{call} at {call_site()} is given the store {spec.name!r}, which keeps entries for "
            f"{spec.retention_ms} ms, but its windows may change for {least_ms} ms",
            fix=f"give it retention_ms={least_ms}, or pass a plain StoreSpec",
        )
    return spec


def kept_together(topology: Topology) -> Topology:
    """Return the topology in which each sliding fold has one store, unless it needs two."""
    nodes = [node for node in topology.nodes if isinstance(node, ProcessorNode)]
    suppressed = {node.operator.store.name for node in nodes if isinstance(node.operator, Suppress)}
    users = [store for node in nodes for store in node.stores]
    for node in nodes:
        fold = node.operator
        if (
            isinstance(fold, SlidingWindowFold)
            and fold.closed is not None
            and fold.store.name not in suppressed
            and users.count(fold.closed.name) == 1
        ):
            topology = _with_one_store(topology, node, fold, fold.closed)
    return topology


def _with_one_store(
    topology: Topology, node: ProcessorNode, fold: SlidingWindowFold, closed: WindowStoreSpec
) -> Topology:
    """Return the topology in which a fold's first store also keeps the closed windows, in place of the
    second.

    :param closed: spec of the second store.
    """
    store = dataclasses.replace(fold.store, retention_ms=closed.retention_ms)
    folding = dataclasses.replace(
        node,
        operator=dataclasses.replace(fold, store=store, closed=None),
        stores=tuple(name for name in node.stores if name != closed.name),
    )
    return dataclasses.replace(
        topology,
        nodes=tuple(folding if each is node else each for each in topology.nodes),
        stores=tuple(
            store if spec.name == store.name else spec for spec in topology.stores if spec.name != closed.name
        ),
    )
