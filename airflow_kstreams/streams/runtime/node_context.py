"""Implements the services of a task's nodes.

While an operator is bound they refuse requests that contradict its traits: a wrong trait would mislead the
engine without a sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from airflow_kstreams.streams.codegen.loop_code import (
    Inlining,
    NodeCode,
    TaskLoopCode,
    answer_closure,
    closure_of,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.figures.record_counts import Counters, Rule
from airflow_kstreams.streams.graph.calls import CallSpec
from airflow_kstreams.streams.graph.components import TableChanges
from airflow_kstreams.streams.graph.nodes import ProcessorNode, purpose_of
from airflow_kstreams.streams.graph.services import (
    Forward,
    LoopCode,
    StreamTimer,
    TableView,
    Taking,
    WallClock,
    WriteAnswer,
    WriteCode,
)
from airflow_kstreams.streams.graph.store_specs import GlobalEntries
from airflow_kstreams.streams.processor.processor_outputs import SendTarget
from airflow_kstreams.streams.records.error_handling import ErrorHandling
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.records.stream_clock import StreamClock, TaskWallClock
from airflow_kstreams.streams.runtime.window_closings import WindowClosings
from airflow_kstreams.streams.table_plan import table_label
from airflow_kstreams.streams.tables.table_rows import Row, TableRows


class NodeOwner(Protocol):
    """The part of the bound subtopology that its nodes use."""

    task_id: str
    run_id: str
    record_context: TaskRecordContext
    errors: ErrorHandling
    inlining: Inlining
    stores: dict[str, Any]
    topics_above: dict[str, frozenset[str]]
    timed_nodes: set[str]
    asks_for_commits: bool
    commit_requested: bool
    commit_asked_by: str
    counters: Counters
    tables: dict[str, TableView]
    global_entries: Mapping[str, GlobalEntries]
    table_rows: Mapping[str, TableRows]
    table_changes: TableChanges
    handing_to_functions: frozenset[str]
    closings: WindowClosings

    def add_flush(self, node: str, callback: Callable[[], None]) -> None: ...
    def add_open(self, node: str, callback: Callable[[], None]) -> None: ...
    def add_close(self, node: str, callback: Callable[[], None]) -> None: ...
    def alone(self, node: str) -> bool: ...
    def clock_of(self, node: str) -> StreamClock: ...
    def wall_clock_of(self, node: str) -> TaskWallClock: ...
    def send_target(self, topic: str, node: str) -> SendTarget: ...
    def send(
        self, node: str, topic: str, key: bytes | None, value: bytes | None, placed_by: bytes | None = None
    ) -> None: ...
    def calls(
        self,
        node: str,
        spec: CallSpec,
        give: Callable[[Any, Any, Any], None],
        failed: Callable[[Exception], None] | None,
    ) -> Forward: ...


class BoundNodeContext:
    """The services of one node; see :class:`~airflow_kstreams.streams.graph.services.NodeContext`."""

    def __init__(self, owner: NodeOwner, node: ProcessorNode) -> None:
        self.task_id, self.run_id = owner.task_id, owner.run_id
        self.node = node.name
        self.purpose = purpose_of(node)
        self.record_context = owner.record_context
        self._owner = owner
        self._operator = node.operator
        self._traits = node.operator.traits
        self._called = False
        self._stores = node.stores
        self._topics = owner.topics_above[node.name]
        self.tables = owner.tables
        self.taking_changes = owner.table_changes.takers
        self.old_needed = node.name in owner.table_changes.old_needed
        self.alone = owner.alone(node.name)
        self.hands_to_functions = node.name in owner.handing_to_functions
        self.goes_on = owner.errors.handle is not None

    def store(self, name: str) -> Any:
        """Return the task's instance of a connected store.

        :raises KeyError: the node is not connected to a store of this name.
        """
        if name not in self._stores:
            raise KeyError(f"processor {self.node!r} is not connected to store {name!r}")
        return self._owner.stores[name]

    def global_entries(self, topic: str) -> GlobalEntries:
        """Return the entries of a global table.

        :raises TopologyError: the operator's traits do not name the table.
        """
        table = self._traits.global_table
        if table is None or table.topic != topic:
            raise self._contradiction(f"reads the global table of {topic!r}", "global_table names it not")
        return self._owner.global_entries[topic]

    def add_row(self, table: str) -> Callable[[Row], None]:
        """Return a function that takes a row for a table, and counts it.

        :raises TopologyError: the operator's traits do not name the table.
        """
        if self._traits.table is None or self._traits.table.name != table:
            raise self._contradiction(f"writes to the table {table!r}", "table names it not")
        add, written = self._owner.table_rows[table].add, self._owner.counters.sent(table_label(table))

        def add_row(row: Row) -> None:
            add(row)
            written[0] += 1

        return add_row

    def on_open(self, callback: Callable[[], None]) -> None:
        """Register a callback for the start, once the stores are restored."""
        self._owner.add_open(self.node, callback)

    def on_flush(self, callback: Callable[[], None]) -> None:
        """Register a callback for every commit point."""
        self._owner.add_flush(self.node, callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a callback for the orderly end."""
        self._owner.add_close(self.node, callback)

    def stream_time(self) -> Callable[[], int]:
        """Return a function that gives the node's stream time.

        :raises TopologyError: the operator's trait ``held_back_ms`` is None.
        """
        self._go_by_stream_time()
        return self._owner.clock_of(self.node).node_time(self._topics)

    def closing_time(self, store: str, open_ms: int, stream_time: Callable[[], int]) -> Callable[[], int]:
        """Return a function that gives the time by which the windows of a store are judged."""
        return self._owner.closings.time_of(store, open_ms, stream_time)

    def stream_timer(self, callback: Callable[[int], None], *, behind: bool = False) -> StreamTimer:
        """Make a timer on the node's stream time.

        :raises TopologyError: the operator's trait ``held_back_ms`` is None.
        """
        self._go_by_stream_time()
        return self._owner.clock_of(self.node).timer(self.node, self._topics, callback, behind=behind)

    def wall_clock(self) -> WallClock:
        """Return the task's wall clock."""
        return self._owner.wall_clock_of(self.node)

    def written(
        self,
        write: WriteCode,
        forward: Forward,
        children: Mapping[str, Forward],
        *,
        taking: Taking | None = None,
    ) -> Forward:
        """Make the closure of a node that is written as lines."""
        code = NodeCode(self.node, children, write, taking=taking)
        return closure_of(self._owner.inlining, code, forward)

    def answered(
        self, write: WriteAnswer, forward: Forward, children: Mapping[str, Forward]
    ) -> Callable[[Any, Any, Any], None]:
        """Make, of lines, the function that takes the answers of an asynchronous node's calls."""
        return answer_closure(self._owner.inlining, self.node, children, write, forward)

    def flush_code(self, children: Mapping[str, Forward], *, timestamp_ms: str) -> LoopCode:
        """Return the code of a function that forwards at commit points, for the caller to complete."""
        place = {"timestamp_ms": timestamp_ms}
        return TaskLoopCode(self._owner.inlining, self.node, children, place, headers="None")

    def guarded(self, run: Forward) -> Forward:
        """Return a closure with the processing error handler around it."""
        return self._owner.errors.guarded(self.node, run)

    def counting(self, rule: Rule) -> Callable[[], None]:
        """Return a function that counts one record that the node leaves out."""
        return self._owner.counters.counting(self.node, rule)

    def allow_commit_requests(self) -> None:
        """Announce, while binding, that the node may ask for commits.

        :raises TopologyError: the operator's trait ``asks_for_commits`` is False.
        """
        if not self._traits.asks_for_commits:
            raise self._contradiction("asks for commits", "asks_for_commits is False")
        self._owner.asks_for_commits = True

    def request_commit(self) -> None:
        """Ask for a commit after the record being processed."""
        self._owner.commit_requested = True
        self._owner.commit_asked_by = self.node

    def send_target(self, topic: str) -> SendTarget:
        """Return the ``SendTarget`` of a topic.

        :raises TopologyError: this node may not write the topic.
        """
        return self._owner.send_target(topic, self.node)

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, placed_by: bytes | None = None
    ) -> None:
        """Produce a record to a topic, by its real name, with timestamp and headers of the current record."""
        self._owner.send(self.node, topic, key, value, placed_by)

    def calls(
        self,
        spec: CallSpec,
        give: Callable[[Any, Any, Any], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> Forward:
        """Make the closure of an asynchronous node.

        :raises TopologyError: the operator's trait ``calls`` does not hold the options of these calls.
        """
        if spec.options != self._traits.calls:
            raise self._contradiction("makes calls", "calls does not hold their options")
        self._called = True
        return self._owner.calls(self.node, spec, give, failed)

    def check_bound(self, *, passes_on: bool) -> None:
        """Refuse a bound operator that contradicts its traits.

        :param passes_on: True if it is bound to its children.
        :raises TopologyError: it makes no calls although ``calls`` is set, or does more than pass records on
            although ``passes_on`` is True.
        """
        if self._traits.passes_on and not passes_on:
            raise self._contradiction("does more than pass on", "passes_on is True")
        if self._traits.calls is not None and not self._called:
            raise self._contradiction("makes no calls", "calls is set")

    def _go_by_stream_time(self) -> None:
        if self._traits.held_back_ms is None and not self._traits.free_times:
            raise self._contradiction(
                "goes by stream time",
                "held_back_ms is None",
                fix="set held_back_ms to the number of milliseconds by which forwarded records may be older "
                "than stream time, 0 if none is; else the end of a run closes windows below too early",
            )
        self._owner.timed_nodes.add(self.node)

    def _contradiction(self, does: str, said: str, *, fix: str = "") -> TopologyError:
        name = type(self._operator).__name__
        return TopologyError(
            f"node {self.node!r}: operator {name} {does}, and in its traits {said}",
            fix=fix or f"correct the traits of {name}: the engine knows an operator by them alone",
        )
