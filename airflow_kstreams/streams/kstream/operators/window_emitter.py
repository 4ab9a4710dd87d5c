"""What a windowed table emits while its windows come and go.

Rule: as :mod:`airflow_kstreams.streams.kstream.operators.aggregation` says, with two additions. A window
that leaves the store with a change that waits for a commit point is emitted then, for the commit point
would not find it any more. A window that came and went between two commit points is forgotten, since a
session that grows leaves a trail of them.
"""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import NodeContext, ignore_updates
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.kstream.operators.aggregation import TableEmitter
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
        bind_expiry(context, context.store(store.name), self._leave)

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

    def _leave(self, entry_id: EntryId, entry: Entry) -> None:
        """Emit the last change of a window that has left the store."""
        windowed = self.dirty.pop(entry_id, None)
        if windowed is None:
            return
        if self.tracked:
            self.emit_change(windowed, entry[0], self.olds.pop(entry_id), entry[1])
            return
        self.born.discard(entry_id)
        self.emit(windowed, entry[0], entry[1])
