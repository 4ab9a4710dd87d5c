"""Turns errors of pyiceberg, and of the libraries below it, into those of the port.

A commit's answer that cannot be understood is one that may have landed. So whatever is not known to be a
refusal is :class:`TableUnavailableError`, behind which the caller looks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import requests
from pydantic import ValidationError as UnreadableAnswer
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchIdentifierError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    SignError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationError,
    ValidationException,
    WaitingForLockException,
)
from sqlalchemy.exc import SQLAlchemyError

from airflow_kstreams.streams.errors import (
    ConfigError,
    KStreamsError,
    TableMovedError,
    TableRefusedError,
    TableUnavailableError,
)
from airflow_kstreams.tables.storage_errors import (
    CREDENTIALS,
    EXPIRED,
    TablePlace,
    has_expired,
    storage_error,
    unavailable,
)

_CREDENTIAL_ERRORS = (OAuthError, SignError, UnauthorizedError)
_REFUSALS = (
    BadRequestError,
    NotImplementedError,
    ValidationError,
    ValidationException,
    ValueError,
)
_UNANSWERED = (
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    WaitingForLockException,
    requests.RequestException,
)


@contextmanager
def port_errors(place: TablePlace, doing: str) -> Iterator[None]:
    """Raise the port's errors for those of libraries within a block.

    :param place: the table.
    :param doing: what the block does, as a noun: ``commit``, ``look``.
    """
    try:
        yield
    except KStreamsError:
        raise
    except Exception as error:
        made = port_error(place, doing, error)
        if made is None:
            raise
        raise made from None


def port_error(place: TablePlace, doing: str, error: Exception) -> KStreamsError | None:
    """Return the port's error for one of a library; None for a mistake in code."""
    what = f"table {place.name!r}: {doing}"
    match error:
        case CommitFailedException():
            return TableMovedError(f"{what}: the table has changed since the look: {place.said(error)}")
        case NoSuchTableError() | NoSuchNamespaceError() | NoSuchIdentifierError():
            return TableMovedError(f"{what}: the table is gone: {place.said(error)}")
        case RESTError() if is_absent(error):
            return TableMovedError(f"{what}: the table is gone: {place.said(error)}")
        case AuthorizationExpiredError() | UnauthorizedError() if _is_expired(error):
            return TableUnavailableError(f"{what}: refused: {place.said(error)}", fix=EXPIRED)
        case _ if isinstance(error, _CREDENTIAL_ERRORS):
            return TableRefusedError(f"{what}: refused: {place.said(error)}", fix=CREDENTIALS)
        case ForbiddenError():
            return TableRefusedError(
                f"{what}: not allowed: {place.said(error)}",
                fix="give this principal the right to it in the catalogue, then retry the run",
            )
        case UnreadableAnswer():
            return unavailable(place, doing, error)
        case _ if isinstance(error, _UNANSWERED):
            return unavailable(place, doing, error)
        case SQLAlchemyError() | OSError():
            return storage_error(place, doing, error)
        case _ if isinstance(error, _REFUSALS) or _is_refusal(error):
            return TableRefusedError(f"{what}: refused: {place.said(error)}")
        case RESTError():
            return unavailable(place, doing, error)
        case _:
            return _of_amazon(place, doing, error)


def _is_expired(error: RESTError) -> bool:
    """Whether a token was valid, and is not any more, as the catalogue says by its answer's status or text.

    The client has asked for another token by then, if it has what it needs for that. A catalogue that says
    no more than that a token is not valid may never have known it: that is refused.
    """
    return isinstance(error, AuthorizationExpiredError) or has_expired(error)


def is_absent(error: RESTError) -> bool:
    """Whether a REST catalogue has answered that there is nothing of the name."""
    return _status(error) == HTTPStatus.NOT_FOUND


def _is_refusal(error: Exception) -> bool:
    """Return True for an answer of a REST catalogue that says that the request is wrong."""
    return (
        isinstance(error, RESTError)
        and HTTPStatus.BAD_REQUEST <= _status(error) < HTTPStatus.INTERNAL_SERVER_ERROR
    )


def _status(error: RESTError) -> int:
    """Return the status of a REST catalogue's answer; 0 without one."""
    cause = error.__cause__
    if not isinstance(cause, requests.HTTPError) or cause.response is None:
        return 0
    return int(cause.response.status_code)


def _of_amazon(place: TablePlace, doing: str, error: Exception) -> KStreamsError | None:
    """Return the error for one of Amazon's client, which only a Glue catalogue needs."""
    if not any(each.__module__.startswith("botocore.") for each in type(error).__mro__):
        return None
    return storage_error(place, doing, error)


def misconfigured(place: TablePlace, error: Exception) -> ConfigError:
    """Return the error for settings with which no catalogue can be opened."""
    return ConfigError(
        f"table {place.name!r}: its catalogue cannot be opened: {place.said(error)}",
        fix="correct the settings that begin with 'iceberg.' in the connection of the tables",
    )
