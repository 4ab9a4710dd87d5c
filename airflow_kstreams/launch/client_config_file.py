"""Makes the file of Kafka client settings, secrets included, that a driver on this machine reads.

A driver cannot inherit it as an open file: Spark's JVM, which starts the driver, closes the files that it
inherits. So the file has a name, only this user may read it, and it is always removed:

1. the process that made it removes it when the driver has ended;
2. a driver that outlives its submitter removes it when it ends itself;
3. if both were killed, the next one that makes such a file on this machine removes it.

For the third, the file is locked (``flock``) for as long as a process holds it open: the one that made it,
and the ``spark-submit`` that inherits the lock from it. The kernel drops the lock when the last of them ends,
however it ends. A file that no process has locked was left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PREFIX, _SUFFIX = "kstreams-kafka-", ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfigFile:
    """A file of client settings.

    :param path: the file.
    :param lock: descriptor that holds the lock; a process that inherits it holds the lock, too.
    """

    path: str
    lock: int


@contextmanager
def client_config_file(config: Mapping[str, str]) -> Iterator[ClientConfigFile]:
    """Make a file of client settings that lasts as long as the block, and remove those left behind by others.

    :param config: client settings by librdkafka's names.
    """
    remove_left_behind()
    made = _locked()
    try:
        with os.fdopen(os.dup(made.lock), "w", encoding="utf-8") as file:
            json.dump(dict(config), file)
        yield made
    finally:
        Path(made.path).unlink(missing_ok=True)
        os.close(made.lock)


def remove_left_behind() -> None:
    """Remove this user's files of client settings that no process holds any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*{_SUFFIX}"):
        # Gone meanwhile, another user's, or in use.
        with contextlib.suppress(OSError):
            _remove_unless_held(path)


def _locked() -> ClientConfigFile:
    while True:
        lock, path = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX)  # made with mode 0600
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.fstat(lock).st_nlink > 0:
            return ClientConfigFile(path=path, lock=lock)
        os.close(lock)  # taken for one that was left behind, before it was locked


def _remove_unless_held(path: Path) -> None:
    found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(found)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    finally:
        os.close(found)
