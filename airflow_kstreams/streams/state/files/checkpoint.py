"""Defines the checkpoint file, which names the part of the changelogs that the files of a task's stores hold.

Rule: it is read and deleted before the files are opened, and written after the task's last commit, when they
are closed. It counts only if it is of the same application, task, topology and store format, of the same
changelog (topic id), if its offset lies in the log, and if it is younger than half the changelog's
``delete.retention.ms``: compaction drops a tombstone when that time is over, and a reader who starts between
a key's record and its tombstone's place would keep a key that was deleted.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from airflow_kstreams.streams.plan import decode_json
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

#: Version of the file's layout.
VERSION = 1


class StoreCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a changelog that one store's files hold.

    :param store_format: the files' format.
    :param topic_id: id of the changelog topic.
    :param offset: every committed record of the changelog partition below it is in the files.
    """

    store_format: str
    topic_id: str
    offset: int


class StateOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The task that owns the state.

    :param tasks: number of tasks of its subtopology.
    """

    application_id: str
    task_id: str
    topology_hash: str
    tasks: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a checkpoint file.

    :param written_ms: time of writing, epoch milliseconds.
    :param owner: the task that owns the files.
    :param stores: store name -> its checkpoint.
    """

    owner: StateOwner
    written_ms: int
    stores: dict[str, StoreCheckpoint]
    version: int = VERSION

    def mark_of(self, store: str) -> bytes:
        """Return the mark that a store's files must hold: the state's owner, the store, its checkpoint."""
        return msgspec.json.encode((self.owner, store, self.stores[store]))

    def encode(self) -> bytes:
        """Return the file's bytes: a checksum in hexadecimal digits, a line break, JSON."""
        body = msgspec.json.encode(self)
        return b"%08x\n%s" % (zlib.crc32(body), body)

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint | None:
        """Read a file's bytes; None if they are not a whole checkpoint of this version."""
        checksum, _, body = data.partition(b"\n")
        if checksum != b"%08x" % zlib.crc32(body):
            return None
        try:
            checkpoint = decode_json(body, cls)
        except msgspec.MsgspecError:
            return None
        return checkpoint if checkpoint.version == VERSION else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogPartition:
    """The broker's present facts of a changelog partition.

    :param topic_id: id of its topic.
    :param start_offset: first offset of the log.
    :param end_offset: high watermark of the log.
    :param delete_retention_ms: milliseconds for which compaction keeps tombstones.
    """

    topic_id: str
    start_offset: int
    end_offset: int
    delete_retention_ms: int


def usable_offsets(
    checkpoint: Checkpoint,
    *,
    owner: StateOwner,
    formats: Mapping[str, str],
    changelogs: Mapping[str, ChangelogPartition],
    now_ms: int,
) -> dict[str, int]:
    """Return the offset from which each store must be replayed; stores without a valid entry are absent.

    :param owner: the task that asks.
    :param formats: store format by store name.
    :param changelogs: changelog partition by store name.
    :param now_ms: the present time, epoch milliseconds.
    """
    if checkpoint.owner != owner:
        log.info("the local checkpoint is not used: it is of %s, not of %s", checkpoint.owner, owner)
        return {}
    usable: dict[str, int] = {}
    for store, entry in checkpoint.stores.items():
        if store not in changelogs or store not in formats:
            continue
        flaw = _flaw(entry, formats[store], changelogs[store], now_ms - checkpoint.written_ms)
        if flaw:
            log.info("task %s: the local checkpoint of store %s is not used: %s", owner.task_id, store, flaw)
        else:
            usable[store] = entry.offset
    return usable


def _flaw(entry: StoreCheckpoint, store_format: str, changelog: ChangelogPartition, age_ms: int) -> str:
    """Return the fault of an entry, empty if it is valid."""
    if entry.store_format != store_format:
        return f"its files are in the format {entry.store_format}, expected {store_format}"
    if entry.topic_id != changelog.topic_id:
        return f"its changelog had the topic id {entry.topic_id}, now it has {changelog.topic_id}"
    if not changelog.start_offset <= entry.offset <= changelog.end_offset:
        return (
            f"its offset {entry.offset} is outside the log, [{changelog.start_offset}, "
            f"{changelog.end_offset}]"
        )
    if not 0 <= age_ms < changelog.delete_retention_ms / 2:
        return f"it is {age_ms} ms old, half of delete.retention.ms is {changelog.delete_retention_ms / 2:g}"
    return ""
