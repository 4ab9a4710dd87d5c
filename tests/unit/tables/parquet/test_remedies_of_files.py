"""A run whose files vanished from the storage is mended as its error says and retried: each record has its
row once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, BinaryIO

import msgspec
import pytest

from airflow_kstreams.streams import KStreamBuilder
from airflow_kstreams.streams.errors import TableUnavailableError
from airflow_kstreams.streams.tables.specs import IcebergTable
from airflow_kstreams.streams.tables.table_port import TableFiles
from tests.support.tables.rows_landed import Lake
from tests.support.tables.sending import send_to_table


class Count(msgspec.Struct):
    n: int


class Expiring:
    """A storage with a lifecycle rule that deletes files as soon as they are written.

    :param files: the storage.
    :param deleted: takes the locations of files that the rule has deleted.
    """

    def __init__(self, files: TableFiles, deleted: list[str]) -> None:
        self._files, self._deleted = files, deleted

    def path(self, name: str, partition: Iterable[tuple[str, Any]] = ()) -> str:
        return self._files.path(name, partition)

    def create(self, path: str) -> BinaryIO:
        return self._files.create(path)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        self._files.delete(paths)
        self._deleted += paths
        return dict(self._files.sizes(paths))

    def read(self, path: str) -> BinaryIO:
        return self._files.read(path)

    def names(self, beginning: str) -> Iterator[tuple[str, int]]:
        yield from self._files.names(beginning)

    def delete(self, paths: Collection[str]) -> None:
        self._files.delete(paths)


def define(builder: KStreamBuilder) -> None:
    rows = builder.stream("in").map_values(Count)
    send_to_table(rows, IcebergTable("a.b", row=Count, partition_by=["n"]))


@pytest.mark.remedy("parquet_files.ParquetRows._check")
def test_retry_writes_other_files_when_the_storages_rule_has_deleted_the_first_ones() -> None:
    lake, deleted = Lake(b"1", b"2", b"3"), list[str]()
    kept = lake.storage
    lake.storage = lambda files: Expiring(files, deleted)
    with pytest.raises(
        TableUnavailableError, match=r"was written with [\d,]+ bytes and closed, and is not there"
    ):
        lake.run(define)
    assert lake.rows("a.b") == []
    assert deleted

    lake.storage = kept  # the rule was taken back, as its log said
    lake.run(define)
    assert lake.parts("a.b") == {(n,): [{"n": n}] for n in (1, 2, 3)}
    assert {*lake.tables.state("a.b").files}.isdisjoint(deleted)
