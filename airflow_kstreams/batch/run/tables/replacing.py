"""Replaces what a table has of a data interval by the rows of a backfill, in one commit.

Rule: one field of the table's partitioning is a time, and the interval begins and ends where its partitions
do. So each file lies within the interval or outside of it. The commit that adds the run's files takes out all
files that lie within; rows of the run that lie outside are refused, for they would stand beside others.

What is taken out is what the table had of the interval when the run began: begin freezes a digest of those
files. A file that others have added since, or put in the place of one, may hold rows of records that the run
has not read; then nothing is replaced.

Crash argument: as for every commit; each look works out anew what the commit on its condition takes out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from airflow_kstreams.streams.errors import TableRefusedError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import time_text
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.partition_fields import field_of, type_of
from airflow_kstreams.streams.tables.table_port import FileFacts, TableLook, TablePort

_UNITS_MS = {"hour": 3_600_000, "day": 86_400_000}
_ELSEWHERE = (
    "backfill into another table, whose name backfill_outputs gives, or by intervals of whole partitions"
)


@dataclass(frozen=True, slots=True)
class ReplacedInterval:
    """The part of a table that a backfill replaces.

    :param table: the table.
    :param interval_ms: the data interval, ``[from, to)``, epoch milliseconds.
    :param place: number of the partition field that is a time.
    :param unit: its unit: ``hour``, ``day``, ``month`` or ``year``.
    """

    table: TablePlan
    interval_ms: tuple[int, int]
    place: int
    unit: str

    @classmethod
    def of(cls, table: TablePlan, interval_ms: tuple[int, int]) -> ReplacedInterval:
        """Return the part of a table.

        :raises TableRefusedError: its partitions do not say what lies in the interval.
        """
        found = [
            (place, unit)
            for place, text in enumerate(table.partition_by)
            if (unit := _unit(text, table)) is not None
        ]
        if table.mode != "append" or len(found) != 1:
            raise TableRefusedError(
                f"table {table.name!r} cannot be replaced by intervals: it has mode={table.mode!r} and the "
                f"partition fields {', '.join(table.partition_by) or 'none'}, of which one must be a time",
                fix=_ELSEWHERE,
            )
        place, unit = found[0]
        for bound_ms in interval_ms:
            if not _begins(bound_ms, unit):
                raise TableRefusedError(
                    f"table {table.name!r} is partitioned by {table.partition_by[place]}, and the interval "
                    f"from {time_text(interval_ms[0])} to {time_text(interval_ms[1])} cuts a partition",
                    fix=_ELSEWHERE,
                )
        return cls(table, interval_ms, place, unit)

    def files(self, port: TablePort, look: TableLook) -> list[str]:
        """Return the files of the newest snapshot that lie within, sorted.

        :raises TableRefusedError: the table has files of which that cannot be told.
        """
        partitions = port.partitions(look)
        if partitions is None:
            raise TableRefusedError(
                f"table {self.table.name!r} has files of another partitioning, or rows that are deleted "
                "without their files: what lies in the interval cannot be told",
                fix="let an engine rewrite the table's files, then retry; or backfill into another table",
            )
        return sorted(path for path, partition in partitions.items() if self._holds(partition))

    def refuse_outside(self, added: Collection[FileFacts]) -> None:
        """Refuse rows of the run that lie outside.

        :raises TableRefusedError: there are such rows.
        """
        outside = [file.partition for file in added if not self._holds(file.partition)]
        if outside:
            raise TableRefusedError(
                f"rows of the backfill lie in {counted(len(outside), 'file')} outside of its interval, the "
                f"first in the partition {dict(zip(self.table.partition_by, outside[0], strict=True))} of "
                f"table {self.table.name!r}: beside the rows that are there, they would come twice",
                fix="partition the table by the time that dates the records, or backfill into another table",
            )

    def _holds(self, partition: tuple[Any, ...]) -> bool:
        value = partition[self.place]
        return value is not None and self.interval_ms[0] <= _start_ms(value, self.unit) < self.interval_ms[1]


def digest_of(paths: Collection[str]) -> str:
    """Return the digest of some files, with their number."""
    return f"{len(paths)}:{hashlib.sha256(chr(10).join(sorted(paths)).encode()).hexdigest()[:24]}"


def _unit(text: str, table: TablePlan) -> str | None:
    """Return the unit of a partition field; None of one that is no time."""
    field = field_of(text)
    if field.transform in ("year", "month", "day", "hour"):
        return field.transform
    kind = type_of(field.column, table.columns) if field.transform == "identity" else None
    return {"date": "day", "instant": "hour"}.get(kind) if isinstance(kind, str) else None


def _begins(moment_ms: int, unit: str) -> bool:
    """Whether a partition begins at a moment."""
    if unit in _UNITS_MS:
        return moment_ms % _UNITS_MS[unit] == 0
    moment = datetime.fromtimestamp(moment_ms / 1000, tz=UTC)
    first = moment.replace(month=moment.month if unit == "month" else 1, day=1)
    return moment_ms % _UNITS_MS["day"] == 0 and moment == first


def _start_ms(value: Any, unit: str) -> int:
    """Return the beginning of a partition, epoch milliseconds.

    :param value: number of the unit from 1970 on, a day, or a moment.
    """
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    if isinstance(value, date):
        return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000)
    if unit in _UNITS_MS:
        return int(value) * _UNITS_MS[unit]
    months = int(value) * (12 if unit == "year" else 1)
    return int(datetime(1970 + months // 12, months % 12 + 1, 1, tzinfo=UTC).timestamp() * 1000)
