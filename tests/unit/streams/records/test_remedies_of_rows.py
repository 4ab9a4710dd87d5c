"""A run that failed at a row which its table does not take is mended as its error says and retried: each
record has its row once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from typing import Any, Literal

import pytest

from airflow_kstreams.streams import KStreamBuilder
from airflow_kstreams.streams.errors import RecordError, TopologyError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.specs import IcebergTable
from tests.support.kafka.printed_commands import accept_in_memory
from tests.support.remedies import walked
from tests.support.tables.rows_landed import APP, Lake
from tests.support.tables.sending import send_to_table

TABLE = "a.b"


def row(kind: Any) -> Any:
    return make_dataclass("Row", [("n", kind)])


def landing(kind: Any, value: Callable[[Any], Any] = lambda value: value) -> Callable[[KStreamBuilder], None]:
    """Return a topology that writes rows of one column.

    :param kind: the column's type.
    :param value: makes the column's value of the record's.
    """
    made = row(kind)

    def define(builder: KStreamBuilder) -> None:
        rows = builder.stream("in").map_values(lambda each: made(value(each)))
        send_to_table(rows, IcebergTable(TABLE, row=made))

    return define


def second_missing(value: int) -> int | None:
    return None if value == 2 else value


def failed(lake: Lake, define: Callable[[KStreamBuilder], None]) -> RecordError:
    with pytest.raises(RecordError, match=r"table 'a\.b' does not take the row of in-0@1 at node") as failure:
        lake.run(define)
    assert lake.rows(TABLE) == []
    return failure.value


def landed(lake: Lake) -> list[Any]:
    return sorted((each["n"] for each in lake.rows(TABLE)), key=str)


ONE = Literal["1", "3"]
MORE = Literal["1", "2", "3"]


@pytest.mark.parametrize(
    ("fault", "told", "wanted"),
    [
        walked("error_handling.ErrorHandling._explain: mend what makes the value", *case)
        for case in (
            (landing(int, second_missing), landing(int), [1, 2, 3]),
            (landing(int, lambda n: n << 62), landing(int, lambda n: n << 10), [1024, 2048, 3072]),
            (landing(ONE, str), landing(MORE, str), ["1", "2", "3"]),
        )
    ],
)
def test_all_rows_land_when_what_makes_the_value_or_its_type_is_mended(
    fault: Callable[[KStreamBuilder], None], told: Callable[[KStreamBuilder], None], wanted: list[Any]
) -> None:
    lake = Lake(b"1", b"2", b"3")
    failed(lake, fault)
    lake.run(told)
    assert landed(lake) == wanted


@pytest.mark.remedy("error_handling.ErrorHandling._explain: mend what makes the value")
def test_all_rows_land_when_the_row_type_has_other_columns_and_the_slice_was_dropped() -> None:
    lake, told = Lake(b"1", b"2", b"3"), landing(int | None, second_missing)
    error = failed(lake, landing(int, second_missing))
    assert "make the field optional" in error.cause
    with pytest.raises(TopologyError, match="began with topology"):
        lake.run(told)
    assert "if that makes another topology, the retry needs the slice dropped first" in error.fix
    accept_in_memory(error, lake.kafka, lake.tables)
    # Begin had created the table, and asks for the change of its column.
    with pytest.raises(
        TopologyError, match="n may be None in a row, and is required in the table"
    ) as refused:
        lake.run(told)
    assert refused.value.fix == "change the row type or the table, then retry the run"
    lake.tables.other_writer(TABLE).change_columns((Column("n", "long", required=False),))
    lake.run(told)
    assert landed(lake) == [1, 3, None]


@pytest.mark.parametrize(("policy", "letters"), [("dead-letter", [b"2"]), ("skip", [])])
def test_other_rows_land_when_the_handler_that_the_error_names_takes_the_record(
    policy: str, letters: list[bytes]
) -> None:
    lake, define = Lake(b"1", b"2", b"3"), landing(int, second_missing)
    error = failed(lake, define)
    (printed,) = re.findall(r"settings=({.*?})", error.fix)
    told: Mapping[str, str] = json.loads(printed)
    assert told == {"production.exception.handler": "dead-letter"}
    if policy == "skip":
        assert '(or "skip")' in error.fix
    summary = lake.run(define, dict.fromkeys(told, policy))
    assert landed(lake) == [1, 3]
    if letters:
        assert [each.value() for each in lake.kafka.records(f"{APP}-dead-letter")] == letters
    assert summary.counts is not None
    rule = "dead-lettered" if letters else "skipped"
    assert [(each.rule, each.records) for each in summary.counts.left_out] == [(rule, 1)]


def test_handler_of_functions_skips_no_row_that_its_table_does_not_take() -> None:
    lake = Lake(b"1", b"2", b"3")
    with pytest.raises(RecordError, match=r"table 'a\.b' does not take the row of in-0@1"):
        lake.run(landing(int, second_missing), settings={"processing.exception.handler": "skip"})
    assert lake.rows(TABLE) == []
