"""Declares the services that a task offers to its nodes while they are bound and run; ``runtime`` implements
them.

A closure per node costs a call per node and record. So an operator may make its closure of lines of code
(:class:`LoopCode`, ``NodeContext.written``). The task compiles the lines of the nodes into one function, see
``runtime/sources_and_sinks.py``, and compiles a node's lines alone into its closure, for places where a loop
cannot hold them.

Rule: the lines see variables and names that ``LoopCode`` gave, nothing else: no text of a user ever becomes
code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

from airflow_kstreams.streams.figures.record_counts import Rule
from airflow_kstreams.streams.graph.calls import CallSpec
from airflow_kstreams.streams.graph.store_specs import GlobalEntries
from airflow_kstreams.streams.ports import ColumnsOf, Headers, Record
from airflow_kstreams.streams.serde.base import Serde, Side
from airflow_kstreams.streams.tables.table_rows import Row

#: The parts of the record context that a node may change for the nodes below it.
Changeable = Literal["timestamp_ms", "replaced_headers"]


class Encoding(NamedTuple):
    """The object that a serde makes into bytes, for messages.

    :param side: side of the record: ``key`` or ``value``.
    :param topic: real name of the topic that it is written to.
    :param serde: the serde.
    """

    side: Side
    topic: str
    serde: Serde

    def unfit(self, given: object) -> str:
        """Return the message that the serde does not take an object; it holds the object's type, not the
        object.
        """
        kind = type(given).__qualname__
        return f"the {self.side} for topic {self.topic!r}, of type {kind}, does not fit {self.serde!r}"


class LoopCode(Protocol):
    """The text of a function while nodes write it.

    :ivar record: expression for the consumed record of the current record, or for None.
    :ivar timestamp_ms: expression for the current record's timestamp.
    :ivar headers: expression for the current record's headers.
    """

    record: str
    timestamp_ms: str
    headers: str

    def name(self, held: object, hint: str) -> str:
        """Return the name under which the function finds an object.

        :param held: the object.
        :param hint: beginning of the name, an identifier.
        """
        ...

    def variable(self, hint: str) -> str:
        """Return the name of a new variable."""
        ...

    def line(self, text: str, encodes: tuple[str, Encoding] | None = None) -> None:
        """Write a statement, or a line of one.

        :param encodes: (variable of the object that the line makes into bytes, description for messages);
            None if the line makes no bytes.
        """
        ...

    def place(self, *, for_closures: bool = False) -> None:
        """Write lines that set the record context to the current record.

        :param for_closures: True if only nodes that run as closures need it here.
        """
        ...

    def call_apart(self, call: str) -> None:
        """Write a call that forwards results of no record; an error in it names no record.

        :param call: expression of the call.
        """
        ...

    def block(self, head: str) -> AbstractContextManager[None]:
        """Write a compound statement's head; the lines written in the ``with`` block are its body.

        :param head: the statement's first line, without the colon.
        """
        ...

    def changed(self, attribute: Changeable, variable: str) -> AbstractContextManager[None]:
        """Write a change of the timestamp or the headers that the lines in the body see.

        :param attribute: attribute of the record context that changes.
        :param variable: name of the variable that holds the new timestamp or headers.
        """
        ...

    def counted(self) -> AbstractContextManager[None]:
        """Write the lines that add up the counts of the lines in the body."""
        ...

    def count_left_out(self, rule: Rule) -> None:
        """Write a line that counts a record as left out by the node whose lines are being written."""
        ...

    def count_written(self, topic: str) -> None:
        """Write a line that counts a record as written by a sink.

        :param topic: the topic's real name.
        """
        ...

    def serialized(self, variable: str, serde: Serde, serialize: Callable[[Any], bytes] | None = None) -> str:
        """Return the expression for a variable's bytes, None where it holds None.

        :param serialize: function to call in place of the serde's own.
        """
        ...

    def has_bytes(self, variable: str, data: str, serde: Serde) -> None:
        """Note that a variable holds the bytes of another variable's object.

        :param variable: name of the object's variable.
        :param data: name of the variable of its bytes.
        :param serde: serde that made the bytes.
        """
        ...

    def forward(self, key: str, value: str, to: str | None = None) -> None:
        """Write the lines of the node's children for a key and a value.

        :param key: name of the variable that holds the key.
        :param value: name of the variable that holds the value.
        :param to: name of the only child that gets them; None for all children.
        """
        ...

    def function(self, name: str) -> Any:
        """Compile the text and return the function of that name that it defines; it has an argument
        ``_node=_node_of_line``.
        """
        ...


#: Writes the lines of a node, given the code and the names of the variables that hold key and value.
WriteCode = Callable[[LoopCode, str, str], None]

#: Writes the lines that use the answer of a node's function, given the code, the names of the variables that
#: hold key and value, and the expression of the answer, which the lines evaluate once.
WriteAnswer = Callable[[LoopCode, str, str, str], None]


#: Takes consumed records with their timestamps in place of a node's lines, given the function that makes
#: their columns, and returns True. It returns False if the lines have to take them; it has taken none then.
TakeRecords = Callable[[Sequence[Record], Sequence[int], ColumnsOf], bool]
#: Returns what takes records at once, given whether their keys and values are text rather than bytes; None if
#: such records must come one after the other.
Taking = Callable[[bool, bool], TakeRecords | None]

#: Hands a key and a value to the children of a node (a leaf has none).
Forward = Callable[[Any, Any], None]


def ignore_updates(key: Any, value: Any) -> None:
    """Ignore a table's update that a node has no use for.

    A parent whose child binds to this function need not emit updates for it.
    """


class CurrentRecord(Protocol):
    """The record being processed; one mutable object per task, updated in place for every record."""

    record: Record | None
    timestamp_ms: int
    #: Headers that a processor gave its result; None for those of the consumed record.
    replaced_headers: Headers | None
    #: The store whose cached entries are being emitted, for messages; empty for none.
    emitting: str

    def headers(self) -> Headers | None:
        """Return the headers that results have."""
        ...


class WallClock(Protocol):
    """The time of day, and timers on it."""

    @property
    def now_ms(self) -> Callable[[], int]:
        """A function that gives the time, epoch milliseconds."""
        ...

    def every(self, interval_ms: int, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back at an interval.

        :param interval_ms: milliseconds from one call to the next.
        :param callback: function that takes the time, epoch milliseconds.
        :return: function that cancels the timer.
        """
        ...


#: A time that never comes: one more than the largest timestamp, a signed 64-bit number.
NEVER = 2**63


class StreamTimer(Protocol):
    """Calls back once when a node's stream time reaches a set time; made by ``NodeContext.stream_timer``."""

    def set(self, due_ms: int | None, needed_ms: int | None = None) -> None:
        """Arm the timer, in place of an earlier setting.

        The callback comes with the record that brings the node's stream time to ``due_ms`` or past it; for a
        time already reached it comes with the next record.

        :param due_ms: stream time of the callback, epoch milliseconds; None disarms the timer.
        :param needed_ms: stream time, ``due_ms`` or later, from which the callback gives a result. A run is
            worth it then though no record comes, and the callback sees this stream time if nodes below can
            tell the difference. None for a callback that gives nothing, e.g. one that only deletes expired
            entries: it can wait for a record.
        """
        ...

    def end(self) -> None:
        """Disarm the timer for good."""
        ...

    def reached_ms(self) -> int:
        """Return the node's stream time, or the time to which the end of a run is bringing it; epoch
        milliseconds.
        """
        ...


class TableView(Protocol):
    """A task's table for other nodes to read."""

    def get(self, key: Any, child: str | None) -> tuple[Any, int] | None:
        """Return (value, timestamp_ms) of a key, None if it is not in the table.

        :param child: name of the table's child on the way to the node that asks, for the table with the
            changes that this child has been given so far; None for the table with all changes.
        """
        ...


class NodeContext(Protocol):
    """The services that a node may use while it is bound into a task."""

    #: The task, printed ``<subtopology>_<group>``.
    task_id: str
    #: Id of the run; empty in a continuous run, and in tests of topologies.
    run_id: str
    #: Name of the node being bound.
    node: str
    #: What it does, and the user's line that made it.
    purpose: str
    #: Name of a table's node -> the table; complete when nodes are opened.
    tables: dict[str, TableView]

    @property
    def taking_changes(self) -> frozenset[str]:
        """Names of the nodes that take a table's changes rather than its values."""
        ...

    @property
    def old_needed(self) -> bool:
        """True if a node below this one needs old values."""
        ...

    @property
    def alone(self) -> bool:
        """True if a source decodes records for this node alone, so that nothing else holds them."""
        ...

    @property
    def hands_to_functions(self) -> bool:
        """True if the node's results go to more than sinks: an object that the node keeps must then not be
        the one that it forwards.
        """
        ...

    @property
    def goes_on(self) -> bool:
        """True if the task goes on after an error of this node, without the record."""
        ...

    @property
    def record_context(self) -> CurrentRecord:
        """The record being processed."""
        ...

    def store(self, name: str) -> Any:
        """Return the task's instance of a store that this node is connected to."""
        ...

    def global_entries(self, topic: str) -> GlobalEntries:
        """Return the entries of a global table."""
        ...

    def add_row(self, table: str) -> Callable[[Row], None]:
        """Return a function that takes a row for a table, and counts it.

        :raises TopologyError: the operator's traits do not name the table.
        """
        ...

    def on_open(self, callback: Callable[[], None]) -> None:
        """Register a callback for the time after the stores are restored and before the first record;
        callbacks run in topological order of their nodes.
        """
        ...

    def on_flush(self, callback: Callable[[], None]) -> None:
        """Register a callback for every commit point; callbacks run in topological order of their nodes.

        A callback may set ``record_context.timestamp_ms`` and forward; ``record_context.record`` is None
        meanwhile.
        """
        ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a callback for the orderly end of the task, at the end of its run; it may forward."""
        ...

    def stream_time(self) -> Callable[[], int]:
        """Return a function that gives the node's stream time, epoch ms, -1 before the first record.

        It is the larger one of its parents' and never goes back, not from run to run either. Call this while
        binding; call the function for every record.
        """
        ...

    def closing_time(self, store: str, open_ms: int, stream_time: Callable[[], int]) -> Callable[[], int]:
        """Return a function that gives the time by which the windows of a store are open, closed or late: the
        stream time, but for windows that were closed under less grace. Call this while binding.

        :param store: name of the store of the windows; no other node uses it.
        :param open_ms: milliseconds for which a window takes records, from the time at which its age begins.
        :param stream_time: the result of :meth:`stream_time`; also returned here unless the times differ.
        """
        ...

    def stream_timer(self, callback: Callable[[int], None], *, behind: bool = False) -> StreamTimer:
        """Make a timer on the node's stream time, while binding.

        :param callback: function that takes the stream time; it may set ``record_context.timestamp_ms`` and
            forward; ``record_context.record`` is None meanwhile.
        :param behind: True if the callback comes behind the record that brings stream time to the timer's
            time, with the record's stream time; False if it comes ahead of the record.
        """
        ...

    def written(
        self,
        write: WriteCode,
        forward: Forward,
        children: Mapping[str, Forward],
        *,
        taking: Taking | None = None,
    ) -> Forward:
        """Make the closure of a node that is written as lines, which a loop may then hold too; while
        binding.

        :param write: function that writes the lines.
        :param forward: the function that ``bind`` was given: it takes the results of the lines for all
            children.
        :param children: the children that ``bind`` was given.
        :param taking: function that returns what takes many records at once in place of the lines; None for
            a node that takes one after the other.
        :return: the closure. Do not wrap it in a function: the engine would not find its lines.
        """
        ...

    def answered(
        self, write: WriteAnswer, forward: Forward, children: Mapping[str, Forward]
    ) -> Callable[[Any, Any, Any], None]:
        """Make, of lines, the function for :meth:`calls` that takes key, value and answer of an asynchronous
        node's calls; while binding.

        :param write: function that writes the lines.
        :param forward: the function that ``bind`` was given.
        :param children: the children that ``bind`` was given.
        """
        ...

    def flush_code(self, children: Mapping[str, Forward], *, timestamp_ms: str) -> LoopCode:
        """Return the code of a function that forwards at commit points, when there is no record, for the
        caller to complete.

        :param children: the children that ``bind`` was given.
        :param timestamp_ms: expression for the timestamp of the function's results.
        """
        ...

    def guarded(self, run: Forward) -> Forward:
        """Return a closure with the processing error handler around it.

        The node's own closure has it anyway; this is for user functions that timers call.

        :param run: function of key and value, as the node's own closure.
        """
        ...

    def calls(
        self,
        spec: CallSpec,
        give: Callable[[Any, Any, Any], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> Forward:
        """Make the closure of an asynchronous node, while binding: it starts a call and does not wait.

        :param spec: the function to call, with its options.
        :param give: function that takes key, value and the call's answer, when the record has its turn again.
        :param failed: function that takes the error of a failed call, in place of the processing error
            handler.
        """
        ...

    def counting(self, rule: Rule) -> Callable[[], None]:
        """Return a function that counts one record that the node leaves out by a rule; while binding."""
        ...


class ProcessorServices(NodeContext, Protocol):
    """The services of a task for user code, beside those of :class:`NodeContext`."""

    def wall_clock(self) -> WallClock:
        """Return the task's wall clock."""
        ...

    def allow_commit_requests(self) -> None:
        """Announce, while binding, that the node may ask for commits."""
        ...

    def request_commit(self) -> None:
        """Ask for a commit after the record being processed."""
        ...

    def send_target(self, topic: str) -> Any:
        """Return the ``SendTarget`` of a topic: its real name and serdes."""
        ...

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, placed_by: bytes | None = None
    ) -> None:
        """Produce a record to a topic, with the timestamp and headers of the current record.

        :param topic: the topic's real name.
        :param placed_by: bytes that decide the partition; None for those of the key.
        """
        ...
