"""Describes files of rows to Delta, and reaches the storage in which they lie.

A file's description is made of its facts alone: the file is not opened. deltalake's public file system,
``deltalake.fs.DeltaStorageHandler``, cannot be written to with the pyarrow that the lock holds (a write gets
a buffer where it wants bytes), so the handler below it is used. While that opens, writes or deletes a file,
it holds Python's lock, and other threads of the process wait. Looks and commits do not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, BinaryIO

from deltalake._internal import DeltaFileSystemHandler
from deltalake.transaction import AddAction
from pyarrow.fs import FileType

from airflow_kstreams.streams.errors import InvariantError, TableRefusedError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.tables.delta_errors import port_errors
from airflow_kstreams.tables.file_streams import checked, folder_of
from airflow_kstreams.tables.storage_errors import TablePlace

#: Most digits of a decimal that readers of statistics, which parse JSON, may take for exact.
_EXACT_DIGITS = 15
_ASKED_AT_ONCE = 1_000


def add_action(root: str, partition_columns: list[str], file: FileFacts, now_ms: int) -> AddAction:
    """Return the action that adds a file.

    :param root: location of the table.
    :param partition_columns: its partition columns, in the order of the file's partition.
    :param file: the file.
    :param now_ms: time to write as that of the file's last change, epoch milliseconds.
    :raises InvariantError: the file lies elsewhere, or its partition is not the table's.
    :raises TableRefusedError: its partition cannot be written.
    """
    if len(file.partition) != len(partition_columns):
        raise InvariantError(
            "a file has a value for each column that its table is partitioned by",
            f"it has {counted(len(file.partition), 'value')}, for {len(partition_columns)}",
            where=f"file {file.path}",
        )
    values = dict(zip(partition_columns, file.partition, strict=True))
    return AddAction(
        path=relative(root, file.path),
        size=file.size,
        partition_values={name: partition_text(name, value) for name, value in values.items()},
        modification_time=now_ms,
        data_change=True,
        stats=_statistics(file, values),
    )


def relative(root: str, path: str) -> str:
    """Return the path of a file below the table's location.

    :raises InvariantError: it lies elsewhere.
    """
    if not path.startswith(f"{root}/"):
        raise InvariantError(
            "a file lies in the folder of its table", f"the folder is {root}", where=f"file {path}"
        )
    return path.removeprefix(f"{root}/")


def partition_text(name: str, value: Any) -> str | None:
    """Return a partition value as Delta's log has it.

    >>> partition_text("at", datetime(2024, 1, 1, 5, tzinfo=UTC))
    '2024-01-01T05:00:00.000000Z'

    :raises TableRefusedError: it is an empty text, which Delta's readers take for null.
    """
    match value:
        case None:
            return None
        case "":
            raise TableRefusedError(
                f"partition column {name!r}: Delta cannot tell an empty text from a missing value",
                fix=f"write another text, or None, where {name} is empty",
            )
        case bool():
            return "true" if value else "false"
        case datetime():
            return _instant(value)
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)


def _instant(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _statistics(file: FileFacts, partition: Mapping[str, Any]) -> str:
    """Return the statistics of a file as JSON; its partition columns have none."""
    lower: dict[str, Any] = {}
    upper: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name, facts in file.columns.items():
        if name in partition:
            continue
        _put(nulls, name, facts.nulls)
        if (low := _bound(facts.lower)) is not None:
            _put(lower, name, low)
        if (high := _bound(facts.upper)) is not None:
            _put(upper, name, high)
    said = {"numRecords": file.rows, "minValues": lower, "maxValues": upper, "nullCount": nulls}
    return json.dumps(said, ensure_ascii=False, allow_nan=False)


def _put(into: dict[str, Any], dotted: str, value: Any) -> None:
    *above, name = dotted.split(".")
    for each in above:
        into = into.setdefault(each, {})
    into[name] = value


def _bound(value: Any) -> Any:
    """Return a bound as the log has it; None for one that readers would not take exactly."""
    match value:
        case bool() | bytes():
            return None
        case str() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return _instant(value)
        case date():
            return value.isoformat()
        case Decimal():
            exact = len(value.as_tuple().digits) <= _EXACT_DIGITS
            return float(value) if exact else None
        case _:
            return None


class DeltaFiles:
    """The storage of a table's files.

    :param root: location of the table, without a slash at its end.
    :param options: options of the storage.
    :param place: the table, for messages.
    """

    def __init__(self, root: str, options: dict[str, str], place: TablePlace) -> None:
        self._root, self._place = root, place
        with self._errors(f"opening of {root}"):
            self._handler = DeltaFileSystemHandler(root, options)

    def path(self, name: str, partition: Iterable[tuple[str, Any]] = ()) -> str:
        """Return the location of a new file."""
        return f"{self._root}/{folder_of(partition)}{name}"

    def create(self, path: str) -> BinaryIO:
        """Open a new file for writing."""
        with self._errors(f"creation of {path}"):
            return checked(self._handler.open_output_stream(relative(self._root, path)), self._errors, path)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Return the size of each file that exists, bytes."""
        found: dict[str, int] = {}
        ordered = list(paths)
        for first in range(0, len(ordered), _ASKED_AT_ONCE):
            some = ordered[first : first + _ASKED_AT_ONCE]
            with self._errors(f"look at {some[0]}"):
                infos = self._handler.get_file_info([relative(self._root, path) for path in some])
            found |= {
                path: int(info.size)
                for path, info in zip(some, infos, strict=True)
                if info.type == FileType.File
            }
        return found

    def read(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        with self._errors(f"read of {path}"):
            return checked(self._handler.open_input_file(relative(self._root, path)), self._errors, path)

    def names(self, beginning: str) -> Iterable[tuple[str, int]]:
        """Give location and time of the last change of files whose name begins so."""
        with self._errors(f"list of {self._root}"):
            infos = self._handler.get_file_info_selector("", True, True)
        for info in infos:
            if info.type == FileType.File and info.base_name.startswith(beginning):
                yield f"{self._root}/{info.path}", int(info.mtime_ns) // 1_000_000

    def delete(self, paths: Collection[str]) -> None:
        """Delete files that exist."""
        for path in paths:
            with self._errors(f"deletion of {path}"):
                try:
                    self._handler.delete_file(relative(self._root, path))
                except FileNotFoundError:
                    continue

    def _errors(self, doing: str) -> AbstractContextManager[None]:
        return port_errors(self._place, doing)
