"""Shows the records at one place, as a sequence and as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, overload

import msgspec

from airflow_kstreams.explore.node_records import NodeRecord
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams.figures.number_texts import counted

ROWS = 20
_MOST_FIELDS = 8
_LONGEST = 200


class RecordTable(Sequence[NodeRecord]):
    """Records in the order in which they came; shows itself as a table.

    Where all values have the same few fields, each field has a column.

    :param title: name of the place.
    :param records: all of them.
    :param shown_as: the place above the table; its name unless given.
    """

    def __init__(self, title: str, records: Sequence[NodeRecord], *, shown_as: str = "") -> None:
        self.title = title
        self._shown_as = shown_as or title
        self._records = tuple(records)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[NodeRecord]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> NodeRecord: ...
    @overload
    def __getitem__(self, index: slice) -> RecordTable: ...
    def __getitem__(self, index: int | slice) -> NodeRecord | RecordTable:
        if isinstance(index, slice):
            return RecordTable(self.title, self._records[index], shown_as=self._shown_as)
        return self._records[index]

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return a dict per record: key, value, timestamp_ms; topic, partition and offset of its input."""
        return [dataclasses.asdict(record) | _objects(record) for record in self._records]

    def table(self, rows: int = ROWS) -> Table:
        """Return the table of the first rows."""
        shown = self._records[: max(rows, 0)]
        fields = _common_fields(shown)
        values = [f"value.{name}" for name in fields] if fields else ["value"]
        return Table(
            title=f"{self._shown_as}: {counted(len(self), 'record')}",
            columns=("input record", "key", *values, "timestamp"),
            rows=[
                (
                    record.origin,
                    shown_value(record.key),
                    *_value_cells(record.value, fields),
                    shown_time(record.timestamp_ms),
                )
                for record in shown
            ],
            more=len(self) - len(shown),
        )

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<RecordTable {self.title}: {counted(len(self), 'record')}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def shown_value(value: Any) -> str:
    """Return a key or value as shortened text."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def shown_time(timestamp_ms: int) -> str:
    """Return a timestamp as UTC, or as its number if no date fits it."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    except (OverflowError, OSError, ValueError):
        return str(timestamp_ms)
    return str(timestamp_ms) if timestamp_ms < 0 else moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _objects(record: NodeRecord) -> dict[str, Any]:
    """Return key and value themselves: ``asdict`` takes dataclasses apart."""
    return {"key": record.key, "value": record.value}


def _fields(value: Any) -> tuple[str, ...] | None:
    """Return the names of a value's fields, None if it has none."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return tuple(value)
    return None


def _common_fields(records: Sequence[NodeRecord]) -> tuple[str, ...]:
    """Return the fields that all values together have, none if they are too many or a value has none."""
    names: dict[str, None] = {}
    for record in records:
        if record.value is None:
            continue
        fields = _fields(record.value)
        if fields is None:
            return ()
        names |= dict.fromkeys(fields)
    return tuple(names) if len(names) <= _MOST_FIELDS else ()


def _value_cells(value: Any, fields: Sequence[str]) -> Iterator[str]:
    if not fields:
        yield shown_value(value)
        return
    if value is None:
        yield "None"
        yield from ("" for _ in fields[1:])
        return
    for name in fields:
        found = value.get(name, _ABSENT) if isinstance(value, dict) else getattr(value, name, _ABSENT)
        yield "" if found is _ABSENT else shown_value(found)


_ABSENT = object()
