"""The port to a table, on pyiceberg.

Rule: a commit is one transaction of one snapshot producer, with the mark as a table property in it, on the
condition that the table's id, head, schema and partitioning are those of the look
(:mod:`airflow_kstreams.tables.iceberg_catalogs`).

Why the condition suffices. Each commit of ours makes a snapshot, one without rows too, so the head moves with
every mark that is set. Of two commits on one look at most one can find its head. A commit that moves the head
back, a rollback, takes rows of ours out; a commit that then lands on the old head adds them once.

Expiry of older snapshots moves no head, and a commit may land beside it: what the snapshot names stays.

An upsert writes files for the state of the look, and takes out those that it has rewritten, in one snapshot
(:mod:`airflow_kstreams.tables.upserts.iceberg_rewrite`). What it has written and could not commit stays in
the storage, for the commit may have landed.

The mark of application and sink is the property ``kstreams.<application>.<sink>``; dots of the application
are written ``%2E`` in it, so that no two pairs share a name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry
from pyiceberg.schema import index_by_name
from pyiceberg.table import Table, TableProperties
from pyiceberg.table import Transaction as IcebergTransaction

from airflow_kstreams.streams.errors import TableMovedError, TableRefusedError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.partition_fields import field_of
from airflow_kstreams.streams.tables.table_port import (
    FileFacts,
    MadeSnapshot,
    RewrittenFiles,
    Snapshot,
    TableCommit,
    TableFiles,
    TableLook,
)
from airflow_kstreams.tables.iceberg_catalogs import for_one_commit
from airflow_kstreams.tables.iceberg_errors import port_errors
from airflow_kstreams.tables.iceberg_expiry import expire
from airflow_kstreams.tables.iceberg_files import DataFileMaker, IcebergFiles, partition_value_of
from airflow_kstreams.tables.iceberg_schema import (
    columns_of,
    iceberg_schema,
    iceberg_spec,
    iceberg_type,
    partition_texts,
    refused_features,
    sorted_by,
)
from airflow_kstreams.tables.parquet.row_counts import counts_in
from airflow_kstreams.tables.storage_errors import TablePlace
from airflow_kstreams.tables.upserts.iceberg_rewrite import TableRewrite
from airflow_kstreams.tables.upserts.said_sizes import say_rewritten

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

_MARK = "kstreams."
#: Of tables that are made here: one metadata file a commit would pile up for ever.
_NEW_TABLE = {
    TableProperties.FORMAT_VERSION: "2",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
}


class IcebergTablePort:
    """One table of an Iceberg catalogue.

    :param catalog: opens the catalogue, or returns the open one.
    :param identifier: namespace and name of the table, with dots.
    :param place: the table, for messages.
    :param most_rewritten: bytes of files that an upsert may rewrite in this process; None for any.
    :param rewriter: rewrites files elsewhere, where an upsert touches much; None to do it here.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        identifier: str,
        place: TablePlace,
        most_rewritten: int | None = None,
        rewriter: Callable[[TableLook, Sequence[TableCommit]], Sequence[RewrittenFiles]] | None = None,
    ) -> None:
        self._catalog, self._identifier, self._place = catalog, identifier, place
        self._most_rewritten, self._rewriter = most_rewritten, rewriter

    def look(self, application_id: str = "") -> TableLook | None:
        """Load the table from its catalogue. See ``TablePort``."""
        table = self._loaded()
        if table is None:
            return None
        with port_errors(self._place, "look"):
            metadata, head = table.metadata, table.metadata.current_snapshot()
            return TableLook(
                table_id=str(metadata.table_uuid),
                columns=columns_of(table.schema()),
                column_ids=dict(index_by_name(table.schema())),
                schema_id=metadata.current_schema_id,
                partition_by=partition_texts(table.spec(), table.schema()),
                spec_id=metadata.default_spec_id,
                sort_by=sorted_by(table),
                snapshot="" if head is None else str(head.snapshot_id),
                marks=dict(_marks(table, application_id)) if application_id else {},
                target_bytes=int(metadata.properties.get(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, 0)),
                refused=refused_features(table),
                state=table,
            )

    def _loaded(self) -> Table | None:
        with port_errors(self._place, "look"):
            try:
                return self._catalog().load_table(self._identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def create(self, columns: tuple[Column, ...], partition_by: tuple[str, ...]) -> None:
        """Create the table, and its namespace. See ``TablePort``."""
        schema = iceberg_schema(columns)
        spec = iceberg_spec(partition_by, schema)
        with port_errors(self._place, "creation"):
            catalog = self._catalog()
            namespace = Catalog.namespace_from(self._identifier)
            try:
                if not catalog.namespace_exists(namespace):
                    catalog.create_namespace(namespace)
            except NamespaceAlreadyExistsError:
                pass
            try:
                catalog.create_table(self._identifier, schema, partition_spec=spec, properties=_NEW_TABLE)
            except TableAlreadyExistsError:
                self._refuse_view()

    def _refuse_view(self) -> None:
        """Refuse a name that is taken, and not by a table."""
        if self._loaded() is None:
            raise TableRefusedError(
                f"table {self._place.name!r}: {self._identifier} exists, and is no Iceberg table",
                fix="name another table, or drop the view or table of another format that has this name",
            )

    def widen(self, look: TableLook, *, added: tuple[Column, ...], widened: tuple[Column, ...]) -> None:
        """Change the schema in one commit. See ``TablePort``."""
        with port_errors(self._place, "change of the schema"):
            transaction = self._transaction(look)
            with transaction.update_schema() as update:
                for column in added:
                    update.add_column((column.name,), iceberg_type(column.type), required=False)
                for column in widened:
                    update.update_column((column.name,), iceberg_type(column.type))
            transaction.commit_transaction()

    def files(self, look: TableLook) -> TableFiles:
        """Return the storage of the table's files, with the credentials of the look."""
        return IcebergFiles(_table(look), self._place, self._renewed)

    def _renewed(self) -> Table:
        table = self._loaded()
        if table is None:
            raise TableMovedError(f"table {self._place.name!r} is gone")
        return table

    def commit(self, look: TableLook, commit: TableCommit) -> MadeSnapshot:
        """Make one snapshot. See ``TablePort``."""
        if commit.key_column and commit.added:
            return self._upsert(look, commit)
        return MadeSnapshot(snapshot=self._committed(look, commit, commit.added, commit.removed))

    def rewritten(self, snapshot: str, commit: TableCommit) -> RewrittenFiles:
        """Rewrite files for an upsert, or a part of it, and commit nothing.

        :param snapshot: the snapshot that they are rewritten for; empty for a table without one.
        :raises TableMovedError: the table is gone.
        """
        look = self.look()
        if look is None:
            raise TableMovedError(f"table {self._place.name!r} is gone")
        with port_errors(self._place, "upsert"):
            return self._rewrite(replace(look, snapshot=snapshot), commit).made()

    def _rewrite(self, look: TableLook, commit: TableCommit) -> TableRewrite:
        return TableRewrite(look, self.files(look), commit, self._place, most_bytes=self._most_rewritten)

    def _upsert(self, look: TableLook, commit: TableCommit) -> MadeSnapshot:
        """Rewrite files for the state of the look, and make one snapshot of them."""
        with port_errors(self._place, "upsert"):
            rewrite = self._rewrite(look, commit)
            if self._rewriter is not None and rewrite.is_large:
                parts = self._rewriter(look, rewrite.by_bucket())
            else:
                parts = [rewrite.made()]
        rewritten = sum(part.removed_bytes for part in parts)
        say_rewritten(
            self._place.name,
            rewritten_bytes=rewritten,
            new_bytes=sum(file.size for file in commit.added),
        )
        added = [file for part in parts for file in part.added]
        removed = [path for part in parts for path in part.removed]
        return MadeSnapshot(snapshot=self._committed(look, commit, added, removed), rewritten_bytes=rewritten)

    def _committed(
        self, look: TableLook, commit: TableCommit, files: Collection[FileFacts], paths: Collection[str]
    ) -> str:
        """Make one snapshot that adds files, and takes those at some paths out."""
        table = _table(look)
        maker = DataFileMaker(table.schema(), table.spec())
        added = [maker.made(file) for file in files]
        with port_errors(self._place, "commit"):
            removed = self._found(table, set(paths))
            transaction = self._transaction(look)
            update = transaction.update_snapshot(dict(commit.summary))
            producer = update.overwrite() if removed else update.merge_append()
            for data_file in added:
                producer.append_data_file(data_file)
            for data_file in removed:
                producer.delete_data_file(data_file)
            producer.commit()
            transaction.set_properties({mark_name(commit.application_id, commit.sink): str(commit.sequence)})
            transaction.commit_transaction()
        return str(producer.snapshot_id)

    def _found(self, table: Table, paths: set[str]) -> list[DataFile]:
        """Return the descriptions of files in the newest snapshot.

        :raises TableRefusedError: one is not in it.
        """
        if not paths:
            return []
        snapshot = table.metadata.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(table.io)
        found = [
            entry.data_file
            for manifest in manifests
            if manifest.content == ManifestContent.DATA
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.data_file.file_path in paths
        ]
        missing = paths - {data_file.file_path for data_file in found}
        if missing:
            raise TableRefusedError(
                f"table {self._place.name!r}: {min(missing)} is to be taken out, and snapshot "
                f"{_id_of(snapshot)} does not have it"
            )
        return found

    def drop_mark(self, look: TableLook, application_id: str, sink: str) -> None:
        """Take a mark away. See ``TablePort``."""
        name = mark_name(application_id, sink)
        if name not in _table(look).metadata.properties:
            return
        with port_errors(self._place, "removal of a mark"):
            transaction = self._transaction(look)
            transaction.remove_properties(name)
            transaction.commit_transaction()

    def holds(self, look: TableLook, snapshot: str) -> bool | None:
        """Follow the parents of the newest snapshot. See ``TablePort``.

        pyiceberg's expiry takes a snapshot's parent away when that is expired. So a snapshot without a parent
        is the first one only if it has the first sequence number.
        """
        metadata = _table(look).metadata
        chain = list(_line(_table(look)))
        if any(str(each.snapshot_id) == snapshot for each in chain):
            return True
        oldest = chain[-1] if chain else None
        if oldest is None or oldest.sequence_number == 1:
            return False
        asked = metadata.snapshot_by_id(int(snapshot)) if snapshot.isdigit() else None
        if asked is not None and (asked.sequence_number or 0) >= (oldest.sequence_number or 0):
            return False
        return None

    def snapshots(self, look: TableLook, *, taken_back: bool = False) -> tuple[Snapshot, ...]:
        """Return the newest snapshot and those before it, as far as they are kept. See ``TablePort``."""
        if not taken_back:
            return tuple(reversed([_described(each) for each in _line(_table(look))]))
        kept = _table(look).metadata.snapshots
        return tuple(
            map(_described, sorted(kept, key=lambda each: (each.sequence_number or 0, each.timestamp_ms)))
        )

    def added(self, look: TableLook, snapshot: str) -> Mapping[str, int] | None:
        """Return files by the snapshot that their manifests name. See ``TablePort``.

        Manifests that are merged, or rewritten, keep the snapshot of each file; it need not exist any more.
        """
        entries = self._entries(look)
        if entries is None:
            return None
        return {
            entry.data_file.file_path: entry.data_file.record_count
            for entry in entries
            if str(entry.snapshot_id) == snapshot
        }

    def partitions(self, look: TableLook) -> Mapping[str, tuple[Any, ...]] | None:
        """Return the values that manifests have. See ``TablePort``."""
        entries, fields = self._entries(look), [field_of(text) for text in look.partition_by]
        if entries is None or any(entry.data_file.spec_id != look.spec_id for entry in entries):
            return None
        return {
            entry.data_file.file_path: tuple(
                partition_value_of(field, look.columns, entry.data_file.partition[place])
                for place, field in enumerate(fields)
            )
            for entry in entries
        }

    def _entries(self, look: TableLook) -> list[ManifestEntry] | None:
        """Return the entries of the newest snapshot's files; None if it has files that delete rows."""
        table = _table(look)
        head = table.metadata.current_snapshot()
        with port_errors(self._place, "look at files"):
            manifests = [] if head is None else head.manifests(table.io)
            if any(manifest.content != ManifestContent.DATA for manifest in manifests):
                return None
            return [entry for each in manifests for entry in each.fetch_manifest_entry(table.io)]

    def named(self, look: TableLook, paths: Collection[str]) -> set[str]:
        """Read the manifests of all snapshots. See ``TablePort``."""
        table, wanted, found, read = _table(look), set(paths), set[str](), set[str]()
        with port_errors(self._place, "look at its files"):
            for snapshot in table.metadata.snapshots if wanted else ():
                for manifest in snapshot.manifests(table.io):
                    if manifest.manifest_path in read:
                        continue
                    read.add(manifest.manifest_path)
                    entries = manifest.fetch_manifest_entry(table.io)
                    found |= {entry.data_file.file_path for entry in entries} & wanted
        return found

    def row_counts(self, look: TableLook, column: str) -> dict[str, int] | None:
        """Read one column, batch by batch. See ``TablePort``."""
        with port_errors(self._place, "count of its rows"):
            return counts_in(_table(look).scan(selected_fields=(column,)).to_arrow_batch_reader())

    def expire(self, look: TableLook, keep: int) -> None:
        """Forget older snapshots. See ``TablePort``."""
        expire(_table(look), keep, self._place)

    def _transaction(self, look: TableLook) -> IcebergTransaction:
        return for_one_commit(_table(look), self._place).transaction()


def _table(look: TableLook) -> Table:
    return cast("Table", look.state)


def _id_of(snapshot: IcebergSnapshot | None) -> str:
    """Return the id of a snapshot for a message."""
    return "none" if snapshot is None else str(snapshot.snapshot_id)


def mark_name(application_id: str, sink: str) -> str:
    """Return the table property that has the mark of an application and sink.

    >>> mark_name("flight.delays", "flights.carriers")
    'kstreams.flight%2Edelays.flights.carriers'
    """
    return f"{_MARK}{application_id.replace('%', '%25').replace('.', '%2E')}.{sink}"


def _marks(table: Table, application_id: str) -> Iterator[tuple[str, int]]:
    beginning = mark_name(application_id, "")
    for name, value in table.metadata.properties.items():
        if name.startswith(beginning) and value.isdigit():
            yield name.removeprefix(beginning), int(value)


def _line(table: Table) -> Iterator[IcebergSnapshot]:
    """Give the newest snapshot and those before it, the newest first, as far as they are kept."""
    by_id = {each.snapshot_id: each for each in table.metadata.snapshots}
    snapshot = table.metadata.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else by_id.get(parent)


def _described(snapshot: IcebergSnapshot) -> Snapshot:
    summary = snapshot.summary
    said = {} if summary is None else summary.model_dump()
    operation = str(said.pop("operation", ""))
    # Writers leave out a number that is 0, and have the totals in each summary that has numbers.
    numbers = {name: text for name, text in said.items() if text.isdigit()}
    known = "total-records" in numbers
    return Snapshot(
        snapshot=str(snapshot.snapshot_id),
        made_ms=snapshot.timestamp_ms,
        operation=operation,
        summary=said,
        added=int(numbers.get("added-records", 0)) if known else None,
        removed=int(numbers.get("deleted-records", 0)) if known else None,
    )
