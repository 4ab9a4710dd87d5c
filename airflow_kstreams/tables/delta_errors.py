"""Turns errors of deltalake into those of the port.

deltalake has few classes of errors and says the rest in texts. A commit that fails in a way not known here
may have landed, so that is :class:`TableUnavailableError`, behind which the caller looks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from airflow_kstreams.streams.errors import KStreamsError, TableMovedError, TableRefusedError
from airflow_kstreams.tables.storage_errors import TablePlace, storage_error

#: What the library says of a table whose protocol it does not know, as far as the log has it.
_UNKNOWN_PROTOCOL = (
    "kernel error: unsupported:",
    "unsupported table features",
    "table features must be specified",
    "invalid protocol action",
    "catalog-managed table",
)

#: A folder that is not there because it cannot be made or seen is no table that is gone.
_NO_FOLDER = ("denied", "could not create local directory")


@contextmanager
def port_errors(place: TablePlace, doing: str) -> Iterator[None]:
    """Raise the port's errors for those of deltalake within a block.

    :param place: the table.
    :param doing: what the block does, as a noun: ``commit``, ``look``.
    """
    try:
        yield
    except KStreamsError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        raise _port_error(place, doing, error) from None


def _port_error(place: TablePlace, doing: str, error: Exception) -> KStreamsError:
    what = f"table {place.name!r}: {doing}"
    match error:
        case DeltaError() if any(words in str(error).lower() for words in _UNKNOWN_PROTOCOL):
            return TableRefusedError(
                f"{what}: refused: the table has a feature that is not known here: {place.said(error)}",
                fix="drop that feature of the table in its own engine, or write to another table",
            )
        case CommitFailedError():
            return TableMovedError(f"{what}: the table has changed since the look: {place.said(error)}")
        case DeltaProtocolError() | SchemaMismatchError() | ValueError():
            return TableRefusedError(f"{what}: refused: {place.said(error)}")
        case TableNotFoundError() if not any(words in str(error).lower() for words in _NO_FOLDER):
            return TableMovedError(f"{what}: the table is gone: {place.said(error)}")
        case _:
            return storage_error(place, doing, error)
