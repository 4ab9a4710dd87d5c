"""Emits the results of a windowed table while its windows come and go.

Rule: as :mod:`airflow_kstreams.streams.kstream.operators.table_emitter` says, with two additions. A window
that leaves the store with a change that waits for a commit point is emitted then, for the commit point
would not find it any more. A window that came and went between two commit points is forgotten, since a
session that grows leaves a trail of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.graph.services import Forward, NodeContext, ignore_updates
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.deliveries import ABSENT
from airflow_kstreams.streams.kstream.operators.table_emitter import TableEmitter
from airflow_kstreams.streams.serde.changed import OldAndNew
from airflow_kstreams.streams.state.stores.expiring_store import Entry, EntryId, bind_expiry
from airflow_kstreams.streams.windows import Windowed


class WindowEmitter(TableEmitter):
    """Emits what changed in one task's windowed table, and lets its windows expire.

    :param children: of the table's node; if none of them wants updates, none are emitted.
    :param store: of the table.
    """

    def __init__(
        self, forward: Forward, context: NodeContext, children: dict[str, Forward], store: StoreSpec
    ) -> None:
        #: Whether a child wants updates.
        self.wanted = any(child is not ignore_updates for child in children.values())
        super().__init__(forward, context, children, store=store.name, cached=store.cached and self.wanted)
        leaving = self._leaving(context, children) if self.cached else None
        bind_expiry(context, context.store(store.name), leaving)

    def changed(self, entry_id: EntryId, windowed: Windowed, entry: Entry, *, born: bool) -> None:
        """Emit a window that was not dirty yet, at once or at the next commit point.

        :param born: whether it was not in the table before.
        """
        if self.cached:
            self.dirty[entry_id] = windowed
            if born:
                self.born.add(entry_id)
        else:
            self.emit(windowed, entry[0], entry[1])

    def change(
        self, key_bytes: EntryId, key: Windowed, old: Entry | None, value: Any, timestamp_ms: int
    ) -> None:
        """Give a window another value and emit it, at once or at the next commit point."""
        super().change(key_bytes, key, old, value, timestamp_ms)
        if value is None and self.cached and self.olds.get(key_bytes, old) is None:
            self.olds.pop(key_bytes, None)
            self.dirty.pop(key_bytes, None)

    def delete(self, key_bytes: EntryId, key: Windowed, timestamp_ms: int) -> None:
        """Delete a window that is in the table."""
        if key_bytes in self.born:
            self._put_entry(key_bytes, None)
            self.born.discard(key_bytes)
            del self.dirty[key_bytes]
        else:
            super().delete(key_bytes, key, timestamp_ms)

    def _leaving(
        self, context: NodeContext, children: dict[str, Forward]
    ) -> Callable[[EntryId, Entry], None]:
        """Make what emits the last change of a window that has left the store."""
        code = context.flush_code(children, timestamp_ms="entry_ms")
        with code.block("def leave(entry_id, entry, _node=_node_of_line)"):
            code.line(f"key = {code.name(self.dirty, 'dirty')}.pop(entry_id, None)")
            with code.block("if key is None"):
                code.line("return")
            code.line("value, entry_ms = entry")
            code.line("latest_ms = context.timestamp_ms")
            with code.counted():
                if self.tracked:
                    change, olds = code.name(OldAndNew, "Change"), code.name(self.olds, "olds")
                    absent = code.name(ABSENT, "absent")
                    code.line(f"change = {change}(value, *({olds}.pop(entry_id) or {absent}))")
                    code.place()
                    self.deliveries.write(code, "key", "change", "value")
                else:
                    code.line(f"{code.name(self.born, 'born')}.discard(entry_id)")
                    code.place(for_closures=True)
                    code.forward("key", "value")
            code.line("context.timestamp_ms = latest_ms")
        leave: Callable[[EntryId, Entry], None] = code.function("leave")
        return leave
