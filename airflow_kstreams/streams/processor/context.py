"""What a processor may use: forwarding, stores, and facts about the record being processed."""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.topology.nodes import Forward, NodeContext


class ProcessorContext:
    """One per processor instance; valid from ``init`` to ``close``.

    Facts about the record are those of the consumed record that led here. When a table emits at a commit
    point there is none: then ``topic`` is None, ``partition`` and ``offset`` are -1, ``headers`` are empty,
    and ``timestamp_ms`` is the table entry's.
    """

    __slots__ = ("_children", "_context", "_forward", "_record_context", "task_id")

    def __init__(self, context: NodeContext, forward: Forward, children: dict[str, Forward]) -> None:
        self._context = context
        self._record_context = context.record_context
        self._forward = forward
        self._children = children
        #: The task, printed ``<subtopology>_<group>``.
        self.task_id = context.task_id

    def forward(
        self, key: Any, value: Any, *, to: str | None = None, timestamp_ms: int | None = None
    ) -> None:
        """Hand a key and a value to the children of this node.

        :param to: name of the one child to hand it to; every child unless given.
        :param timestamp_ms: of the result; that of the record being processed unless given.
        :raises TopologyError: there is no child of that name.
        """
        target = self._forward if to is None else self._child(to)
        if timestamp_ms is None:
            target(key, value)
            return
        record_context = self._record_context
        before = record_context.timestamp_ms
        record_context.timestamp_ms = timestamp_ms
        try:
            target(key, value)
        finally:
            record_context.timestamp_ms = before

    def state_store(self, name: str) -> Any:
        """Return this task's instance of a store that the processor is connected to: a
        :class:`KeyValueStore`, :class:`WindowStore` or :class:`SessionStore`, as its spec says.

        :raises TopologyError: it is not connected to a store of that name.
        """
        try:
            return self._context.store(name)
        except KeyError:
            raise TopologyError(
                f"task {self.task_id}: processor {self._context.node!r} has no access to the store {name!r}",
                fix="name the store where the processor is added",
            ) from None

    def commit(self) -> None:
        """Ask for a commit after the record being processed; with cached results it waits for the next commit
        point.
        """
        self._context.request_commit()

    @property
    def timestamp_ms(self) -> int:
        """Timestamp of the record being processed, epoch milliseconds."""
        return self._record_context.timestamp_ms

    @property
    def topic(self) -> str | None:
        """Topic of the consumed record, its real name."""
        record = self._record_context.record
        return None if record is None else record.topic()

    @property
    def partition(self) -> int:
        """Partition of the consumed record."""
        record = self._record_context.record
        return -1 if record is None else record.partition()

    @property
    def offset(self) -> int:
        """Offset of the consumed record."""
        record = self._record_context.record
        return -1 if record is None else record.offset()

    @property
    def headers(self) -> Headers:
        """Headers of the consumed record, in order."""
        record = self._record_context.record
        return [] if record is None else record.headers() or []

    def _child(self, name: str) -> Forward:
        try:
            return self._children[name]
        except KeyError:
            raise TopologyError(
                f"task {self.task_id}: processor {self._context.node!r} has no child {name!r}",
                fix=f"forward to one of: {', '.join(self._children) or 'none, it has no children'}",
            ) from None
