"""What a windowed table emits while its windows come and go.

Rule: as :mod:`airflow_kstreams.streams.kstream.operators.aggregation` says, with two additions. A window
that leaves the store with a change that waits for a commit point is emitted then, for the commit point
would not find it any more. A window that came and went between two commit points is forgotten, since a
session that grows leaves a trail of them.
"""

from __future__ import annotations

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
        if windowed is not None:
            self.born.discard(entry_id)
            self.emit(windowed, entry[0], entry[1])
