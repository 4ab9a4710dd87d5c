"""Turns errors of storages into those of the port, and keeps secrets out of their texts.

Credentials that are wrong are refused for good, and those that have expired are not: they were right before,
each try reads the connection anew, and each look at a table whose catalogue gives credentials gets new ones.

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
_TEXT_LENGTH = 600
_LATER = "look at what the storage or catalogue says of itself, then retry: nothing is done twice"
_FULL = "free space in the storage, or raise its limit, then retry: nothing is done twice"
_DENIED = "give these credentials the right to read, write, list and delete there, then retry the run"
CREDENTIALS = "renew or correct the credentials in the connection of the tables, then retry the run"
EXPIRED = "renew the credentials in the connection of the tables; each try reads them anew"
_FULL_NUMBERS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED_NUMBERS = {errno.EACCES, errno.EPERM, errno.EROFS}
#: Words of storages that have refused credentials, in small letters, without signs between them.
_CREDENTIAL_WORDS = (
    "invalidaccesskey",
    "signaturedoesnotmatch",
    "invalidtoken",
    "invalidclienttoken",
    "nocredentials",
    "partialcredentials",
    "unabletolocatecredentials",
    "unauthenticated",
    "401unauthorized",
)
#: The same of credentials that were right once. S3 answers a request for a file's size without any text.
_EXPIRED_WORDS = (
    "expiredtoken",
    "tokenexpired",
    "tokenhasexpired",
    "tokenisexpired",
    "credentialshaveexpired",
    "(httpstatus400)duringheadobject",
)
_DENIED_WORDS = ("accessdenied", "403forbidden", "permissiondenied", "awserror[code15]", "readonly")
_FULL_WORDS = (
    "nospaceleft",
    "quotaexceeded",
    "storagefull",
    "insufficientstorage",
    "httpstatus507",
    "diskisfull",
    "filetoolarge",
)
_ABSENT_WORDS = ("nosuchbucket", "bucketdoesnotexist", "containernotfound")
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
    if has_expired(error):
        return TableUnavailableError(cause, fix=EXPIRED)
    if _says(error, _CREDENTIAL_WORDS):
        return TableRefusedError(cause, fix=CREDENTIALS)
    if _says(error, _ABSENT_WORDS):
        return TableRefusedError(
            cause, fix="make the bucket or container, or correct its name, then retry the run"
        )
    # Stores that are full answer 403, too.
    if number in _FULL_NUMBERS or _says(error, _FULL_WORDS):
        return TableUnavailableError(cause, fix=_FULL)
    if number in _DENIED_NUMBERS or isinstance(error, PermissionError) or _says(error, _DENIED_WORDS):
        return TableRefusedError(cause, fix=_DENIED)
    return TableUnavailableError(cause, fix=_LATER)


def has_expired(error: BaseException) -> bool:
    """Whether an error says that credentials were right, and are not any more."""
    return _says(error, _EXPIRED_WORDS)


def _says(error: BaseException, words: Collection[str]) -> bool:
    text = _BETWEEN.sub("", str(error).lower())
    return any(word in text for word in words)


def unavailable(place: TablePlace, doing: str, error: BaseException) -> TableUnavailableError:
    """Return the error for a catalogue that did not answer, or not with what can be understood."""
    return TableUnavailableError(f"table {place.name!r}: {doing} failed: {place.said(error)}", fix=_LATER)
