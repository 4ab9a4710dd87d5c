"""Claims a task's folder of local state for one attempt at a time, in steps that are each atomic, or harmless
when torn.

Rule: after a clean end, state lies in the task's home, ``<root>/<application id>-state/<task>``. An attempt
claims it by renaming it to a name of its own, ``<task>.<token>``, or makes that folder when there is no home;
it gives the folder back by renaming it to the home.

Invariants: two attempts never share a folder, because a rename succeeds once. The home holds the state of a
clean end: no other folder is ever renamed to it. While an attempt lives, it holds a lock on
``<task>.<token>.lock``, which the kernel drops when the attempt dies; the next attempt removes the folders of
dead ones.

Crash argument: the lock file is made before the folder and removed after it, so no folder lacks a lock file;
a lock file without a folder is removed like one with a folder. A crash anywhere between the two renames
leaves no home, so the next attempt begins with an empty folder. The renames are made durable before anything
in the folder is changed or trusted, so a crash of the machine cannot bring back the home together with files
of a later time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

_OWNER_ONLY = 0o700


class StateFolder:
    """A folder of local state, claimed; made by :meth:`claim`.

    :param path: the files' folder while the claim lasts.
    """

    def __init__(self, home: Path, path: Path, lock: _Lock, files: LocalFiles) -> None:
        self.path = path
        self._home = home
        self._lock = lock
        self._files = files

    @classmethod
    def claim(cls, home: Path, files: LocalFiles) -> StateFolder:
        """Claim the home of a task, or make an empty folder; remove the folders of dead attempts.

        :raises OSError: the folders cannot be made.
        """
        files.make_folder(home.parent)
        _sweep(home, files)
        lock = _Lock.make(home)
        folder = cls(home, lock.path.with_suffix(""), lock, files)
        try:
            try:
                files.rename(home, folder.path)
            except FileNotFoundError:
                files.make_folder(folder.path)
            files.sync_folder(home.parent)
        except OSError:
            folder.discard()
            raise
        return folder

    def give_back(self) -> bool:
        """Rename the folder to the task's home.

        :return: False if a later attempt has left a home; then this folder is removed.
        """
        try:
            self._files.rename(self.path, self._home)
        except FileExistsError:
            self.discard()
            return False
        except OSError:
            if not self._home.exists():
                raise
            self.discard()
            return False
        self._files.sync_folder(self._home.parent)
        self._lock.remove(self._files)
        return True

    def discard(self) -> None:
        """Remove the folder with everything in it."""
        self._files.remove_tree(self.path)
        self._lock.remove(self._files)


class _Lock:
    """A locked file; the kernel unlocks it when the process dies."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def make(cls, home: Path) -> _Lock:
        """Make and lock a file under a fresh name beside a task's home."""
        while True:
            path = home.with_name(f"{home.name}.{uuid.uuid4().hex}.lock")
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            # Another attempt may have removed the file before it was locked.
            if _locked(handle) and os.fstat(handle).st_nlink:
                return cls(path, handle)
            os.close(handle)

    @classmethod
    def of_dead(cls, path: Path) -> _Lock | None:
        """Lock a file that an attempt left; None if that attempt is alive."""
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        if _locked(handle):
            return cls(path, handle)
        os.close(handle)
        return None

    def remove(self, files: LocalFiles) -> None:
        """Remove the file and the lock."""
        try:
            files.remove(self.path)
        finally:
            with suppress(OSError):
                os.close(self._handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep(home: Path, files: LocalFiles) -> None:
    """Remove the folders of dead attempts of a task."""
    for path in sorted(home.parent.glob(f"{home.name}.*.lock")):
        lock = _Lock.of_dead(path)
        if lock is not None:
            try:
                files.remove_tree(path.with_suffix(""))
            finally:
                lock.remove(files)


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
