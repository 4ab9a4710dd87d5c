"""Opens files of tables so that what fails later, at a write or a close, is an error of the port as well."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, BinaryIO, cast

from airflow_kstreams.streams.errors import TableUnavailableError

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_NAME_LENGTH = 100


def folder_of(partition: Iterable[tuple[str, Any]]) -> str:
    """Return the folder for a partition's files, with a slash at its end; empty without a partitioning.

    The folder is for people: every format takes a file's partition from its metadata. So signs that some
    storage or reader treats on its own, and what is too long, are left out.

    >>> folder_of([("day", "2024-01-01"), ("carrier", "a/b c")])
    'day=2024-01-01/carrier=a_b_c/'
    """
    parts = ((name, "null" if value is None else str(value)) for name, value in partition)
    return "".join("=".join(safe_name(text, _NAME_LENGTH) for text in part) + "/" for part in parts)


def safe_name(text: str, longest: int) -> str:
    """Return a text with the signs that every storage takes in the name of a file.

    :param longest: number of signs that are kept.
    """
    return _UNSAFE.sub("_", text)[:longest]


class CheckedStream(io.RawIOBase):
    """A file whose errors are those of the port.

    :param stream: the library's file.
    :param errors: makes a block that turns the library's errors into the port's; it takes what is done.
    :param path: location of the file.
    """

    def __init__(self, stream: Any, errors: Callable[[str], AbstractContextManager[None]], path: str) -> None:
        self._stream, self._errors, self._path = stream, errors, path
        self._broken = False

    def readable(self) -> bool:
        return bool(self._stream.readable())

    def writable(self) -> bool:
        return bool(self._stream.writable())

    def seekable(self) -> bool:
        return bool(self._stream.seekable())

    def write(self, data: Any) -> int:
        """Write bytes, all of them."""
        with self._noted("write"):
            self._stream.write(bytes(data))
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """Read bytes; fewer than asked for only at the end."""
        with self._errors(f"read of {self._path}"):
            if size is None or size < 0:
                size = self._stream.size() - self._stream.tell()
            return cast("bytes", self._stream.read(size))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with self._errors(f"read of {self._path}"):
            self._stream.seek(offset, whence)
            return int(self._stream.tell())

    def tell(self) -> int:
        return int(self._stream.tell())

    def flush(self) -> None:
        """Do nothing: a file exists once it is closed."""

    def close(self) -> None:
        """Close the file.

        :raises TableUnavailableError: the storage has not taken it whole, now or at an earlier write.
        """
        if self.closed:
            return
        try:
            with self._noted("close"):
                self._stream.close()
        finally:
            super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except TableUnavailableError:
            return  # the first error says more

    def _noted(self, doing: str) -> AbstractContextManager[None]:
        return self._errors(f"{doing} of {self._path}")


def checked(stream: Any, errors: Callable[[str], AbstractContextManager[None]], path: str) -> BinaryIO:
    """Return a file of a library as one whose errors are the port's."""
    return cast("BinaryIO", CheckedStream(stream, errors, path))
