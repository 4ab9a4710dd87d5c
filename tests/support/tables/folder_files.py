"""The storage of a table's files in a local folder, without a table: for tests of what writes files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from airflow_kstreams.streams.errors import TableUnavailableError


class FolderFiles:
    """The port ``TableFiles`` on a folder.

    :param folder: the folder.
    :ivar room_bytes: bytes that may still be written; a write beyond fails as on a full disk.
    :ivar deleted: locations that were to be deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.room_bytes = 1 << 60
        self.deleted: list[str] = []
        self.opened = 0
        self.most_open = 0

    def path(self, name: str, partition: Iterable[tuple[str, Any]] = ()) -> str:
        parts = [f"{field}={value}".replace("/", "_") for field, value in partition]
        return str(self.folder.joinpath(*parts, name))

    def create(self, path: str) -> BinaryIO:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return _Limited(path, self)  # type: ignore[return-value]

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return {path: Path(path).stat().st_size for path in paths if Path(path).exists()}

    def read(self, path: str) -> BinaryIO:
        return Path(path).open("rb")

    def names(self, beginning: str) -> Iterable[tuple[str, int]]:
        for file in sorted(self.folder.rglob(f"{beginning}*")):
            yield str(file), file.stat().st_mtime_ns // 1_000_000

    def delete(self, paths: Collection[str]) -> None:
        self.deleted += paths
        for path in paths:
            Path(path).unlink(missing_ok=True)


class _Limited:
    """A file that fails once the storage is full."""

    def __init__(self, path: str, files: FolderFiles) -> None:
        self._file = Path(path).open("xb")  # noqa: SIM115  (its owner closes it)
        self._files = files
        self._path = path
        files.opened += 1
        files.most_open = max(files.most_open, files.opened)

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: Any) -> int:
        self._files.room_bytes -= len(data)
        if self._files.room_bytes < 0:
            raise TableUnavailableError(f"write of {self._path}: no space left")
        return self._file.write(data)

    def close(self) -> None:
        if not self._file.closed:
            self._files.opened -= 1
        self._file.close()
