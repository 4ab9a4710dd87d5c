"""Reads what a system has put into a table, as the records that it would have written to a topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from dev.benchmarks.outputs import Record
from dev.benchmarks.suite_topologies import Newest, Slim
from dev.benchmarks.systems import Target
from dev.benchmarks.tables.places import Place

_BATCH = 65_536

#: By topology: key and value of the record that a row stands for, by the columns of the row in their order.
_RECORDS: Mapping[str, tuple[tuple[str, ...], Callable[..., tuple[str, Any]]]] = {
    "stateless": (("id", "user", "cents"), lambda id_, user, cents: (user, Slim(id_, user, cents))),
    "two_stage": (("total", "key"), lambda total, key: (key, total)),
    "newest": (("user", "id", "cents"), lambda user, id_, cents: (user, Newest(id_, cents))),
}


def read(target: Target, location: str, folder: Path, topology: str) -> Iterator[list[Record]]:
    """Read the rows of a table.

    :param target: its format.
    :param location: what the topology calls it.
    :param folder: that the application's tables lie in.
    :param topology: name of the topology, without the format.
    """
    columns, record = _RECORDS[topology]
    encode = msgspec.json.encode
    for rows in _rows(files_of(target, location, folder), columns, in_order=topology == "two_stage"):
        yield [(0, key.encode(), encode(value)) for key, value in (record(*row) for row in rows)]


def _rows(files: list[str], columns: tuple[str, ...], *, in_order: bool) -> Iterator[list[tuple[Any, ...]]]:
    """Give the rows of files.

    :param in_order: whether they are given by the values of their columns: a sum only grows, so the last one
        of a key is the newest. Elsewhere the order of rows means nothing.
    """
    batches = (
        list(zip(*(batch.column(name).to_pylist() for name in columns), strict=True))
        for file in files
        for batch in pq.ParquetFile(file).iter_batches(_BATCH, columns=list(columns))
    )
    yield from [sorted(row for rows in batches for row in rows)] if in_order else batches


def files_of(target: Target, location: str, folder: Path) -> list[str]:
    """Return the files of a table's newest snapshot."""
    if target == "parquet":
        return sorted(map(str, Path(location).glob("*.parquet")))
    if target == "delta":
        from deltalake import DeltaTable

        return [file.removeprefix("file://") for file in DeltaTable(location).file_uris()]
    tasks = _iceberg(location, folder).by_pyiceberg().scan().plan_files()
    return [task.file.file_path.removeprefix("file://") for task in tasks]


def rewritten_bytes(target: Target, location: str, folder: Path) -> int:
    """Return the size of the files that the newest snapshot of a table has taken out."""
    if target == "delta":
        log = max(Path(location, "_delta_log").glob("*.json"))
        actions = map(json.loads, log.read_text().splitlines())
        return sum(each["remove"]["size"] for each in actions if "remove" in each)
    head = _iceberg(location, folder).by_pyiceberg().current_snapshot()
    said = None if head is None else head.summary
    return int((said and said["removed-files-size"]) or 0)


def _iceberg(location: str, folder: Path) -> Place:
    return Place(format="iceberg", folder=str(folder), name=location.rpartition(".")[2])
