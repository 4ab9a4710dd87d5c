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

Rule against others of the machine: only this user makes, changes or renames what lies in a state folder. So
folders are made for their owner alone, and before a task uses or removes anything of ``state.dir`` it looks,
without following links, whether folders and files are this user's own, no link, and closed to other writers.
What lies in a folder that passed cannot be exchanged afterwards. The folders above ``state.dir`` are not
looked at: a user who may rename in them could exchange it between the look and the use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import uuid
from contextlib import suppress
from pathlib import Path

from airflow_kstreams.streams.errors import ConfigError

_OWNER_ONLY = 0o700
_BY_GROUP_OR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


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
        :raises ConfigError: others may write there, or a link lies there.
        """
        files.make_folder(home.parent)
        _check_own(home.parent)
        _check_tree(home)
        for path in home.parent.glob(f"{home.name}.*"):
            with suppress(FileNotFoundError):
                _check_own(path)
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
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
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


def check_state_dir(path: Path) -> None:
    """Refuse a ``state.dir`` in which others of the machine could exchange what a task keeps there. A folder
    of root's may be one, and one that all may write if it is sticky, as ``/tmp``: a task makes a folder of
    its own in it. A folder that does not exist yet is made by the first task.

    :raises ConfigError: it is a link, belongs to another user, or others may write it.
    """
    with suppress(FileNotFoundError):
        _check_own(path, or_roots=True)


def _check_tree(path: Path) -> None:
    """Refuse what others have put, or could put, into a file or folder; what is gone meanwhile is fine."""
    with suppress(FileNotFoundError):
        _check_own(path)
        if path.is_dir():
            for inner in path.iterdir():
                _check_tree(inner)


def _check_own(path: Path, *, or_roots: bool = False) -> None:
    """Refuse a link, a file or folder of another user, and a folder that others may write.

    :param or_roots: whether it may be root's, and sticky.
    :raises FileNotFoundError: it does not exist.
    """
    found, user = path.lstat(), os.geteuid()
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        real = os.path.realpath(path)
        _refuse(
            path, f"is a link to {real}", f"let state.dir name {real} itself" if or_roots else f"rm {path}"
        )
    if found.st_uid != user and not (or_roots and found.st_uid == 0):
        _refuse(
            path, f"belongs to user {found.st_uid}, and the task runs as {user}", f"chown -R {user} {path}"
        )
    writable = stat.S_ISDIR(found.st_mode) and mode & _BY_GROUP_OR_OTHERS
    if writable and not (or_roots and mode & stat.S_ISVTX):
        _refuse(path, f"may be written by other users (mode {mode:04o})", f"chmod go-w {path}")


def _refuse(path: Path, found: str, remedy: str) -> None:
    raise ConfigError(
        f"local state is not used, for others could exchange it: {path} {found}",
        fix=f"if all that lies there is yours: {remedy}; else let state.dir name a new folder, which the "
        "first task makes for its user alone, also in a volume that Kubernetes opens to a group (beside "
        "fsGroup set fsGroupChangePolicy: OnRootMismatch, else it opens the folder, too) or to all",
    )


class LocalFiles:
    """Local files. Tests replace this object by one that crashes between any two steps."""

    def make_folder(self, path: Path) -> None:
        """Make a folder that only this user may enter, and parents like it; an existing one is fine."""
        for folder in reversed(path.parents):
            if not folder.exists():
                folder.mkdir(mode=_OWNER_ONLY, exist_ok=True)
        path.mkdir(mode=_OWNER_ONLY, exist_ok=True)

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
