"""Defines the records of the topic that lists the files which tasks have written for tables.

Rule: a task writes one record for each file, in the transaction that commits the offsets of the rows in it.
So a file is listed if and only if its rows count as processed, and what an attempt left that died is in no
list. Key: name of the table's sink. Value: MessagePack of :class:`ListedFile`.

Behind the end of the list, the coordinator writes a :class:`MergedFile` for each file into which it has let
small ones be merged, in the transaction that seals the list.

Dates, decimals and ids have no form of their own in MessagePack. The reader knows the table's columns, and
gives values their types again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from airflow_kstreams.batch.protocol.checked_reading import UnreadableError
from airflow_kstreams.batch.protocol.slice.metadata_records import PARTITION, MetadataRecord
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.plan import convert, msgpack_decoder
from airflow_kstreams.streams.ports import Record, WriterPort
from airflow_kstreams.streams.table_plan import Column, ColumnType, DecimalType, StructType, TablePlan
from airflow_kstreams.streams.tables.table_port import ColumnFacts, FileFacts

_TYPES: Mapping[str, Any] = {"date": date, "instant": datetime, "uuid": UUID}


class ListedFile(msgspec.Struct, frozen=True, array_like=True, tag="file"):
    """A file, and who has written it.

    :param run_id: id of the run.
    :param task_id: id of the task, ``<subtopology>_<group>``.
    :param commit: number of the task's commit in the run, from 1.
    :param file: the file.
    """

    run_id: str
    task_id: str
    commit: int
    file: FileFacts


class MergedFile(msgspec.Struct, frozen=True, array_like=True, tag="merged"):
    """A file that replaces listed ones.

    :param run_id: id of the run.
    :param records: number of records of merged files that the same transaction has written.
    :param replaced: offset of the record of each listed file that it replaces.
    :param file: the file.
    """

    run_id: str
    records: int
    replaced: tuple[int, ...]
    file: FileFacts


_decode = msgpack_decoder(ListedFile | MergedFile).decode
_decode_file = msgpack_decoder(FileFacts).decode


def list_file(writer: WriterPort, application_id: str, table: str, listed: ListedFile) -> None:
    """Write the record of a file.

    :param table: name of the table's sink.
    """
    topic = ProtocolTopics(application_id).table_files
    writer.produce(topic, msgspec.msgpack.encode(listed), table.encode(), PARTITION, None, None)


def merged_record(application_id: str, table: str, merged: MergedFile) -> MetadataRecord:
    """Return the record of a merged file.

    :param table: name of the table's sink.
    """
    topic = ProtocolTopics(application_id).table_files
    return MetadataRecord(topic, msgspec.msgpack.encode(merged), table.encode(), None)


class FileListReading:
    """Reads records of files.

    :param tables: the tables of the topology.
    """

    def __init__(self, tables: tuple[TablePlan, ...]) -> None:
        self._typed = {table.name.encode(): _values_of(table) for table in tables}

    def read(self, record: Record, *, run_id: str) -> tuple[str, ListedFile | MergedFile]:
        """Return the name of a table's sink, and the file.

        :param run_id: the run whose list it is. Merged files may be of an earlier one, which was dropped.
        :raises UnreadableError: the record is none of this list's.
        """
        key, value = record.key(), record.value()
        typed = self._typed.get(key or b"")
        if key is None or value is None or typed is None:
            raise UnreadableError(f"offset {record.offset()} lists a file of no table of this topology")
        try:
            listed = _decode(value)
            listed = msgspec.structs.replace(listed, file=typed(listed.file))
        except (msgspec.MsgspecError, LookupError, ValueError) as error:
            raise UnreadableError(f"offset {record.offset()} lists no file: {error}") from error
        if isinstance(listed, ListedFile) and listed.run_id != run_id:
            raise UnreadableError(f"offset {record.offset()} is of run {listed.run_id!r}")
        return key.decode(), listed


def packed_file(file: FileFacts) -> bytes:
    """Return a file's facts as bytes, for another process."""
    return msgspec.msgpack.encode(file)


def unpacked_file(data: bytes, table: TablePlan) -> FileFacts:
    """Return a file's facts from :func:`packed_file`.

    :param table: the table of the file, whose columns say the types of values.
    """
    return _values_of(table)(_decode_file(data))


def _values_of(table: TablePlan) -> Callable[[FileFacts], FileFacts]:
    """Return a function that gives the values of a file's facts their types again."""
    columns = dict(_typings(table.columns))
    partition = [_typing_of_field(text, columns) for text in table.listed_by]

    def typed(file: FileFacts) -> FileFacts:
        return msgspec.structs.replace(
            file,
            partition=tuple(of(value) for of, value in zip(partition, file.partition, strict=True)),
            columns={
                name: ColumnFacts(facts.nulls, columns[name](facts.lower), columns[name](facts.upper))
                for name, facts in file.columns.items()
            },
        )

    return typed


def _typings(columns: tuple[Column, ...], path: str = "") -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Give the dotted name of each column without parts, and the function for its values."""
    for column in columns:
        if isinstance(column.type, StructType):
            yield from _typings(column.type.columns, f"{path}{column.name}.")
        else:
            yield f"{path}{column.name}", _typing(column.type)


def _typing_of_field(text: str, columns: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return the function for the values of a field of the partitioning.

    Numbers of years, days, hours and buckets are numbers; what is cut keeps its type.
    """
    transform, _, rest = text.partition("(")
    name = rest.rstrip(")").rpartition(",")[2].strip() if rest else text
    if rest and transform != "truncate":
        return _as_it_is
    return columns[name]


def _typing(kind: ColumnType) -> Callable[[Any], Any]:
    python = Decimal if isinstance(kind, DecimalType) else _TYPES.get(kind) if isinstance(kind, str) else None
    if python is None:
        return _as_it_is
    return lambda value: None if value is None else convert(value, python)


def _as_it_is(value: Any) -> Any:
    return value
