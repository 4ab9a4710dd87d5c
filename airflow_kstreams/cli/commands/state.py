"""Defines ``airflow-kstreams state``: shows the entries of a store outside a run. It only reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer

from airflow_kstreams.batch.inspect.state import StateEntry, StoredState
from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationPath,
    BootstrapServer,
    ConfigFile,
    FunctionName,
    application_settings,
    cluster,
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


class StateFormat(StrEnum):
    """Format of entries."""

    TABLE = "table"
    JSON = "json"


def state(  # noqa: PLR0913 - every parameter is an option
    application: ApplicationPath,
    store: Annotated[str, typer.Argument(metavar="STORE", help="Name of the store.")],
    application_id: ApplicationId,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]",
            help="Show the entries of this key: text as it is, else JSON. All entries unless given.",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    config_file: ConfigFile = None,
    limit: Annotated[int, typer.Option(min=0, help="Entries to show; 0 for all.")] = 20,
    output_format: Annotated[
        StateFormat, typer.Option("--format", help="A table, or a JSON object per line.")
    ] = StateFormat.TABLE,
    hexadecimal: Annotated[
        bool, typer.Option("--hex", help="KEY is the serialized key, in hexadecimal.")
    ] = False,
    function: FunctionName = "topology",
) -> None:
    """Show the entries of an application's store, or of one key, as its last finished run left them.

    While a run is under way, the entries are those that each task has committed, and the output says so. Only
    the changelog is read, nothing is written, and no Spark is needed.
    """
    topology = load_topology(application, function)
    kafka = cluster(bootstrap_server, config_file, application_settings(application_id, None))
    as_json = output_format is StateFormat.JSON
    with StoredState(kafka, topology, application_id, store, progress=_Progress().show) as read:
        entries = _entries(read, key, hexadecimal=hexadecimal)
        shown = 0
        for page in _pages(entries, limit):
            shown += len(page)
            if as_json:
                for entry in page:
                    say(_line(entry))
            else:
                show([_table(f"Store {store} of {application_id}", page)])
        for note in _notes(read, key, shown, more=next(entries, None) is not None):
            say(note, err=as_json)


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


def _line(entry: StateEntry) -> str:
    """Return an entry as a JSON object; objects that JSON cannot hold, as Python prints them."""
    facts: dict[str, Any] = {"key": entry.key, "value": entry.value}
    for name in ("start_ms", "end_ms", "waits"):
        if getattr(entry, name) is not None:
            facts[name] = getattr(entry, name)
    facts |= {"timestamp_ms": entry.timestamp_ms, "task": entry.task_id}
    try:
        return msgspec.json.encode(facts, enc_hook=repr).decode()
    except Exception:  # e.g. keys of a dict that JSON cannot hold
        return msgspec.json.encode(
            facts | {"key": repr(entry.key), "value": repr(entry.value)}, enc_hook=repr
        ).decode()


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
