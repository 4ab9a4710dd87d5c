"""The frozen topology model: three kinds of node and the stores between them. Definitions only; nothing runs
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.processor.timestamps import TimestampExtractor
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.topology.call_site import CallSite
from airflow_kstreams.streams.topology.changelog_configs import check_changelog_configs
from airflow_kstreams.streams.topology.inlining import LoopCode, WriteCode

#: How a node hands a key and a value to its children (or, for a leaf, to nobody).
Forward = Callable[[Any, Any], None]


def ignore_updates(key: Any, value: Any) -> None:
    """Take a table's update that its node has no use for.

    A node that binds to this function lets its parent know that it need not emit for its sake.
    """


#: Where a store keeps its entries.
Storage = Literal["memory", "rocksdb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """A state store to make, one instance per task.

    :param name: unique in the topology; names the changelog ``<application id>-<name>-changelog``.
    :param key_serde: of keys.
    :param value_serde: of values.
    :param logged: whether the store has a changelog (without one its content does not survive the run).
    :param cached: whether a table operator emits once per dirty key and commit point, rather than per record.
    :param storage: where entries live: ``memory``, or ``rocksdb`` for more keys than memory holds
        (needs the extra ``rocksdb``).
    :param changelog_configs: settings of the changelog topic, by Kafka's names; they win over the engine's.
    :raises TopologyError: one of them would break the changelog, e.g. ``cleanup.policy=delete``.

    >>> class Basket(Processor):
    ...     def init(self, context):
    ...         self.context, self.items = context, context.state_store("items")
    ...
    ...     def process(self, record):
    ...         if record.value == "checkout":
    ...             self.context.forward(record.key, list(self.items.range("a", "m")))
    ...             for item, _ in self.items.all():
    ...                 self.items.delete(item)
    ...         elif self.items.put_if_absent(record.value, 1) is not None:
    ...             self.items.put(record.value, self.items.get(record.value) + 1)
    >>> items = StoreSpec(name="items", key_serde=serdes.string(), value_serde=serdes.int64())
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    >>> sold = builder.stream("clicks").process(Basket, items)
    >>> sold.send_to("sold", value_serde=serdes.json())
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     for click in ("apple", "pear", "apple", "checkout"):
    ...         driver.pipe_input("clicks", key="ann", value=click, timestamp_ms=0)
    ...     (
    ...         [record.value for record in driver.read_output("sold")],
    ...         driver.store("items").approximate_count(),
    ...     )
    ([[['apple', 2]]], 0)
    """

    name: str
    key_serde: Serde
    value_serde: Serde
    logged: bool = True
    cached: bool = True
    storage: Storage = "memory"
    changelog_configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.changelog_configs:
            from airflow_kstreams.streams.topology.call_site import call_site

            check_changelog_configs(
                self.name, self.changelog_configs, logged=self.logged, where=str(call_site())
            )

    @property
    def type(self) -> str:
        """Kind of store; part of the topology hash."""
        return "key_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStoreSpec(StoreSpec):
    """A store of one value per key and window start.

    :param retention_ms: how long an entry is kept after its window's start, in stream time.
    """

    retention_ms: int

    @property
    def type(self) -> str:
        """Kind of store."""
        return "window"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStoreSpec(StoreSpec):
    """A store of one value per key and session.

    :param retention_ms: how long an entry is kept after its session's end, in stream time.
    """

    retention_ms: int

    @property
    def type(self) -> str:
        """Kind of store."""
        return "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStoreSpec(StoreSpec):
    """A store of the elements that one side of a windowed join keeps for the other: several per key, each
    with its time.

    :param retention_ms: how long an element is kept after its own time, in stream time.
    """

    retention_ms: int

    @property
    def type(self) -> str:
        """Kind of store."""
        return "join"


class RecordContext(Protocol):
    """The record being processed; one mutable object per task, updated in place for every record."""

    record: Record | None
    timestamp_ms: int
    #: Headers that a processor gave its result, None to inherit the record's.
    replaced_headers: Headers | None

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


class StoreView(Protocol):
    """What operators use of a key-value store. Entries are ``(value, timestamp_ms)``; keys are serialized
    bytes.
    """

    def get_entry(self, key: bytes) -> tuple[Any, int] | None: ...
    def put_entry(self, key: bytes, entry: tuple[Any, int] | None) -> None: ...


class StreamTimer(Protocol):
    """Calls back once when a node's stream time reaches a moment; made by ``NodeContext.stream_timer``."""

    def set(self, due_ms: int | None) -> None:
        """Arm the timer for a moment, in place of an earlier one; None disarms it.

        The callback comes after the record that brought the node's stream time to ``due_ms`` or past it; a
        moment already reached counts with the next record.
        """
        ...

    def end(self) -> None:
        """Disarm the timer for good, and have it forgotten."""
        ...


class NodeContext(Protocol):
    """What a node may use while it is bound into a task."""

    #: The task, printed ``<subtopology>_<group>``.
    task_id: str
    #: Name of the node being bound.
    node: str

    @property
    def record_context(self) -> RecordContext:
        """The record being processed."""
        ...

    def store(self, name: str) -> Any:
        """Return the task's instance of a store that this node is connected to."""
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

    def stream_timer(self, callback: Callable[[int], None]) -> StreamTimer:
        """Make a timer on the node's stream time, while binding.

        :param callback: gets the stream time; may set ``record_context.timestamp_ms`` and forward;
            ``record_context.record`` is None meanwhile.
        """
        ...

    def inlined(self, run: Forward, write: WriteCode, children: Mapping[str, Forward]) -> Forward:
        """Take note of how a closure's work is written as code, so that a loop may hold it; while binding.

        :param run: what ``bind`` is about to return; anything wrapped around it counts as another closure.
        :param children: those that ``bind`` was given.
        :return: the closure.
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

    def count_dropped(self) -> None:
        """Count one record that was dropped by rule."""
        ...


class ProcessorServices(NodeContext, Protocol):
    """What a task offers to user code beyond that."""

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

    def send(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Produce a record to a topic, its real name, with the timestamp and headers of the moment."""
        ...


class Operator(Protocol):
    """What a processor node does. Implementations are frozen dataclasses; ``bind`` makes the closure that
    runs.

    The returned closure must take ``(key, value, _node=<the node's name>)``: the default argument lets an
    error's traceback tell at which node it happened at no cost per record.
    """

    @property
    def type(self) -> str:
        """Stable name of the kind, e.g. ``filter``; part of the topology hash."""
        ...

    def bind(self, forward: Forward, context: Any, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task.

        :param forward: hands a record to every child.
        :param context: the task's services for this node, a :class:`NodeContext`.
        :param children: child name -> hands a record to that child only.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """Reads topics.

    :param name: unique in the topology.
    :param topics: the topics, logical names (see :class:`Topology`).
    :param timestamps: where the records' timestamps come from; None for the records' own.
    """

    name: str
    topics: tuple[str, ...]
    key_serde: Serde
    value_serde: Serde
    timestamps: TimestampExtractor | None = None
    site: CallSite | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorNode:
    """Runs an operator on what its parents forward.

    :param stores: names of the stores it is connected to.
    """

    name: str
    parents: tuple[str, ...]
    operator: Operator
    stores: tuple[str, ...] = ()
    site: CallSite | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """Writes what its parents forward to one topic, partitioned as Java's producer would."""

    name: str
    parents: tuple[str, ...]
    topic: str
    key_serde: Serde
    value_serde: Serde
    site: CallSite | None = None


Node = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A repartition topic that the engine creates; its real name is ``<application id>-<name>``.

    :param name: logical name, ends with ``-repartition``.
    :param partitions: fixed count, or None for as many as the largest source of the writing subtopology.
    """

    name: str
    partitions: int | None = None
