"""Makes the tables and notes of ``state``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from airflow_kstreams.batch.inspect.state import StateEntry, StoredState
from airflow_kstreams.explore.record_table import shown_time, shown_value
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams.figures.number_texts import counted

#: Rows of one table: more entries are shown in several tables, so that memory does not grow with them.
_ROWS = 1_000


def entry_pages(entries: Iterator[StateEntry], limit: int) -> Iterator[list[StateEntry]]:
    """Yield entries a table at a time, so that memory does not grow with them.

    :param limit: number of entries in all; 0 for all of them.
    """
    left = limit
    while page := list(islice(entries, min(left, _ROWS) if limit else _ROWS)):
        yield page
        left -= len(page)
        if limit and not left:
            return


def state_notes(read: StoredState, key: str | None, shown: int, *, more: bool) -> Iterator[str]:
    """Yield what is not shown, and the moment that all entries belong to.

    :param key: the key that was asked for; None for all.
    :param shown: number of entries that were shown.
    :param more: whether there are more of them.
    """
    if not shown:
        yield f"no entry has the key {key}" if key is not None else "the store is empty"
    if more:
        yield f"there are more than {counted(shown, 'entry')}: --limit 0 shows all"
    yield str(read.as_of())


def entry_table(title: str, entries: Sequence[StateEntry]) -> Table:
    """Return the table of a page of entries."""
    columns: dict[str, Callable[[StateEntry], str]] = {
        "key": lambda entry: shown_value(entry.key),
        "start": lambda entry: "" if entry.start_ms is None else shown_time(entry.start_ms),
        "end": lambda entry: "" if entry.end_ms is None else shown_time(entry.end_ms),
        "value": lambda entry: shown_value(entry.value),
        "waits": lambda entry: "" if entry.waits is None else ("yes" if entry.waits else "no"),
        "timestamp": lambda entry: shown_time(entry.timestamp_ms),
        "task": lambda entry: entry.task_id,
    }
    cells = {name: [text(entry) for entry in entries] for name, text in columns.items()}
    # A column without any value belongs to another kind of store.
    filled = {name: texts for name, texts in cells.items() if any(texts)}
    return Table(title=title, columns=tuple(filled), rows=list(zip(*filled.values(), strict=True)))
