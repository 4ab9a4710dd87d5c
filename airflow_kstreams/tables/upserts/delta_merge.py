"""Merges staged rows into a Delta table by deltalake's ``merge``, in one version.

The last row of each staged key is copied to a file on the local disk, from which the library takes it as a
stream. It does that on threads of its own runtime, on which its storage cannot be used: a stream that read
the staged files would fail, or wait for itself.

Memory holds the keys of the staged files, and what the library keeps of its join of rows and table, one side
of which it builds in memory. It reads the files whose keys may lie between the smallest and the largest
staged one, and writes anew those with a match, in files of the size that the table asks for.

The merge is made on the version that it is given; it either commits the next one, or fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_kstreams.tables.upserts.staged_files import StagedFiles

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


def merge_staged(
    table: DeltaTable, staged: StagedFiles, key_column: str, properties: CommitProperties
) -> None:
    """Make the last row of each staged key its row in the table, or delete that; one version.

    Columns that the rows do not have become null in them.

    :param table: the table, at the version that the commit is made on.
    :param staged: the staged files, one or more.
    :param key_column: column of the keys.
    :param properties: what the commit says of itself, and that it is tried once.
    """
    *names, _ = staged.schema().names
    number_of = {name: f"source.c{place}" for place, name in enumerate(names)}
    deleted = f"source.c{len(names)}"
    row = {f"`{field.name}`": number_of.get(field.name, "NULL") for field in table.schema().fields}
    same_key = f"target.`{key_column}` = {number_of[key_column]}"
    with TemporaryDirectory(prefix="kstreams-upsert-") as folder:
        copy = Path(folder) / "rows.arrow"
        _copy(staged, copy)
        with pa.OSFile(str(copy)) as file, pa.ipc.open_stream(file) as rows:
            merger = table.merge(
                rows,
                " AND ".join([same_key, *_within(staged, key_column)]),
                source_alias="source",
                target_alias="target",
                commit_properties=properties,
            )
            merger = merger.when_matched_delete(f"{deleted} = true")
            merger = merger.when_matched_update(row, f"{deleted} = false")
            merger.when_not_matched_insert(row, f"{deleted} = false").execute()


def _copy(staged: StagedFiles, path: Path) -> None:
    """Write the last row of each staged key to a file, under names of columns that SQL takes as they are."""
    schema = pa.schema([pa.field(f"c{place}", field.type) for place, field in enumerate(staged.schema())])
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema, options=options) as out:
        for batch in staged.last_rows():
            out.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def _within(staged: StagedFiles, key_column: str) -> Iterator[str]:
    """Give conditions that a key of the table meets if a staged one is the same: they leave files out."""
    lower, upper = staged.bounds
    for sign, bound in ((">=", lower), ("<=", upper)):
        if (text := _literal(bound)) is not None:
            yield f"target.`{key_column}` {sign} {text}"


def _literal(value: Any) -> str | None:
    """Return a key as SQL has it; None for one of another kind."""
    match value:
        case int() if not isinstance(value, bool):
            return str(value)
        case str() if value.isascii() and value.isprintable():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return None
