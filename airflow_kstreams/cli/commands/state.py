"""Defines ``airflow-kstreams state``: shows the entries of a store outside a run. It only reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationPath,
    AsJson,
    Connection,
    FunctionName,
    application_settings,
    connecting,
    load_topology,
    say,
    show,
)
from airflow_kstreams.streams.figures.number_texts import counted

if TYPE_CHECKING:
    from airflow_kstreams.batch.inspect.state import StateEntry, StoredState

#: Seconds between two lines on the progress of the reading.
_EVERY_SECONDS = 5.0
#: It leaves a part of 10 s to the start of the command, and to the first and the last look at the runs.
_TIMEOUT_SECONDS = 8.0
_LOOKS_SECONDS = 1.0


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
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Longest time for the reading; 0 for no bound.")
    ] = _TIMEOUT_SECONDS,
    function: FunctionName = "topology",
    as_json: AsJson = False,
) -> None:
    """Show the entries of an application's store, or of one key, as its last finished run left them.

    While a run is under way, the entries are those that each task has committed, and the output says so. Only
    the changelog is read, nothing is written, and no Spark is needed.
    """
    from airflow_kstreams.batch.inspect.state import StoredState
    from airflow_kstreams.cli.documents.state_document import StateDocument, store_entry
    from airflow_kstreams.cli.json_output import print_json_list
    from airflow_kstreams.cli.tables.state_tables import entry_pages, entry_table, state_notes

    topology = load_topology(application, function)
    look_ms = round((timeout + _LOOKS_SECONDS) * 1000) if timeout else None
    kafka = connection.cluster(application_settings(application_id, None), look_ms=look_ms)
    progress = None if as_json else _Progress().show
    bound = timeout or None
    with StoredState(kafka, topology, application_id, store, progress=progress, seconds=bound) as read:
        entries = _entries(read, key, hexadecimal=hexadecimal)
        if as_json:
            print_json_list(
                "entries",
                map(store_entry, islice(entries, limit) if limit else entries),
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
        for page in entry_pages(entries, limit):
            shown += len(page)
            show([entry_table(f"Store {store} of {application_id}", page)])
        for note in state_notes(read, key, shown, more=next(entries, None) is not None):
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
            say(f"read {done:,} of {counted(total, 'offset')} of the changelog", err=True)
