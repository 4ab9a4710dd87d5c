"""Local files on which an attempt dies between two steps, or in the middle of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from airflow_kstreams.streams.state.files.state_folder import LocalFiles
from tests.support.crash import Crash


class CrashingFiles(LocalFiles):
    """Dies at one step.

    :param crash_at: number of the step, from 0; None never dies.
    :param torn: whether half of that step still happens.
    """

    def __init__(self, crash_at: int | None = None, *, torn: bool = False) -> None:
        self.steps = 0
        self._crash_at = crash_at
        self._torn = torn

    def make_folder(self, path: Path) -> None:
        self._step(lambda: super(CrashingFiles, self).make_folder(path))

    def rename(self, source: Path, target: Path) -> None:
        self._step(lambda: super(CrashingFiles, self).rename(source, target))

    def sync_folder(self, path: Path) -> None:
        self._step(lambda: super(CrashingFiles, self).sync_folder(path))

    def write(self, path: Path, data: bytes) -> None:
        self._step(
            lambda: super(CrashingFiles, self).write(path, data),
            lambda: path.write_bytes(data[: len(data) // 2]),
        )

    def remove(self, path: Path) -> None:
        self._step(lambda: super(CrashingFiles, self).remove(path))

    def remove_tree(self, path: Path) -> None:
        self._step(lambda: super(CrashingFiles, self).remove_tree(path), lambda: half_removed(path))

    def _step(self, step: Callable[[], object], half: Callable[[], object] | None = None) -> None:
        number, self.steps = self.steps, self.steps + 1
        if self._crash_at is not None and number >= self._crash_at:
            if number == self._crash_at and self._torn:
                (half or step)()
            raise Crash
        step()


def half_removed(path: Path) -> None:
    """Remove every other file below a folder."""
    if path.is_dir():
        for file in sorted(child for child in path.rglob("*") if child.is_file())[::2]:
            file.unlink()


def let_go_of_locks(root: Path) -> None:
    """Close the lock files below a folder that this process holds, as the kernel does for a dead one."""
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if target.startswith(f"{root}/") and ".lock" in target:
            os.close(int(link.name))
