"""Makes the steps on local files for claiming and keeping state, each atomic or harmless when torn."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

_OWNER_ONLY = 0o700


class LocalFiles:
    """Local files. Tests replace this object by one that crashes between any two steps."""

    def make_folder(self, path: Path) -> None:
        """Make a folder that only this user may enter, with its parents; an existing one is fine."""
        path.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically.

        :raises FileNotFoundError: there is no source.
        :raises OSError: the target is a folder that is not empty.
        """
        source.rename(target)

    def sync_folder(self, path: Path) -> None:
        """Make the files created, renamed and removed in a folder survive a crash of the machine."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def write(self, path: Path, data: bytes) -> None:
        """Write a file and make its content survive a crash of the machine; not atomic."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a file, or a folder with everything in it; a missing one is fine."""
        if path.is_dir() and not path.is_symlink():
            with suppress(FileNotFoundError):
                shutil.rmtree(path)
        else:
            self.remove(path)
