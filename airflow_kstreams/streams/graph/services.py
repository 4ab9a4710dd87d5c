"""Declares the services that a task offers to its nodes while they are bound and run; ``runtime`` implements
them.

A closure per node costs a call per node and record. So an operator may make its closure of lines of code
(:class:`LoopCode`, ``NodeContext.written``). The task compiles what the nodes wrote into one function, see
``runtime/sources_and_sinks.py``, and compiles a node's lines alone into its closure, for wherever a loop
cannot hold them.

Rule: the lines see variables and names that ``LoopCode`` gave, nothing else: no text of a user ever becomes
code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

from airflow_kstreams.streams.figures.record_counts import Rule
from airflow_kstreams.streams.graph.calls import CallSpec
from airflow_kstreams.streams.graph.store_specs import GlobalEntries
from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.serde.base import Serde, Side

#: What a node may change of the record context for what lies below it.
Changeable = Literal["timestamp_ms", "replaced_headers"]


class Encoding(NamedTuple):
    """Names an object that is made into bytes, for messages.

    :param side: of the record.
    :param topic: the topic that it is written to, its real name.
    """

    side: Side
    topic: str
    serde: Serde

    def unfit(self, given: object) -> str:
        """Return a text that the serde does not take an object, with the object's type, not the object."""
        kind = type(given).__qualname__
        return f"the {self.side} for topic {self.topic!r}, of type {kind}, does not fit {self.serde!r}"


class LoopCode(Protocol):
    """The text of a function while nodes write it.

    :ivar record: expression for the consumed record that led to what is processed, or None.
    :ivar timestamp_ms: expression for the timestamp of what is processed.
    :ivar headers: expression for its headers.
    """

    record: str
    timestamp_ms: str
    headers: str

    def name(self, held: object, hint: str) -> str:
        """Return the name under which the function finds an object.

        :param hint: what the name begins with, an identifier.
        """
        ...

    def variable(self, hint: str) -> str:
        """Return the name of a new variable."""
        ...

    def line(self, text: str, encodes: tuple[str, Encoding] | None = None) -> None:
        """Write a statement, or a line of one.

        :param encodes: what the line makes into bytes: the variable that holds it, and what for.
        """
        ...

    def place(self, *, for_closures: bool = False) -> None:
        """Write how the record context is set to what is processed.

        :param for_closures: whether only nodes that run as closures need it here.
        """
        ...

    def block(self, head: str) -> AbstractContextManager[None]:
        """Write a compound statement's head; what is written meanwhile is its body.

        :param head: without the colon.
        """
        ...

    def changed(self, attribute: Changeable, variable: str) -> AbstractContextManager[None]:
        """Write a change of the timestamp or the headers that the lines in the body see.

        :param attribute: of the record context.
        :param variable: holds the new one.
        """
        ...

    def counted(self) -> AbstractContextManager[None]:
        """Write the lines that add up the counts of the lines in the body."""
        ...

    def count_left_out(self, rule: Rule) -> None:
        """Write that the node being written leaves a record out."""
        ...

    def count_written(self, topic: str) -> None:
        """Write that a sink sends a record.

        :param topic: real name.
        """
        ...

    def serialized(self, variable: str, serde: Serde, serialize: Callable[[Any], bytes] | None = None) -> str:
        """Return the expression for a variable's bytes, None where it holds None.

        :param serialize: called in place of the serde's own function.
        """
        ...

    def has_bytes(self, variable: str, data: str, serde: Serde) -> None:
        """Remember the variable that holds the bytes of another one's object."""
        ...

    def forward(self, key: str, value: str, to: str | None = None) -> None:
        """Write what the children of the node do with a key and a value.

        :param key: variable that holds it.
        :param value: variable that holds it.
        :param to: the only child meant.
        """
        ...

    def function(self, name: str) -> Any:
        """Compile the text and return the function of that name that it defines; it has an argument
        ``_node=_node_of_line``.
        """
        ...


#: Writes what a node does with a key and a value, given the variables that hold them.
WriteCode = Callable[[LoopCode, str, str], None]

#: Writes what becomes of the answer of a node's function, given the variables that hold key and value, and
#: the expression of the answer, which the lines evaluate once.
WriteAnswer = Callable[[LoopCode, str, str, str], None]


#: How a node hands a key and a value to its children (a leaf has none).
Forward = Callable[[Any, Any], None]


def ignore_updates(key: Any, value: Any) -> None:
    """Ignore a table's update that a node has no use for.

    A node that binds to this function lets its parent know that it need not emit for its sake.
    """


class CurrentRecord(Protocol):
    """The record being processed; one mutable object per task, updated in place for every record."""

    record: Record | None
    timestamp_ms: int
    #: Headers that a processor gave its result, None to inherit the record's.
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
        """Give the time, epoch milliseconds."""
        ...

    def every(self, interval_ms: int, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back every so often; the returned function cancels that."""
        ...


#: A moment that never comes: timestamps are signed 64-bit numbers, and one more than the largest is none.
NEVER = 2**63


class StreamTimer(Protocol):
    """Calls back once when a node's stream time reaches a moment; made by ``NodeContext.stream_timer``."""

    def set(self, due_ms: int | None, needed_ms: int | None = None) -> None:
        """Arm the timer for a moment, in place of an earlier one; None disarms it.

        The callback comes with the record that brings the node's stream time to ``due_ms`` or past it; a
        moment already reached counts with the next record.

        :param needed_ms: the moment at which it gives something, ``due_ms`` or later: a run is worth it
            though no record comes, and stream time stands there as it calls back, if what is below can tell.
            What is only cleared away can wait for a record.
        """
        ...

    def end(self) -> None:
        """Disarm the timer for good, and have it forgotten."""
        ...

    def reached_ms(self) -> int:
        """Return the node's stream time, or the moment to which the end of a run is bringing it."""
        ...


class TableView(Protocol):
    """A table of a task, as other nodes read it."""

    def get(self, key: Any, child: str | None) -> tuple[Any, int] | None:
        """Return (value, timestamp_ms) of a key, None if it is not in the table.

        :param child: the table's child on the way to the node that asks, which then sees the table as this
            child has been given it; None for the table as it is now.
        """
        ...


class NodeContext(Protocol):
    """The services that a node may use while it is bound into a task."""

    #: The task, printed ``<subtopology>_<group>``.
    task_id: str
    #: Name of the node being bound.
    node: str
    #: The task's tables by the names of their nodes; full when nodes are opened.
    tables: dict[str, TableView]

    @property
    def taking_changes(self) -> frozenset[str]:
        """Names of the nodes that take a table's changes rather than its values."""
        ...

    @property
    def old_needed(self) -> bool:
        """Whether a node below this one needs old values."""
        ...

    @property
    def alone(self) -> bool:
        """Whether a source decodes what the node gets for this node alone, so that nothing else holds it."""
        ...

    @property
    def hands_to_functions(self) -> bool:
        """Whether what the node forwards goes to more than sinks: what it keeps must then be another
        object.
        """
        ...

    @property
    def goes_on(self) -> bool:
        """Whether the task goes on after an error of this node, without the record."""
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

    def on_open(self, callback: Callable[[], None]) -> None:
        """Register a callback for the start: after the stores are restored, before the first record, in
        topological order.
        """
        ...

    def on_flush(self, callback: Callable[[], None]) -> None:
        """Register a callback for every commit point; callbacks run in topological order of their nodes.

        A callback may set ``record_context.timestamp_ms`` and forward; ``record_context.record`` is None
        meanwhile.
        """
        ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a callback for the orderly end of the task, the end of its run; it may forward."""
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

        :param store: keeps the windows; of this node alone.
        :param open_ms: for how long after the moment it ages from a window takes records.
        :param stream_time: the result of :meth:`stream_time`, and the result here while nothing differs.
        """
        ...

    def stream_timer(self, callback: Callable[[int], None], *, behind: bool = False) -> StreamTimer:
        """Make a timer on the node's stream time, while binding.

        :param callback: gets the stream time; may set ``record_context.timestamp_ms`` and forward;
            ``record_context.record`` is None meanwhile.
        :param behind: whether it comes behind the record that brings stream time to its moment, with the
            record's stream time; else it comes ahead of it.
        """
        ...

    def written(self, write: WriteCode, forward: Forward, children: Mapping[str, Forward]) -> Forward:
        """Make the closure of a node that writes what it does as lines, which a loop may then hold too; while
        binding.

        :param forward: that ``bind`` was given, where the closure hands what the lines forward to all.
        :param children: those that ``bind`` was given.
        :return: the closure; a function around it counts as another one, whose lines are not known.
        """
        ...

    def answered(
        self, write: WriteAnswer, forward: Forward, children: Mapping[str, Forward]
    ) -> Callable[[Any, Any, Any], None]:
        """Make of lines what takes key, value and answer of an asynchronous node's calls, for :meth:`calls`;
        while binding.

        :param forward: that ``bind`` was given.
        :param children: those that ``bind`` was given.
        """
        ...

    def flush_code(self, children: Mapping[str, Forward], *, timestamp_ms: str) -> LoopCode:
        """Return the beginnings of a function that forwards at commit points, when there is no record.

        :param children: those that ``bind`` was given.
        :param timestamp_ms: expression for the timestamp of what the function forwards.
        """
        ...

    def guarded(self, run: Forward) -> Forward:
        """Return a closure with the processing error handler around it.

        The node's own closure has it anyway; this is for user functions that timers call.

        :param run: as the node's own closure.
        """
        ...

    def calls(
        self,
        spec: CallSpec,
        give: Callable[[Any, Any, Any], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> Forward:
        """Make the closure of an asynchronous node, while binding: it starts a call and does not wait.

        :param give: gets key, value and what the function returned, when the record has its turn again.
        :param failed: gets the error of a call that failed, in place of the processing error handler.
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
        """Return where and how to send to a topic by name, a ``SendTarget``."""
        ...

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, placed_by: bytes | None = None
    ) -> None:
        """Produce a record to a topic, its real name, with the timestamp and headers of the moment.

        :param placed_by: the bytes that decide its partition, where those of the key do not.
        """
        ...
