"""Operators that fold the records of each key into a table kept in a store.

Rule: the entry of a key holds the folded value and the largest timestamp folded into it. A cached table emits
at each commit point, once per key changed since the last one, in order of first change, the newest value with
the entry's timestamp; an uncached one emits with every record. A deleted key is emitted with None. A key that
was not in the table at the last emission and is not now is not emitted: there is nothing to take back.

Crash argument: what is dirty is never saved. A crash loses the dirty keys together with the uncommitted
records that made them so; the attempt that resumes reads those records again and, since commit points are
counted in records, emits the same keys in the same order.

The three operators repeat a dozen lines instead of sharing them through a call, which would be a quarter of
their cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.topology.nodes import Forward, NodeContext, StoreSpec

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
Reducer = Callable[[Any, Any], Any]


class TableEmitter:
    """Emits what changed in one task's table.

    :param store: name of the table's store.
    :param cached: whether to emit at commit points only; then registers itself for them.
    """

    def __init__(self, forward: Forward, context: NodeContext, *, store: str, cached: bool) -> None:
        #: Serialized key (in a window store, the entry's id) -> key of what changed since the last commit
        #: point; operators write it themselves.
        self.dirty: dict[Any, Any] = {}
        #: Those among them that were not in the table at the last commit point.
        self.born: set[Any] = set()
        self._deleted: dict[Any, int] = {}
        self._forward = forward
        self._record_context = context.record_context
        self._get_entry = context.store(store).get_entry
        self._put_entry = context.store(store).put_entry
        self._cached = cached
        self._node = context.node
        if cached:
            context.on_flush(self.flush)

    def emit(self, key: Any, value: Any, timestamp_ms: int) -> None:
        """Emit one change at once, with a timestamp of its own."""
        record_context = self._record_context
        before = record_context.timestamp_ms
        record_context.timestamp_ms = timestamp_ms
        self._forward(key, value)
        # The record may still have to visit other children of this node's parent.
        record_context.timestamp_ms = before

    def delete(self, key_bytes: Any, key: Any, timestamp_ms: int) -> None:
        """Delete a key that is in the table."""
        self._put_entry(key_bytes, None)
        if self._cached:
            self.dirty[key_bytes] = key
            self._deleted[key_bytes] = timestamp_ms
        else:
            self.emit(key, None, timestamp_ms)

    def flush(self) -> None:
        """Emit what changed since the last commit point."""
        self._emit_dirty(self._node)
        self.dirty.clear()
        self.born.clear()
        self._deleted.clear()

    def _emit_dirty(self, _node: str) -> None:
        record_context = self._record_context
        latest_ms = record_context.timestamp_ms
        forward = self._forward
        get_entry = self._get_entry
        for key_bytes, key in self.dirty.items():
            entry = get_entry(key_bytes)
            if entry is not None:
                record_context.timestamp_ms = entry[1]
                forward(key, entry[0])
            elif key_bytes not in self.born:
                # A processor that shares the store may have deleted the key: the last record's time must do.
                record_context.timestamp_ms = self._deleted.get(key_bytes, latest_ms)
                forward(key, None)
        record_context.timestamp_ms = latest_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Counts the records of each key."""

    store: StoreSpec

    @property
    def type(self) -> str:
        """Kind of node."""
        return "count"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        cached = self.store.cached
        serialize_key = self.store.key_serde.serialize
        get_entry = context.store(self.store.name).get_entry
        put_entry = context.store(self.store.name).put_entry
        count_dropped = context.count_dropped
        record_context = context.record_context
        emitter = TableEmitter(forward, context, store=self.store.name, cached=cached)
        dirty, born, emit = emitter.dirty, emitter.born, emitter.emit

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if key is None or value is None:
                count_dropped()
                return
            key_bytes = serialize_key(key)
            timestamp_ms = record_context.timestamp_ms
            entry = get_entry(key_bytes)
            if entry is None:
                count = 1
                if key_bytes not in dirty:
                    born.add(key_bytes)
            else:
                count, time_ms = entry
                count += 1
                if time_ms > timestamp_ms:
                    timestamp_ms = time_ms
            put_entry(key_bytes, (count, timestamp_ms))
            if cached:
                dirty[key_bytes] = key
            else:
                emit(key, count, timestamp_ms)

        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce:
    """Folds the values of each key into one of the same kind; the first value stands for itself."""

    reducer: Reducer
    store: StoreSpec

    @property
    def type(self) -> str:
        """Kind of node."""
        return "reduce"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        reducer = self.reducer
        cached = self.store.cached
        serialize_key = self.store.key_serde.serialize
        get_entry = context.store(self.store.name).get_entry
        put_entry = context.store(self.store.name).put_entry
        count_dropped = context.count_dropped
        record_context = context.record_context
        emitter = TableEmitter(forward, context, store=self.store.name, cached=cached)
        dirty, born, emit, delete = emitter.dirty, emitter.born, emitter.emit, emitter.delete

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if key is None or value is None:
                count_dropped()
                return
            key_bytes = serialize_key(key)
            timestamp_ms = record_context.timestamp_ms
            entry = get_entry(key_bytes)
            if entry is None:
                result = value
                if key_bytes not in dirty:
                    born.add(key_bytes)
            else:
                result, time_ms = entry
                result = reducer(result, value)
                if time_ms > timestamp_ms:
                    timestamp_ms = time_ms
                if result is None:
                    delete(key_bytes, key, timestamp_ms)
                    return
            put_entry(key_bytes, (result, timestamp_ms))
            if cached:
                dirty[key_bytes] = key
            else:
                emit(key, result, timestamp_ms)

        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Folds the values of each key into an aggregate; one that becomes None is deleted."""

    initializer: Initializer
    aggregator: Aggregator
    store: StoreSpec

    @property
    def type(self) -> str:
        """Kind of node."""
        return "aggregate"

    def bind(self, forward: Forward, context: NodeContext, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task."""
        initializer = self.initializer
        aggregator = self.aggregator
        cached = self.store.cached
        serialize_key = self.store.key_serde.serialize
        get_entry = context.store(self.store.name).get_entry
        put_entry = context.store(self.store.name).put_entry
        count_dropped = context.count_dropped
        record_context = context.record_context
        emitter = TableEmitter(forward, context, store=self.store.name, cached=cached)
        dirty, born, emit, delete = emitter.dirty, emitter.born, emitter.emit, emitter.delete

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            if key is None or value is None:
                count_dropped()
                return
            key_bytes = serialize_key(key)
            timestamp_ms = record_context.timestamp_ms
            entry = get_entry(key_bytes)
            if entry is None:
                result = aggregator(key, value, initializer())
                if result is None:
                    return
                if key_bytes not in dirty:
                    born.add(key_bytes)
            else:
                result, time_ms = entry
                result = aggregator(key, value, result)
                if time_ms > timestamp_ms:
                    timestamp_ms = time_ms
                if result is None:
                    delete(key_bytes, key, timestamp_ms)
                    return
            put_entry(key_bytes, (result, timestamp_ms))
            if cached:
                dirty[key_bytes] = key
            else:
                emit(key, result, timestamp_ms)

        return run
