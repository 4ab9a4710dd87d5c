"""Defines ``airflow-kstreams state``: shows the entries of a store outside a run. It only reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer

from airflow_kstreams.batch.inspect.state import StateEntry, StoredState
from airflow_kstreams.cli.json_output import AsJson, plain_value, print_json_list
from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationPath,
    Connection,
    FunctionName,
    application_settings,
    connecting,
    load_topology,
    say,
    show,
)
from airflow_kstreams.explore.record_table import shown_time, shown_value
from airflow_kstreams.explore.tables import Table

#: Rows of one table: more entries are shown in several tables, so that memory does not grow with them.
_ROWS = 1_000
#: Seconds between two lines on the progress of the reading.
_EVERY_SECONDS = 5.0


class StoreEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a store; values that JSON cannot hold stand as Python prints them.

    :param key: the key, without the window of a windowed store.
    :param value: the value.
    :param start_ms: begin of the entry's window, epoch milliseconds; null in stores without windows.
    :param end_ms: end of the window; null in stores without windows.
    :param waits: whether an element of a join waits for its partner; null in other stores.
    :param timestamp_ms: time of the record that the entry was made from, epoch milliseconds.
    :param task: the task that wrote it.
    """

    key: Any
    value: Any
    start_ms: int | None
    end_ms: int | None
    waits: bool | None
    timestamp_ms: int
    task: str


class StateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of a store.

    :param entries: the entries, a line each.
    :param more: whether there are more entries than --limit lets through.
    :param application_id: the application.
    :param store: name of the store.
    :param as_of: the moment that all entries belong to.
    """

    entries: Sequence[StoreEntry]
    more: bool
    application_id: str
    store: str
    as_of: str


DOCUMENTS = {"state": StateDocument}


@connecting
def state(  # noqa: PLR0913 - every parameter is an option
    application: ApplicationPath,
    store: Annotated[str, typer.Argument(metavar="STORE", help="Name of the store.")],
    application_id: ApplicationId,
    connection: Connection,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]",
            help="Show the entries of this key: text as it is, else JSON. All entries unless given.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Entries to show; 0 for all.")] = 20,
    hexadecimal: Annotated[
        bool, typer.Option("--hex", help="KEY is the serialized key, in hexadecimal.")
    ] = False,
    function: FunctionName = "topology",
    as_json: AsJson = False,
) -> None:
    """Show the entries of an application's store, or of one key, as its last finished run left them.

    While a run is under way, the entries are those that each task has committed, and the output says so. Only
    the changelog is read, nothing is written, and no Spark is needed.
    """
    topology = load_topology(application, function)
    kafka = connection.cluster(application_settings(application_id, None))
    progress = None if as_json else _Progress().show
    with StoredState(kafka, topology, application_id, store, progress=progress) as read:
        entries = _entries(read, key, hexadecimal=hexadecimal)
        if as_json:
            print_json_list(
                "entries",
                map(_entry, islice(entries, limit) if limit else entries),
                lambda: StateDocument(
                    entries=(),
                    more=next(entries, None) is not None,
                    application_id=application_id,
                    store=store,
                    as_of=str(read.as_of()),
                ),
            )
            return
        shown = 0
        for page in _pages(entries, limit):
            shown += len(page)
            show([_table(f"Store {store} of {application_id}", page)])
        for note in _notes(read, key, shown, more=next(entries, None) is not None):
            say(note)


def _entries(read: StoredState, key: str | None, *, hexadecimal: bool) -> Iterator[StateEntry]:
    if key is None:
        return read.all()
    if not hexadecimal:
        return iter(read.find_text(key))
    try:
        serialized = bytes.fromhex(key)
    except ValueError:
        raise typer.BadParameter(f"{key!r} is not hexadecimal", param_hint="KEY") from None
    return iter(read.find_serialized(serialized))


def _pages(entries: Iterator[StateEntry], limit: int) -> Iterator[list[StateEntry]]:
    """Yield entries a table at a time, so that memory does not grow with them."""
    left = limit
    while page := list(islice(entries, min(left, _ROWS) if limit else _ROWS)):
        yield page
        left -= len(page)
        if limit and not left:
            return


def _notes(read: StoredState, key: str | None, shown: int, *, more: bool) -> Iterator[str]:
    if not shown:
        yield f"no entry has the key {key}" if key is not None else "the store is empty"
    if more:
        yield f"there are more than {shown} entries: --limit 0 shows all"
    yield str(read.as_of())


def _table(title: str, entries: Sequence[StateEntry]) -> Table:
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


def _entry(entry: StateEntry) -> StoreEntry:
    return StoreEntry(
        key=plain_value(entry.key),
        value=plain_value(entry.value),
        start_ms=entry.start_ms,
        end_ms=entry.end_ms,
        waits=entry.waits,
        timestamp_ms=entry.timestamp_ms,
        task=entry.task_id,
    )


class _Progress:
    """Prints the progress of a long reading on stderr."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def show(self, done: int, total: int) -> None:
        """Print a line, every five seconds.

        :param done: number of offsets read so far.
        :param total: number of offsets to read in all.
        """
        now = time.monotonic()
        if now - self._last >= _EVERY_SECONDS:
            self._last = now
            say(f"read {done:,} of {total:,} offsets of the changelog", err=True)
