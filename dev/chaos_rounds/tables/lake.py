"""Reads tables as they lie in their storage: rows by DuckDB, the rest from the formats' own files.

It imports no library of a table format, so it shares no code with what wrote them. Of Iceberg it reads the
catalogue's SQLite file, metadata files (JSON), manifest lists and manifests (Avro, by DuckDB); of Delta the
log (JSON). Objects of a store are copied into a folder first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from dev.chaos_rounds.tables.names import NAMESPACE, TABLES, TableName
from dev.chaos_rounds.topics import APPLICATION_ID
from tests.support.tables.duckdb_reader import connected, metadata_location, moved_iceberg_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot of a table.

    :param number: its place in the table's history.
    :param summary: what it says of itself under ``kstreams.``.
    :param added: files that it has added and that are in it.
    """

    number: int
    summary: Mapping[str, str]
    added: frozenset[str]

    @property
    def run_id(self) -> str:
        """The run, empty for a snapshot of others."""
        ours = self.summary.get("kstreams.application-id") == APPLICATION_ID
        return self.summary.get("kstreams.run-id", "") if ours else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """What is in a table.

    :param rows: of its head, columns by name; none where files are missing.
    :param mark: last sequence that the mark of its sink says.
    :param missing: files that a snapshot names and that are not there, or have another size.
    :param runs_of_files: file of a snapshot -> the runs of which it has rows; of tables that say it.
    """

    name: TableName
    rows: list[dict[str, Any]]
    snapshots: list[Snapshot]
    mark: int
    missing: list[str]
    runs_of_files: Mapping[str, set[str]]


class Lake:
    """The tables of a scene.

    :param said: what the place has said of itself: ``catalog`` (SQLite file), ``root``, and of an object
        store ``endpoint``, ``key``, ``secret`` and ``copy``, a folder.
    """

    def __init__(self, said: Mapping[str, str]) -> None:
        self._said = said

    def tables(self) -> list[FoundTable]:
        """Return what is in the tables."""
        if "endpoint" in self._said:
            self._copy()
        return [self.table(name) for name in TABLES]

    def table(self, name: TableName) -> FoundTable:
        """Return what is in one of them, in the copy where they are in a store."""
        return self._iceberg(name) if name.format == "iceberg" else self._delta(name)

    def _iceberg(self, name: TableName) -> FoundTable:
        located = metadata_location(self._said["catalog"], f"{NAMESPACE}.{name.name}")
        metadata_file = self._local(located)
        metadata = json.loads(metadata_file.read_text())
        snapshots, before = [], set[str]()
        sizes: dict[str, int] = {}
        for number, each in enumerate(metadata.get("snapshots", []), start=1):
            files = dict(self._files_of(each["manifest-list"]))
            added = frozenset(files.keys() - before)
            before = set(files)
            sizes |= files
            summary = {key: text for key, text in each["summary"].items() if key.startswith("kstreams.")}
            snapshots.append(Snapshot(number=number, summary=summary, added=added))
        mark = metadata["properties"].get(f"kstreams.{APPLICATION_ID}.{name.sink}", "0")
        missing = self._missing(sizes)
        return FoundTable(
            name=name,
            rows=[] if missing else self._rows(moved_iceberg_table(metadata_file)),
            snapshots=snapshots,
            mark=int(mark),
            missing=missing,
            runs_of_files={} if name.upsert else self._runs_of(sizes.keys() - missing),
        )

    def _delta(self, name: TableName) -> FoundTable:
        root = f"{self._said['root']}/{name.name}"
        snapshots, mark = [], 0
        sizes: dict[str, int] = {}
        for number, log in enumerate(sorted(self._local(f"{root}/_delta_log").glob("*.json"))):
            actions = [json.loads(line) for line in log.read_text().splitlines()]
            files = {f"{root}/{unquote(a['add']['path'])}": a["add"]["size"] for a in actions if "add" in a}
            summary = {
                key: str(text)
                for action in actions
                for key, text in action.get("commitInfo", {}).items()
                if key.startswith("kstreams.")
            }
            sizes |= files
            for action in actions:
                if action.get("txn", {}).get("appId") == f"{APPLICATION_ID}/{name.sink}":
                    mark = action["txn"]["version"]
            snapshots.append(Snapshot(number=number, summary=summary, added=frozenset(files)))
        missing = self._missing(sizes)
        return FoundTable(
            name=name,
            rows=[] if missing else self._rows(f"delta_scan('file://{self._local(root)}')"),
            snapshots=snapshots,
            mark=mark,
            missing=missing,
            runs_of_files={} if name.upsert else self._runs_of(sizes.keys() - missing),
        )

    def _files_of(self, manifest_list: str) -> Iterator[tuple[str, int]]:
        """Give the live files of a snapshot, with their sizes."""
        manifests = self._all("SELECT manifest_path FROM read_avro(?)", self._local(manifest_list))
        for (manifest,) in manifests:
            yield from self._all(
                "SELECT data_file.file_path, data_file.file_size_in_bytes "
                "FROM read_avro(?) WHERE status <> 2",
                self._local(manifest),
            )

    def _missing(self, sizes: Mapping[str, int]) -> list[str]:
        found = {path: self._local(path) for path in sizes}
        return [
            path
            for path, size in sizes.items()
            if not found[path].is_file() or found[path].stat().st_size != size
        ]

    def _runs_of(self, paths: Iterable[str]) -> dict[str, set[str]]:
        """Return the runs that the rows of each file name."""
        there = {str(self._local(path)): path for path in paths}
        if not there:
            return {}
        source = "read_parquet(?, filename = true, hive_partitioning = false)"
        asked = f"SELECT DISTINCT filename, _run FROM {source}"  # noqa: S608 - no text of others
        runs: dict[str, set[str]] = {path: set() for path in there.values()}
        for file, run_id in self._all(asked, list(there)):
            runs[there[file]].add(run_id)
        return runs

    def _rows(self, table: str) -> list[dict[str, Any]]:
        found = connected().execute(f"SELECT * FROM {table}")  # noqa: S608 - a folder of the rounds
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _all(self, query: str, source: Path | list[str]) -> list[tuple[Any, ...]]:
        parameter = str(source) if isinstance(source, Path) else source
        return connected().execute(query, [parameter]).fetchall()

    def _local(self, location: str) -> Path:
        """Return where an object is on this machine."""
        parts = urlparse(location)
        path = unquote(parts.path) if parts.scheme == "file" else location.partition("://")[2] or location
        return Path(self._said["copy"], path) if parts.scheme == "s3" else Path(path)

    def _copy(self) -> None:
        """Bring the copy of the store to what the store has now; an object never changes."""
        from pyarrow.fs import FileSelector, FileType, S3FileSystem

        store = S3FileSystem(
            endpoint_override=self._said["endpoint"],
            access_key=self._said["key"],
            secret_key=self._said["secret"],
            region="us-east-1",
        )
        copy = Path(self._said["copy"])
        bucket = urlparse(self._said["root"]).netloc
        there = set()
        for each in store.get_file_info(FileSelector(bucket, recursive=True)):
            file = copy / each.path
            if each.type != FileType.File:
                continue
            there.add(file)
            if not file.exists() or file.stat().st_size != each.size:
                file.parent.mkdir(parents=True, exist_ok=True)
                with store.open_input_stream(each.path) as stored:
                    file.write_bytes(stored.read())
        for file in [one for one in copy.rglob("*") if one.is_file() and one not in there]:
            file.unlink()
