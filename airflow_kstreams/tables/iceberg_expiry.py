"""Forgets older snapshots of an Iceberg table, and deletes the files that only they name.

pyiceberg 0.12 takes snapshots out of the metadata and deletes nothing.

Rule: the newest snapshots of the line up to the head are kept, and whatever a branch or tag names. A
manifest, or list of manifests, is deleted if only forgotten snapshots name it. A data file is deleted if a
forgotten snapshot of the line has taken it out: all snapshots before that one are forgotten with it, and
those after it do not have the file. A snapshot names manifests of the one before it and new ones; so those
that the oldest kept snapshot does not name, no later one does. Hence the manifests of kept snapshots are not
read, however large the table is; only those that a branch or tag keeps outside of the newest ones are.

Files that only a snapshot beside the line has added, one that was rolled back, are left: a kept snapshot may
have been made of them. The command that deletes orphans finds those of this application.

Crash argument: files are deleted once the commit has been answered. If the process ends before that, they
lie there, and no snapshot names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update.snapshot import ExpireSnapshots

from airflow_kstreams.streams.errors import TableRefusedError
from airflow_kstreams.tables.iceberg_catalogs import for_one_commit
from airflow_kstreams.tables.iceberg_errors import port_errors
from airflow_kstreams.tables.storage_errors import TablePlace

if TYPE_CHECKING:
    from pyiceberg.table import Table


def expire(table: Table, keep: int, place: TablePlace) -> None:
    """Forget all snapshots of a table but the newest ones.

    :param table: the table, as it was looked at.
    :param keep: number of snapshots of the line up to the head that are kept, at least 1.
    :param place: the table, for messages.
    :raises TableMovedError: the table has changed since the look; nothing was forgotten.
    :raises TableRefusedError: the table says that its files are not its own to delete.
    """
    if table.metadata.properties.get("gc.enabled", "true").lower() == "false":
        raise TableRefusedError(
            f"table {place.name!r}: gc.enabled is false: its files may belong to other tables, too",
            fix="leave its snapshots alone: take expire_snapshots= away",
        )
    plan = _Plan(table, keep)
    if not plan.forgotten:
        return
    with port_errors(place, "expiry"):
        files = plan.files()
        transaction = for_one_commit(table, place).transaction()
        ExpireSnapshots(transaction).by_ids([each.snapshot_id for each in plan.forgotten]).commit()
        transaction.commit_transaction()
        for path in files:
            try:
                table.io.delete(path)
            except FileNotFoundError:
                continue


class _Plan:
    """The snapshots to forget, and the files that only they name.

    :param table: the table.
    :param keep: number of snapshots of the line that are kept.
    """

    def __init__(self, table: Table, keep: int) -> None:
        self._io, metadata = table.io, table.metadata
        line = list(ancestors_of(metadata.current_snapshot(), metadata))
        self._line = {each.snapshot_id for each in line}
        newest = line[: max(keep, 1)]
        self._oldest = newest[-1:]
        newest_ids = {each.snapshot_id for each in newest}
        kept = newest_ids | self._named_by_refs(table) | self._beside(table, newest)
        self._outside = [each for each in metadata.snapshots if each.snapshot_id in kept - newest_ids]
        self.forgotten = [each for each in metadata.snapshots if each.snapshot_id not in kept]

    @staticmethod
    def _named_by_refs(table: Table) -> set[int]:
        """Return the snapshots that a branch or tag names, with all before them."""
        metadata = table.metadata
        heads = [ref.snapshot_id for name, ref in metadata.refs.items() if name != MAIN_BRANCH]
        return {
            each.snapshot_id
            for head in heads
            for each in ancestors_of(metadata.snapshot_by_id(head), metadata)
        }

    def _beside(self, table: Table, newest: list[Snapshot]) -> set[int]:
        """Return the snapshots beside the line that are as new as those that are kept of it."""
        oldest_ms = newest[-1].timestamp_ms if newest else 0
        return {
            each.snapshot_id
            for each in table.metadata.snapshots
            if each.snapshot_id not in self._line and each.timestamp_ms >= oldest_ms
        }

    def files(self) -> list[str]:
        """Return the locations of files that only forgotten snapshots name."""
        named = {
            manifest.manifest_path
            for snapshot in (*self._oldest, *self._outside)
            for manifest in snapshot.manifests(self._io)
        }
        manifests: set[str] = set()
        taken_out: set[str] = set()
        for snapshot in self.forgotten:
            for manifest in snapshot.manifests(self._io):
                manifests.add(manifest.manifest_path)
                if manifest.added_snapshot_id == snapshot.snapshot_id and snapshot.snapshot_id in self._line:
                    taken_out |= self._taken_out(manifest, snapshot.snapshot_id)
        if taken_out and self._outside:
            taken_out -= self._live(self._outside)
        return sorted(taken_out | (manifests - named) | {each.manifest_list for each in self.forgotten})

    def _taken_out(self, manifest: ManifestFile, snapshot_id: int) -> set[str]:
        """Return the data files that a snapshot has taken out, as one of its manifests says."""
        if manifest.deleted_files_count == 0:
            return set()
        return {
            entry.data_file.file_path
            for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=False)
            if entry.status == ManifestEntryStatus.DELETED and entry.snapshot_id == snapshot_id
        }

    def _live(self, snapshots: Iterable[Snapshot]) -> set[str]:
        return {
            entry.data_file.file_path
            for snapshot in snapshots
            for manifest in snapshot.manifests(self._io)
            for entry in manifest.fetch_manifest_entry(self._io)
        }
