"""Defines what takes the rows of a task for a table."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.table_plan import TableMode, TablePlan
from airflow_kstreams.streams.tables.table_port import FileFacts

#: A value for each column of a table, in their order; a :class:`DeletedRow` in place of a row that is
#: deleted.
Row = tuple[Any, ...]
#: ``row(key, value, context)`` gives the row of a record, ``context`` being the task's record context.
RowOf = Callable[[Any, Any, Any], Row]


class UnfitRowError(ValueError):
    """A record makes no row of its table.

    Its text says the column and the reason, never the value. Keys of maps in the column's path are data; they
    stand in quotes, which logs leave out (:mod:`airflow_kstreams.streams.hints.hidden_values`).

    :param why: the reason.
    :param column: path of the column: ``fares[3].price``, ``prices['EUR']``; empty for the row itself.
    """

    def __init__(self, why: str, column: str = "") -> None:
        super().__init__(why, column)
        self.why, self.column = why, column

    def __str__(self) -> str:
        return f"column {self.column}: {self.why}" if self.column else self.why

    def within(self, outer: str) -> UnfitRowError:
        """Return the error for what has this column in it: a column, or a place in a list or map."""
        dot = "." if self.column and not self.column.startswith("[") else ""
        return UnfitRowError(self.why, f"{outer}{dot}{self.column}")


class DeletedRow(NamedTuple):
    """Stands for the row of a key that was deleted, in a table with ``mode="upsert"``.

    :ivar key: the key.
    """

    key: Any


@runtime_checkable
class TableSpec(Protocol):
    """A table, as an application file describes it."""

    @property
    def name(self) -> str:
        """Name of the sink."""
        ...

    @property
    def mode(self) -> TableMode:
        """What happens to rows of a key."""
        ...

    @property
    def plan(self) -> TablePlan:
        """The table as plain data."""
        ...

    def with_keys(self, serde: Serde[Any]) -> TableSpec:
        """Return the table for a stream whose keys have a serde.

        :raises TopologyError: the table has a column for keys, and the serde's are of no type of a column.
        """
        ...

    def row_of(self, run_id: str = "") -> RowOf:
        """Return the function that makes rows; it raises UnfitRowError.

        :param run_id: the run, for rows that say where they come from.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWriter:
    """Who writes rows; it stands in the names of files.

    :param application_id: the application.
    :param run_id: the run.
    :param task_id: the task, ``<subtopology>_<group>``.
    :param attempt: number of the attempt in its process.
    """

    application_id: str
    run_id: str
    task_id: str
    attempt: int


class TableRows(Protocol):
    """Takes the rows of one task for one table, in files that nobody sees before they are listed."""

    def add(self, row: Row) -> None:
        """Take a row. It has passed the checks of the row type."""
        ...

    def take(self) -> list[FileFacts]:
        """Close all files, see that they are there, and return them; the next row begins new ones.

        :raises TableUnavailableError: the storage did not answer, or a file is not there as it was written.
        """
        ...

    def abandon(self, taken: Collection[FileFacts]) -> None:
        """Delete the files that were written since the last call of :meth:`take`, and those that it gave.

        :param taken: what it gave, if the transaction that was to list these files has failed for sure.
        """
        ...
