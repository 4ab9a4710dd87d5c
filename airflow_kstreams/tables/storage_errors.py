"""Turns errors of storages into those of the port, and keeps secrets out of their texts.

A library's error is not chained to ours: its text may have what a connection says, and a traceback prints
the whole chain.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from airflow_kstreams.streams.errors import KStreamsError, TableRefusedError, TableUnavailableError

#: Longest part of a library's text in an error.
_TEXT_LENGTH = 400
_LATER = "look at what the storage or catalogue says of itself, then retry: nothing is done twice"
_FULL = "free space in the storage, then retry: nothing is done twice"
_DENIED = "give these credentials the right to read, write, list and delete there, then retry the run"
CREDENTIALS = "renew or correct the credentials in the connection of the tables, then retry the run"
_FULL_NUMBERS = {errno.ENOSPC, errno.EDQUOT}
_DENIED_NUMBERS = {errno.EACCES, errno.EPERM, errno.EROFS}
#: Words of storages that have refused credentials, in small letters, without signs between them.
_CREDENTIAL_WORDS = (
    "invalidaccesskey",
    "signaturedoesnotmatch",
    "expiredtoken",
    "tokenexpired",
    "invalidtoken",
    "invalidclienttoken",
    "nocredentials",
    "partialcredentials",
    "unabletolocatecredentials",
    "unauthenticated",
    "401unauthorized",
)
_DENIED_WORDS = ("accessdenied", "403forbidden", "permissiondenied", "awserror[code15]", "readonly")
_FULL_WORDS = ("nospaceleft", "quotaexceeded", "storagefull")
_BETWEEN = re.compile(r"[\s_-]+")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A table, and what must not be printed of its connection.

    :param name: the table, for messages.
    :param secrets: texts that no message may have.
    """

    name: str
    secrets: Collection[str] = field(default=(), repr=False)

    def said(self, error: BaseException) -> str:
        """Return class and text of a library's error, without secrets."""
        text = " ".join(_COLOURS.sub("", str(error)).split())
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return f"{type(error).__name__}: {text[:_TEXT_LENGTH]}"


def storage_error(place: TablePlace, doing: str, error: BaseException) -> KStreamsError:
    """Return the error of the port for one of a storage.

    :param place: the table.
    :param doing: what was being done, as a noun with what belongs to it: ``write of s3://...``.
    :param error: what the library raised.
    """
    cause = f"table {place.name!r}: {doing} failed: {place.said(error)}"
    number = error.errno if isinstance(error, OSError) else None
    text = _BETWEEN.sub("", str(error).lower())
    if any(word in text for word in _CREDENTIAL_WORDS):
        return TableRefusedError(cause, fix=CREDENTIALS)
    if (
        isinstance(error, PermissionError)
        or number in _DENIED_NUMBERS
        or any(w in text for w in _DENIED_WORDS)
    ):
        return TableRefusedError(cause, fix=_DENIED)
    if number in _FULL_NUMBERS or any(word in text for word in _FULL_WORDS):
        return TableUnavailableError(cause, fix=_FULL)
    return TableUnavailableError(cause, fix=_LATER)


def unavailable(place: TablePlace, doing: str, error: BaseException) -> TableUnavailableError:
    """Return the error for a catalogue that did not answer, or not with what can be understood."""
    return TableUnavailableError(f"table {place.name!r}: {doing} failed: {place.said(error)}", fix=_LATER)
