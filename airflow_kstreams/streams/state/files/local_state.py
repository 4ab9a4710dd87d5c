"""Manages the files of one task's stores, from their claim by an attempt to its end.

Steps: claim the folder; read the checkpoint and delete it; delete the files it does not vouch for; open the
stores. At a clean end, after the last commit: close the stores, write the checkpoint, give the folder back.
At any other end: discard the folder.

The checkpoint names the files and vouches for no others: each database holds a mark that describes its
content (``rocksdb_files.py``), and a store whose database has another mark, or none, is replayed. So a folder
that was removed, emptied, or replaced by an older copy or by another task's costs a replay, and the state
need not be read to find that out.

Crash argument: ``state_folder.py`` shows that a home was left by a clean end. The checkpoint is written last,
when the files are closed and durable, and deleted before they are opened, so a folder with a checkpoint holds
exactly the entries that the checkpoint vouches for, at whatever line a crash comes. Its offset was read
before the last commit: no other attempt can have written to the changelog until then, or that commit would
have been fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.state.files.checkpoint import Checkpoint, StateOwner
from airflow_kstreams.streams.state.files.state_folder import LocalFiles, StateFolder, check_state_dir
from airflow_kstreams.streams.state.stores.state_store import PersistentStore

log = package_log(__name__)

_CHECKPOINT = "checkpoint"


class LocalState:
    """The local state of one attempt of a task; every method does nothing if the task has no persistent
    store.

    :param root: folder of all local state on this machine.
    :param owner: the task.
    :param stores: name of a persistent store -> the store.
    """

    def __init__(
        self,
        root: Path,
        owner: StateOwner,
        stores: Mapping[str, PersistentStore],
        files: LocalFiles | None = None,
    ) -> None:
        self.owner = owner
        self.stores = stores
        self._root = root
        self._home = root / f"{owner.application_id}-state" / owner.task_id
        self._files = files or LocalFiles()
        self._folder: StateFolder | None = None
        self._claimed: Checkpoint | None = None

    def claim(self) -> Checkpoint | None:
        """Claim the folder, read the checkpoint and delete it.

        :return: None if there is no whole checkpoint.
        :raises StateStoreError: the folder cannot be written.
        :raises ConfigError: others of the machine may write there, or a link lies there.
        """
        if not self.stores:
            return None
        try:
            check_state_dir(self._root)
            self._folder = StateFolder.claim(self._home, self._files)
            path = self._folder.path / _CHECKPOINT
            data = path.read_bytes() if path.exists() else None
            self._files.remove(path)
            self._files.sync_folder(self._folder.path)
        except OSError as error:
            raise self._error("claimed", error) from error
        if data is None:
            return None
        checkpoint = Checkpoint.decode(data)
        if checkpoint is None:
            log.warning("task %s: the local checkpoint is corrupt and not used", self.owner.task_id)
        self._claimed = checkpoint
        return checkpoint

    def open(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """Open the stores, those with an offset on their files, the others empty.

        :param offsets: offset from which each store must be replayed, of stores in the claimed checkpoint.
        :return: the offsets without the stores whose files are damaged, or not those of the checkpoint; these
            are opened empty.
        :raises StateStoreError: the folder cannot be written.
        """
        if self._folder is None:
            return {}
        opened = dict(offsets)
        try:
            kept = {_store_folder(name) for name in offsets}
            for path in sorted(self._folder.path.iterdir()):
                if path.name not in kept:
                    self._files.remove_tree(path)
            for name, store in self.stores.items():
                folder = self._folder.path / _store_folder(name)
                if name in opened and not self._opens(name, store, folder, f"store {name!r}"):
                    del opened[name]
                    self._files.remove_tree(folder)
                if name not in opened:
                    store.open(folder)
        except OSError as error:
            raise self._error("written", error) from error
        return opened

    def keep(self, checkpoint: Checkpoint) -> bool:
        """Keep the files for the next attempt, after the task's last commit.

        :param checkpoint: the entries that the files hold; files of stores without an entry are removed.
        :return: False if a later attempt has left its own files.
        :raises StateStoreError: the files cannot be written.
        """
        if self._folder is None:
            return False
        folder = self._folder.path
        try:
            for name, store in self.stores.items():
                store.close(checkpoint.mark_of(name) if name in checkpoint.stores else None)
                if name not in checkpoint.stores:
                    self._files.remove_tree(folder / _store_folder(name))
            draft = folder / f"{_CHECKPOINT}.draft"
            self._files.write(draft, checkpoint.encode())
            self._files.rename(draft, folder / _CHECKPOINT)
            self._files.sync_folder(folder)
            given = self._folder.give_back()
        except OSError as error:
            raise self._error("kept", error) from error
        self._folder = None
        return given

    def discard(self) -> None:
        """Close the stores and remove their files, unless they were kept. Best effort: the next attempt
        removes the rest.
        """
        folder, self._folder = self._folder, None
        if folder is None:
            return
        for store in self.stores.values():
            with suppress(StateStoreError):
                store.close()
        try:
            folder.discard()
        except OSError as error:
            log.warning(
                "task %s: its local state could not be removed and is left to the next attempt: %s",
                self.owner.task_id,
                error,
            )

    def _opens(self, name: str, store: PersistentStore, folder: Path, _serde_of: str) -> bool:
        if self._claimed is None:
            return False
        try:
            store.open(folder, self._claimed.mark_of(name))
        except StateStoreError as error:
            log.warning(
                "task %s: local state is not used, its changelog is replayed: %s", self.owner.task_id, error
            )
            with suppress(StateStoreError):
                store.close()
            return False
        return True

    def _error(self, what: str, error: OSError) -> StateStoreError:
        return StateStoreError(
            f"task {self.owner.task_id} of application {self.owner.application_id!r}: its local state in "
            f"{self._home.parent} cannot be {what}: {error}",
            fix="let state.dir name a folder that the executors' user may write, on a disk with space",
        )


def _store_folder(name: str) -> str:
    return f"{name}-store"
