from __future__ import annotations

import logging
import math
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_kstreams.streams.errors import TableUnavailableError
from airflow_kstreams.streams.table_plan import Column, DecimalType
from airflow_kstreams.streams.tables.table_port import ColumnFacts, FileFacts
from airflow_kstreams.streams.tables.table_rows import RowsWriter, TableRows
from airflow_kstreams.tables.parquet import parquet_files
from airflow_kstreams.tables.parquet.parquet_files import FileNames, FilePlan, ParquetRows, file_prefix
from tests.support.tables.folder_files import FolderFiles

NAMES = FileNames(
    RowsWriter(application_id="flight-delays", run_id="2024-01-01T00:00:00+00:00", task_id="0_3", attempt=2),
    token="ab",
)
COLUMNS = (Column("day", "date", required=False), Column("n", "long"), Column("text", "text"))
DAY = date(2024, 1, 1)


class Scene:
    """A writer on a folder, with small packs of rows."""

    def __init__(self, folder: Path, columns: tuple[Column, ...] = COLUMNS, **plan: Any) -> None:
        self.files = FolderFiles(folder)
        self.writer: TableRows = ParquetRows(self.files, FilePlan(columns=columns, **plan), NAMES)

    def write(self, *rows: tuple[Any, ...]) -> None:
        for row in rows:
            self.writer.add(row)

    def taken(self, *rows: tuple[Any, ...]) -> list[FileFacts]:
        self.write(*rows)
        return self.writer.take()

    def there(self) -> set[str]:
        return {str(file) for file in self.files.folder.rglob("*.parquet")}


@pytest.fixture
def packs_of_64() -> Any:
    with patch.object(parquet_files, "_PACK_ROWS", 64):
        yield


def on_day(number: int, text: str = "") -> tuple[Any, ...]:
    return (DAY + timedelta(days=number), number, text)


def rows_in(file: FileFacts) -> list[dict[str, Any]]:
    return pq.ParquetFile(file.path).read().to_pylist()  # type: ignore[no-any-return]


def test_one_file_holds_all_rows_when_the_table_has_no_partitions(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (file,) = scene.taken((DAY, 1, "a"), (None, 2, "b"))
    assert rows_in(file) == [{"day": DAY, "n": 1, "text": "a"}, {"day": None, "n": 2, "text": "b"}]
    assert file == FileFacts(
        path=str(
            tmp_path / f"{file_prefix('flight-delays')}2024-01-01T00_00_00_00_00-0_3-2-ab-00000.parquet"
        ),
        size=Path(file.path).stat().st_size,
        rows=2,
        columns={
            "day": ColumnFacts(1, DAY, DAY),
            "n": ColumnFacts(0, 1, 2),
            "text": ColumnFacts(0, "a", "b"),
        },
        row_groups=(4,),
    )


def test_no_file_is_made_when_there_are_no_rows(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.taken() == []
    assert scene.there() == set()


def test_files_are_given_once_when_they_are_taken_twice(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (first,) = scene.taken(on_day(1))
    assert scene.taken() == []
    (second,) = scene.taken(on_day(1))
    assert first.path != second.path


def test_each_partition_has_its_file_when_rows_of_many_come_in_turns(tmp_path: Path) -> None:
    scene = Scene(tmp_path, partition_by=("day(day)",))
    rows = [on_day(number % 3) for number in range(300)]
    files = scene.taken(*rows, (None, 7, ""))
    first = DAY.toordinal() - date(1970, 1, 1).toordinal()
    assert sorted((file.partition, file.rows) for file in files if file.partition != (None,)) == [
        ((first,), 100),
        ((first + 1,), 100),
        ((first + 2,), 100),
    ]
    (without,) = (file for file in files if file.partition == (None,))
    assert rows_in(without) == [{"day": None, "n": 7, "text": ""}]
    assert "day_day=2024-01-01/" in files[0].path


@pytest.mark.parametrize(
    ("field", "folder"),
    [("year(day)", "day_year=1969"), ("month(day)", "day_month=1969-02"), ("day(day)", "day_day=1969-02-03"),
     ("n", "n=5"), ("hour(at)", "at_hour=1969-02-03-04"), ("truncate(2, text)", "text_trunc=ab")],
)  # fmt: skip
def test_folder_says_the_partition_as_people_read_it_when_a_file_is_named(
    tmp_path: Path, field: str, folder: str
) -> None:
    columns = (*COLUMNS, Column("at", "instant"))
    scene = Scene(tmp_path, columns=columns, partition_by=(field,))
    (file,) = scene.taken((date(1969, 2, 3), 5, "abc", datetime(1969, 2, 3, 4, 5, tzinfo=UTC)))
    assert Path(file.path).parent.name == folder


@pytest.mark.usefixtures("packs_of_64")
def test_few_files_are_open_when_there_are_many_partitions(tmp_path: Path) -> None:
    scene = Scene(tmp_path, partition_by=("day(day)",), open_files=3, buffer_bytes=1)
    files = scene.taken(*(on_day(number // 10) for number in range(640)))
    assert scene.files.most_open == 3
    assert len(files) == 64  # a day that lies across two packs is still open when its second part comes
    assert sum(file.rows for file in files) == 640


@pytest.mark.usefixtures("packs_of_64")
def test_file_stays_open_when_rows_of_its_partition_come_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, partition_by=("day(day)",), open_files=2, buffer_bytes=1)
    days = [number for turn in range(4) for number in (0, 10 + turn) for _ in range(64)]
    files = scene.taken(*map(on_day, days))
    assert sorted(file.rows for file in files) == [64, 64, 64, 64, 256]
    (often,) = (file for file in files if file.rows == 256)
    assert len(often.row_groups) == 4
    assert rows_in(often)[0]["n"] == 0


@pytest.mark.usefixtures("packs_of_64")
def test_open_file_is_written_first_when_rows_of_others_come_ahead(tmp_path: Path) -> None:
    scene = Scene(tmp_path, partition_by=("day(day)",), open_files=1, buffer_bytes=1)
    files = scene.taken(*(on_day(number % 2) for number in range(128)))
    assert sorted(file.rows for file in files) == [32, 32, 64]


@pytest.mark.usefixtures("packs_of_64")
def test_file_is_closed_when_it_has_the_target_size(tmp_path: Path) -> None:
    scene = Scene(tmp_path, target_bytes=1, buffer_bytes=1)
    files = scene.taken(*map(on_day, range(192)))
    assert [file.rows for file in files] == [64, 64, 64]


def test_rows_are_packed_when_they_are_large(tmp_path: Path) -> None:
    scene = Scene(tmp_path, buffer_bytes=1)
    with patch.object(parquet_files, "_PACK_BYTES", 64_000):
        scene.write(*(on_day(number, "x" * 1000) for number in range(64)))
        assert len(scene.there()) == 1
    (file,) = scene.writer.take()
    assert file.rows == 64


def test_rows_lie_in_the_order_of_columns_when_the_table_is_sorted(tmp_path: Path) -> None:
    scene = Scene(tmp_path, partition_by=("day(day)",), sort_by=("text", "n"))
    files = scene.taken(*[(DAY, 2, "b"), (DAY, 1, "b"), (None, 5, "x"), (DAY, 3, "a"), (None, 4, "x")])
    found = {file.partition[0] is None: [(row["text"], row["n"]) for row in rows_in(file)] for file in files}
    assert found == {False: [("a", 3), ("b", 1), ("b", 2)], True: [("x", 4), ("x", 5)]}


def test_column_is_not_in_the_file_when_the_partition_alone_has_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, partition_by=("day",), left_out=frozenset({"day"}))
    (file,) = scene.taken(on_day(0))
    assert file.partition == (DAY,)
    assert rows_in(file) == [{"n": 0, "text": ""}]
    assert set(file.columns) == {"n", "text"}


def test_file_is_small_and_says_its_types_alone_when_it_is_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path, columns=(*COLUMNS, Column("fare", DecimalType(9, 2))), ids={"day": 4, "fare": 9})
    (file,) = scene.taken((DAY, 1, "a", Decimal("1.50")))
    metadata = pq.read_metadata(file.path)
    assert metadata.metadata is None  # no schema of Arrow's beside Parquet's own
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert metadata.schema.column(3).physical_type == "INT32"
    ids = [field.metadata for field in metadata.schema.to_arrow_schema()]
    assert ids == [{b"PARQUET:field_id": b"4"}, None, None, {b"PARQUET:field_id": b"9"}]


BOUNDS: list[tuple[Any, list[Any], ColumnFacts]] = [
    ("double", [1.0, math.nan, None], ColumnFacts(1)),
    ("double", [math.nan], ColumnFacts(0)),
    ("double", [-math.inf, 2.5], ColumnFacts(0, -math.inf, 2.5)),
    ("text", ["a" * 70], ColumnFacts(0, "a" * 64, "a" * 63 + "b")),
    ("text", ["a" + "\U0010ffff" * 70], ColumnFacts(0, "a" + "\U0010ffff" * 63, "b")),
    ("text", ["\U0010ffff" * 70], ColumnFacts(0, "\U0010ffff" * 64)),
    ("text", ["\ud7ff" * 70], ColumnFacts(0, "\ud7ff" * 64, "\ud7ff" * 63 + "\ue000")),
    ("text", ["x" * 5000], ColumnFacts(0)),
    ("binary", [b"a" * 70], ColumnFacts(0, b"a" * 64, b"a" * 63 + b"b")),
    ("binary", [b"\xff" * 70], ColumnFacts(0, b"\xff" * 64)),
    ("text", [None, None], ColumnFacts(2)),
    (
        DecimalType(9, 2),
        [Decimal("-1.50"), Decimal("2.25")],
        ColumnFacts(0, Decimal("-1.50"), Decimal("2.25")),
    ),
    (
        "instant",
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
        ColumnFacts(0, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ),
]


@pytest.mark.parametrize(("kind", "values", "facts"), BOUNDS)
def test_bounds_are_right_or_absent_when_values_are_hard_to_bound(
    tmp_path: Path, kind: Any, values: list[Any], facts: ColumnFacts
) -> None:
    scene = Scene(tmp_path, columns=(Column("x", kind, required=False),))
    (file,) = scene.taken(*((value,) for value in values))
    assert file.columns == {"x": facts}


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_bounds_hold_both_zeros_when_a_column_has_one(tmp_path: Path, zero: float) -> None:
    """Engines order them in different ways. Arrow gives footers so."""
    scene = Scene(tmp_path, columns=(Column("x", "double"),))
    (file,) = scene.taken((zero,))
    assert [math.copysign(1, bound) for bound in (file.columns["x"].lower, file.columns["x"].upper)] == [
        -1,
        1,
    ]


@pytest.mark.usefixtures("packs_of_64")
def test_bounds_are_those_of_all_row_groups_when_a_file_has_several(tmp_path: Path) -> None:
    scene = Scene(tmp_path, buffer_bytes=1)
    rows = [(None, number, "") for number in range(64)] + [on_day(number) for number in range(64, 128)]
    (file,) = scene.taken(*rows)
    assert len(file.row_groups) == 2
    assert file.columns["n"] == ColumnFacts(0, 0, 127)
    assert file.columns["day"] == ColumnFacts(64, DAY + timedelta(days=64), DAY + timedelta(days=127))


@pytest.mark.usefixtures("packs_of_64")
def test_memory_stays_small_when_rows_of_many_partitions_are_large(tmp_path: Path) -> None:
    """By Arrow's and Python's own counts of the bytes that they hold; 10 MB of rows come."""
    scene = Scene(tmp_path, partition_by=("day(day)",), buffer_bytes=1_000_000)
    before = most = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        for number in range(10_000):
            scene.write(on_day(number // 20, f"{number:01000}"))
            most = max(most, pa.total_allocated_bytes())
        _, traced = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most - before < 3_000_000
    assert traced < 5_000_000
    assert sum(file.rows for file in scene.writer.take()) == 10_000


# Failures


@pytest.mark.remedy("parquet_files.ParquetRows._check")
def test_files_are_refused_when_one_is_gone_before_it_is_given(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write(on_day(0))
    with (
        patch.object(scene.files, "sizes", return_value={}),
        pytest.raises(
            TableUnavailableError, match=r"was written with [\d,]+ bytes and closed, and is not there"
        ),
    ):
        scene.writer.take()
    (other,) = Scene(tmp_path, partition_by=("n",)).taken(on_day(0))  # a retry writes other files
    assert rows_in(other) == [{"day": DAY, "n": 0, "text": ""}]


def test_files_are_refused_when_one_has_another_size(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write(on_day(0))
    sizes = scene.files.sizes

    def smaller(paths: Any) -> dict[str, int]:
        return {path: size - 1 for path, size in sizes(paths).items()}

    with (
        patch.object(scene.files, "sizes", smaller),
        pytest.raises(TableUnavailableError, match="bytes there"),
    ):
        scene.writer.take()


def test_error_of_the_storage_comes_through_when_it_is_full(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.files.room_bytes = 100
    scene.write(on_day(0))
    with pytest.raises(TableUnavailableError, match="no space left"):
        scene.writer.take()
    scene.writer.abandon([])
    assert scene.there() == set()
    assert scene.files.opened == 0


@pytest.mark.usefixtures("packs_of_64")
def test_files_that_no_list_names_are_deleted_when_they_are_abandoned(tmp_path: Path) -> None:
    scene = Scene(tmp_path, partition_by=("day(day)",), open_files=2, buffer_bytes=1)
    (listed,) = scene.taken(on_day(0))
    scene.write(*(on_day(number % 4) for number in range(70)))
    assert len(scene.there()) > 1
    scene.writer.abandon([])
    assert scene.there() == {listed.path}
    (after,) = scene.taken(on_day(9))
    assert rows_in(after) == [{"day": DAY + timedelta(days=9), "n": 9, "text": ""}]


def test_files_that_were_given_are_deleted_when_their_list_has_failed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    files = scene.taken(on_day(0))
    scene.writer.abandon(files)
    assert scene.there() == set()


def test_files_stay_behind_with_a_warning_when_they_cannot_be_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    (file,) = scene.taken(on_day(0))
    with patch.object(scene.files, "delete", side_effect=TableUnavailableError("it is away")):
        scene.writer.abandon([file])
    assert (caplog.records[0].levelno, file.path in caplog.text) == (logging.WARNING, True)


def test_nothing_is_asked_of_the_storage_when_there_is_nothing_to_abandon(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with patch.object(scene.files, "delete", side_effect=AssertionError):
        scene.writer.abandon([])


# Names


def test_names_of_two_attempts_differ_when_they_are_numbered_alike() -> None:
    one, other = (
        FileNames(RowsWriter(application_id="a", run_id="r", task_id="0_0", attempt=1)) for _ in range(2)
    )
    assert one.name(0) != other.name(0)
    assert one.name(0) != one.name(1)


def test_prefix_is_of_one_application_when_another_ones_name_begins_so() -> None:
    longer = FileNames(RowsWriter(application_id="flight-delays", run_id="r", task_id="0_0", attempt=1)).name(
        0
    )
    assert longer.startswith(file_prefix("flight-delays"))
    for other in ("flight", "flight-delays-2", "flight-delay"):
        assert not longer.startswith(file_prefix(other))
        assert not file_prefix(other).startswith(file_prefix("flight-delays"))


def test_name_fits_into_file_systems_when_ids_are_as_long_as_kafka_allows() -> None:
    names = FileNames(
        RowsWriter(application_id="a" * 249, run_id="r/" * 200, task_id="1000_100000", attempt=int("7" * 100))
    )
    assert len(names.name(123_456)) <= 255
    assert "/" not in names.name(0)
