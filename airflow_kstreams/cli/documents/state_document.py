"""Makes the document of ``state``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from airflow_kstreams.batch.inspect.state import StateEntry
from airflow_kstreams.cli.json_output import plain_value


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


def store_entry(entry: StateEntry) -> StoreEntry:
    """Return an entry as JSON holds it."""
    return StoreEntry(
        key=plain_value(entry.key),
        value=plain_value(entry.value),
        start_ms=entry.start_ms,
        end_ms=entry.end_ms,
        waits=entry.waits,
        timestamp_ms=entry.timestamp_ms,
        task=entry.task_id,
    )
