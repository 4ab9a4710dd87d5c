"""Turns the records of a changelog into the entries of its store, for each kind of store, and the text of a
key, as a user writes it, into the key's bytes.

A kind that writes its keys in a form of its own registers itself: ``entry_form.register(ItsSpec, its_form)``.
Every other one is read as a key-value store whose keys are those of its changelog.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import msgspec

from airflow_kstreams.streams.errors import ConfigError, KStreamsError, StateStoreError
from airflow_kstreams.streams.graph.store_specs import (
    JoinStoreSpec,
    RetryStoreSpec,
    SessionStoreSpec,
    StoreSpec,
    VersionedStoreSpec,
    WindowStoreSpec,
)
from airflow_kstreams.streams.plan import decode_json
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.state.stores.making import changelog_keys, changelog_values
from airflow_kstreams.streams.state.stores.versioned_store import LATEST_MS, Deleted
from airflow_kstreams.streams.windows import Windowed

_TIME = struct.Struct(">q")
_TWO_TIMES = struct.Struct(">qq")
#: Format of windowed keys -> number of bytes of the window.
_WINDOWS = {"time_windowed(": _TIME.size, "session_windowed(": _TWO_TIMES.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """An entry of a store.

    :param key: key of the record in the store, without a window.
    :param value: value of the entry; None for a version that is a deletion.
    :param timestamp_ms: timestamp of the record that gave it this value, epoch milliseconds.
    :param task_id: id of the task that keeps it, ``<subtopology>_<group>``.
    :param start_ms: first moment of its window or session, epoch milliseconds; in the store of a join the
        time of the element, for a version the moment from which it is valid. None where there is no window.
    :param end_ms: first moment after the window, epoch milliseconds; for a session the time of its last
        record, for a version the time of the next one. None where there is none, or the store does not hold
        it.
    :param waits: whether an element of a join waits for a partner; None in other stores.
    """

    key: Any
    value: Any
    timestamp_ms: int
    task_id: str
    start_ms: int | None = None
    end_ms: int | None = None
    waits: bool | None = None


class Content(NamedTuple):
    """The content of one record of a changelog; the fields are those of :class:`StateEntry`."""

    key: Any
    value: Any
    start_ms: int | None = None
    end_ms: int | None = None
    waits: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryForm:
    """The form of a store's entries.

    :param key_id: id of the serde of the keys without their windows.
    :param serialize_key: encodes a key without its window.
    :param key_part: returns the bytes of a changelog key that are the key without its window; None for an
        entry without a key.
    :param read: decodes (changelog key, value).
    :param moments: number of moments besides the key that may be named to ask for an entry: its window's
        start and end, the time of an element, the moment of a version.
    """

    key_id: str
    serialize_key: Callable[[Any], bytes]
    key_part: Callable[[bytes], bytes | None]
    read: Callable[[bytes, bytes], Content]
    moments: int = 0


@singledispatch
def entry_form(spec: StoreSpec, window_ms: int | None) -> EntryForm:
    """Return the form of a store's entries.

    :param spec: specification of the store, with its serdes bound to the changelog.
    :param window_ms: size of its windows in milliseconds, None if they have no size, or it is not known.
    """
    keys = changelog_keys(spec)
    behind = next((size for prefix, size in _WINDOWS.items() if keys.id.startswith(prefix)), 0)

    def read(key: bytes, value: bytes) -> Content:
        found = keys.deserialize(key)
        read_value = spec.value_serde.deserialize(value)
        if behind and isinstance(found, Windowed):
            return Content(found.key, read_value, found.start_ms, found.end_ms)
        return Content(found, read_value)

    if not behind or keys.partition_bytes is None:
        return EntryForm(key_id=keys.id, serialize_key=keys.serialize, key_part=_whole, read=read)
    inner = keys.partition_bytes
    return EntryForm(
        key_id=keys.id.partition("(")[2],
        serialize_key=lambda key: inner(Windowed(key, 0, 0)),
        key_part=_before(behind),
        read=read,
        moments=2,
    )


@entry_form.register
def _window_form(spec: WindowStoreSpec, window_ms: int | None) -> EntryForm:
    def read(key: bytes, value: bytes) -> Content:
        (start_ms,) = _TIME.unpack(key[-_TIME.size :])
        end_ms = None if window_ms is None else start_ms + window_ms
        found = spec.key_serde.deserialize(key[: -_TIME.size])
        return Content(found, spec.value_serde.deserialize(value), start_ms, end_ms)

    return _behind_key(spec, spec.key_serde, _TIME.size, read, moments=1 if window_ms is None else 2)


@entry_form.register
def _session_form(spec: SessionStoreSpec, _: int | None) -> EntryForm:
    keys = changelog_keys(spec)

    def read(key: bytes, value: bytes) -> Content:
        found = keys.deserialize(key)
        return Content(found.key, spec.value_serde.deserialize(value), found.start_ms, found.end_ms)

    return _behind_key(spec, spec.key_serde, _TWO_TIMES.size, read, moments=2)


@entry_form.register
def _join_form(spec: JoinStoreSpec, _: int | None) -> EntryForm:
    def read(key: bytes, value: bytes) -> Content:
        time_ms, _ = _TWO_TIMES.unpack(key[-_TWO_TIMES.size :])
        found = spec.key_serde.deserialize(key[: -_TWO_TIMES.size])
        return Content(found, spec.value_serde.deserialize(value[1:]), time_ms, waits=value[0] == 1)

    return _behind_key(spec, spec.key_serde, _TWO_TIMES.size, read, moments=1)


@entry_form.register
def _versioned_form(spec: VersionedStoreSpec, _: int | None) -> EntryForm:
    values = changelog_values(spec)

    def read(key: bytes, value: bytes) -> Content:
        (to_ms,) = _TIME.unpack(key[-_TIME.size :])
        found, from_ms = values.deserialize(value)
        return Content(
            spec.key_serde.deserialize(key[: -_TIME.size]),
            None if found is Deleted.DELETED else found,
            start_ms=from_ms,
            end_ms=None if to_ms == LATEST_MS else to_ms,
        )

    return _behind_key(spec, spec.key_serde, _TIME.size, read, moments=1)


@entry_form.register
def _retry_form(spec: RetryStoreSpec, _: int | None) -> EntryForm:
    def key_part(key: bytes) -> bytes | None:
        found: bytes | None = spec.key_serde.deserialize(key).key
        return found

    def read(key: bytes, value: bytes) -> Content:
        own, parked = key_part(key), spec.value_serde.deserialize(value)
        return Content(
            None if own is None else spec.input_keys.deserialize(own),
            None if parked.value is None else spec.input_values.deserialize(parked.value),
        )

    return EntryForm(
        key_id=spec.input_keys.id, serialize_key=spec.input_keys.serialize, key_part=key_part, read=read
    )


def read_entry(form: EntryForm, store: str, key: bytes, value: bytes) -> Content:
    """Read an entry.

    :param store: name of the store, for the error.
    :raises StateStoreError: the entry is not in the store's serdes.
    """
    try:
        return form.read(key, value)
    except KStreamsError:
        raise
    except Exception as error:
        raise StateStoreError(
            f"store {store!r}: the entry with the key {key.hex()} (hexadecimal) is not in the serdes that "
            f"the application file gives the store: {type(error).__name__}: {error}",
            fix="name the file, and the version of it, whose runs wrote the store",
        ) from error


def _behind_key(
    spec: StoreSpec, keys: Serde, size: int, read: Callable[[bytes, bytes], Content], *, moments: int
) -> EntryForm:
    return EntryForm(
        key_id=keys.id,
        serialize_key=spec.key_serde.serialize,
        key_part=_before(size),
        read=read,
        moments=moments,
    )


def _whole(key: bytes) -> bytes:
    return key


def _before(size: int) -> Callable[[bytes], bytes]:
    return lambda key: key[:-size]


def key_bytes_of_text(form: EntryForm, store: str, text: str) -> bytes:
    """Return the bytes of a key that is given as text: as it is where keys are text or bytes; else as JSON,
    or as it is where it is no JSON.

    :param store: name of the store, for the error.
    :raises ConfigError: the store has no keys that the text could mean.
    """
    failure: Exception | None = None
    for key in _meanings(form.key_id, text):
        try:
            return form.serialize_key(key)
        except KStreamsError:
            raise
        except Exception as error:
            failure = error
    raise ConfigError(
        f"store {store!r}: {text!r} is no key in the format {form.key_id.rstrip(')')}: {failure}",
        fix="write the key as JSON, or its bytes in hexadecimal with --hex",
    )


def _meanings(key_id: str, text: str) -> Iterator[Any]:
    """Yield the objects that a text may mean, the likeliest first."""
    if key_id.startswith("bytes"):
        yield text.encode()
        return
    if not key_id.startswith("string"):
        with suppress(msgspec.DecodeError):
            yield decode_json(text)
    yield text
