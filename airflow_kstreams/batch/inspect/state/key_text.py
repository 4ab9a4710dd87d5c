"""Converts the text of a key, as a user writes it, into the key's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from airflow_kstreams.batch.inspect.state.entry_form import EntryForm
from airflow_kstreams.streams.decoders import decode_json
from airflow_kstreams.streams.errors import ConfigError, KStreamsError


def key_bytes_of_text(form: EntryForm, store: str, text: str) -> bytes:
    """Return the bytes of a key that is given as text: as it is where keys are text or bytes; else as JSON,
    or as it is where it is no JSON.

    :param store: its name, for the error.
    :raises ConfigError: the store's keys are none that the text could mean.
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
    """Yield what a text may mean, the likelier first."""
    if key_id.startswith("bytes"):
        yield text.encode()
        return
    if not key_id.startswith("string"):
        with suppress(msgspec.DecodeError):
            yield decode_json(text)
    yield text
