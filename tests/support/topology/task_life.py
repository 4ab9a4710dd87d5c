"""Attempts of a task on one machine, one after another, each dying anywhere or ending cleanly.

The changelog is a list here, so that what a store must hold is its fold and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from airflow_kstreams.streams import StoreSpec, serdes
from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.files.checkpoint import (
    ChangelogPartition,
    Checkpoint,
    StateOwner,
    StoreCheckpoint,
    usable_offsets,
)
from airflow_kstreams.streams.state.files.local_state import LocalState
from airflow_kstreams.streams.state.files.state_folder import LocalFiles
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb import RocksDBKeyValueStore
from tests.support.crash import Crash
from tests.support.topology.crashing_files import let_go_of_locks
from tests.support.topology.records import FakeRecord

OWNER = StateOwner(application_id="app", task_id="0_1", topology_hash="h", tasks=2)
SPEC = StoreSpec(name="totals", key_serde=serdes.string(), value_serde=serdes.json(), storage="rocksdb")
RETENTION_MS = 1_000

#: Where an attempt dies, besides the steps on files.
Death = Literal["before the commit", "before keeping"] | None


@dataclass
class Life:
    """A task's machine and its changelog.

    :param root: folder of local state.
    """

    root: Path
    log: list[FakeRecord] = field(default_factory=list)
    now_ms: int = 0
    topic_id: str = "id-1"
    log_start: int = 0
    owner: StateOwner = OWNER
    spec: StoreSpec = SPEC
    #: Records replayed by each attempt that got that far.
    replayed: list[int] = field(default_factory=list)

    @property
    def fold(self) -> dict[str, Any]:
        """What the changelog says that the store holds."""
        last = {record.key_bytes: record.value_bytes for record in self.log}
        return {
            (key or b"").decode(): serdes.json().deserialize(value)
            for key, value in last.items()
            if value is not None
        }

    def attempt(
        self, changes: Mapping[str, Any], files: LocalFiles | None = None, *, death: Death = None
    ) -> bool:
        """Run an attempt that puts some values (None deletes) and commits them; say whether it survived."""
        context = TaskRecordContext()
        store = RocksDBKeyValueStore(self.spec, context, kept_entries=2)
        state = LocalState(self.root, self.owner, {self.spec.name: store}, files)
        try:
            self._restore(state, store)
            assert dict(store.all()) == self.fold, "the restored store is the fold of its changelog"
            for key, value in changes.items():
                store.put(key, value)
            self._commit(store, death)
            state.keep(self._checkpoint(store))
        except Crash:
            with suppress(StateStoreError):
                store.close()
            let_go_of_locks(self.root)
            return False
        return True

    def folders(self) -> list[str]:
        """What lies beside the task's home."""
        folder = self.root / "app-state"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def _restore(self, state: LocalState, store: RocksDBKeyValueStore) -> None:
        checkpoint = state.claim()
        usable: dict[str, int] = {}
        if checkpoint is not None:
            usable = usable_offsets(
                checkpoint,
                owner=self.owner,
                formats={self.spec.name: store.store_format},
                changelogs={
                    self.spec.name: ChangelogPartition(
                        topic_id=self.topic_id,
                        start_offset=self.log_start,
                        end_offset=len(self.log),
                        delete_retention_ms=RETENTION_MS,
                    )
                },
                now_ms=self.now_ms,
            )
        missing = self.log[state.open(usable).get(self.spec.name, 0) :]
        store.restore_batch(missing)
        self.replayed.append(len(missing))

    def _commit(self, store: RocksDBKeyValueStore, death: Death) -> None:
        drained = [
            FakeRecord(at=len(self.log) + number, key_bytes=key, value_bytes=value, timestamp_ms=at)
            for number, (key, value, at) in enumerate(store.drain_changes())
        ]
        if death == "before the commit":
            raise Crash
        self.log += drained
        if death == "before keeping":
            raise Crash

    def _checkpoint(self, store: RocksDBKeyValueStore) -> Checkpoint:
        entry = StoreCheckpoint(store_format=store.store_format, topic_id=self.topic_id, offset=len(self.log))
        return Checkpoint(owner=self.owner, written_ms=self.now_ms, stores={self.spec.name: entry})
