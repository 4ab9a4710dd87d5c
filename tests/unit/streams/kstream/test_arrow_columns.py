from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from airflow_kstreams.streams.kstream.operators import arrow_columns
from airflow_kstreams.streams.kstream.operators.arrow_columns import ArrowColumns


def made_by_pyarrow(columns: list[list[Any]], *, modules: dict[str, Any]) -> list[list[Any]]:
    """Return the columns that pyarrow.array has made."""
    asked: list[list[Any]] = []

    def array(objects: Any, type: Any) -> Any:  # noqa: A002 - pyarrow's name
        asked.append(objects)
        return pa.array(objects, type=type)

    maker = ArrowColumns(SimpleNamespace(**{**vars(pa), "array": array}))  # type: ignore[arg-type]
    with patch.object(arrow_columns, "sys", SimpleNamespace(modules=modules)):
        assert [maker.column(column).to_pylist() for column in columns] == columns
    return asked


def test_buffers_are_used_when_pandas_is_not_imported_and_objects_are_alike() -> None:
    columns: list[list[Any]] = [
        [b"a", None],
        ["a", "ä"],
        [1, 2],
        [1.5],
        [True, False],
        [None, None],
        [{"a": 1}],
    ]
    assert made_by_pyarrow(columns, modules={}) == [[{"a": 1}]]


def test_pyarrow_makes_columns_when_pandas_is_imported() -> None:
    assert made_by_pyarrow([[1, 2]], modules={"pandas": object()}) == [[1, 2]]


def test_pyarrow_makes_columns_when_the_import_of_pandas_would_have_paid() -> None:
    with patch.object(arrow_columns, "_WORTH_PANDAS", 3):
        assert made_by_pyarrow([[1, 2], [3, 4], [5]], modules={}) == [[5]]
