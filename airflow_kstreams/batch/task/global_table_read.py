"""Reads the global tables of a run, once in a process for all of its tasks.

Rule: the piece of each topic that begin froze, folded by key: the newest value, none where it is null; what
has no key is left out and counted, in one of the run's tasks (``stops.py`` says in which). It is kept as
bytes, in memory or in files that go with it, and shared by the tasks of the process, which only read it. The
tables of another run are dropped.

A repeat reads the same piece, if its records are still there. Compaction removes the older records of a key,
and what replaced them may lie behind the stop; ``doctor`` says when it may do so within a run. A topic that
was deleted or truncated since begin is refused.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from airflow_kstreams.batch.protocol.slice.slice import FrozenTable, Slice
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import DataLossError, StateStoreError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import LeftOut, RecordCounts
from airflow_kstreams.streams.graph.store_specs import GlobalEntries, Storage
from airflow_kstreams.streams.naming.commands import drop_slice_command
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, Record, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import StoreFiles

log = package_log(__name__)

#: Application id, run id, and the run's begin in epoch milliseconds.
_Run = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTable:
    """A global table that was read.

    :param without_key: number of records without key, which are in no table.
    """

    entries: GlobalEntries
    without_key: int


class GlobalTables:
    """The global tables that a process has read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[tuple[_Run, FrozenTable], ReadTable] = {}

    def read(
        self,
        cluster: ClusterPort,
        admin: AdminPort,
        slice_: Slice,
        storages: Mapping[str, Storage],
        *,
        clock: Clock,
        scratch: Path | None = None,
    ) -> dict[str, ReadTable]:
        """Return global tables by topic: those that the process has not read yet for the run are read.

        :param slice_: slice of the run.
        :param storages: topic -> storage of the table, for the tables that the task uses.
        :param scratch: folder for files.
        :raises ConfigError: the package ``rocksdict`` is not installed, which a storage needs.
        :raises DataLossError: a topic is not what it was when the run began.
        :raises KafkaClientError: a topic cannot be read.
        :raises StateStoreError: files cannot be written.
        """
        app = slice_.plan.topology.application_id
        run = (app, slice_.run_id, slice_.plan.begun_ms)
        found: dict[str, ReadTable] = {}
        with self._lock:
            for key in [key for key in self._read if key[0][0] == app and key[0] != run]:
                del self._read[key]
            for table in slice_.plan.global_tables:
                if table.topic not in storages:
                    continue
                if (run, table) not in self._read:
                    _refuse_changed(admin, table, slice_)
                    kept: _KeptTable = (
                        _InFiles(table.topic, scratch) if storages[table.topic] == "rocksdb" else _InMemory()
                    )
                    without_key = _read_into(kept, cluster, table, group_id=app, clock=clock)
                    self._read[run, table] = ReadTable(entries=kept, without_key=without_key)
                found[table.topic] = self._read[run, table]
        return found


#: Those of this process, where it hosts tasks one after another and side by side.
OF_PROCESS = GlobalTables()


def left_out_of(tables: Mapping[str, ReadTable], counted: Collection[str]) -> RecordCounts:
    """Return the records without key in global tables that a task counts.

    :param counted: topics of the tables whose left-out records this task counts.
    """
    return RecordCounts(
        left_out=tuple(
            LeftOut(f"global table {topic}", "null", table.without_key)
            for topic, table in tables.items()
            if table.without_key and topic in counted
        )
    )


class _KeptTable(GlobalEntries, Protocol):
    """The entries of a table, added while it is read."""

    def add(self, records: Sequence[Record]) -> None:
        """Apply records that have keys, in their order."""
        ...


class _InMemory(dict[bytes, bytes]):
    """Entries in memory."""

    def add(self, records: Sequence[Record]) -> None:
        """Apply records that have keys, in their order."""
        for record in records:
            value = record.value()
            if value is None:
                self.pop(record.key() or b"", None)
            else:
                self[record.key() or b""] = value


class _InFiles:
    """Entries in a database of their own, which goes with them.

    :param topic: topic of the table, for messages.
    :param scratch: parent of its temporary folder; the system's own unless given.
    """

    def __init__(self, topic: str, scratch: Path | None) -> None:
        files = StoreFiles(f"global table {topic}")
        folder = tempfile.TemporaryDirectory(prefix="kstreams-global-table-", dir=scratch)
        self._files = files.open(Path(folder.name))
        weakref.finalize(self, _remove, files, folder)
        #: ``get(key)`` returns the value or None.
        self.get: Callable[[bytes], bytes | None] = files.read

    def add(self, records: Sequence[Record]) -> None:
        """Apply records that have keys, in their order."""
        batch = self._files.batch()
        for record in records:
            value = record.value()
            if value is None:
                batch.delete(record.key() or b"")
            else:
                batch.put(record.key() or b"", value)
        self._files.write(batch)


def _remove(files: StoreFiles, folder: tempfile.TemporaryDirectory[str]) -> None:
    with suppress(StateStoreError):
        files.close()
    folder.cleanup()


def _read_into(
    kept: _KeptTable, cluster: ClusterPort, table: FrozenTable, *, group_id: str, clock: Clock
) -> int:
    """Read a table.

    :return: number of records without key.
    """
    spans = {TopicPartition(table.topic, number): span for number, span in enumerate(table.spans)}
    without_key = 0
    with closing(cluster.reader(group_id=group_id)) as reader:
        for fetched in BoundedRead(reader, spans, clock=clock):
            for records in fetched.values():
                keyed = [record for record in records if record.key() is not None]
                without_key += len(records) - len(keyed)
                kept.add(keyed)
    if without_key:
        log.warning(
            "global table of topic %s: left out without a key: %s",
            table.topic,
            counted(without_key, "record"),
        )
    return without_key


def _refuse_changed(admin: AdminPort, table: FrozenTable, slice_: Slice) -> None:
    """Refuse a topic that has lost records since the run began: an attempt would see another table."""
    found = admin.describe_topics([table.topic]).get(table.topic)
    why = ""
    if found is None or found.topic_id != table.topic_id:
        why = "it was deleted" if found is None else "it was created again"
    else:
        spans = {TopicPartition(table.topic, number): span for number, span in enumerate(table.spans)}
        starts = admin.start_offsets(sorted(spans))
        ends = admin.end_offsets(sorted(spans), isolation="read_uncommitted")
        for tp, (start, stop) in sorted(spans.items()):
            if ends[tp] < stop:
                why = f"{tp} ends at {ends[tp]}, and the run reads to {stop}"
            elif starts[tp] > start and start < stop:
                why = f"{tp} starts at {starts[tp]}, and the run reads from {start}"
    if why:
        app = slice_.plan.topology.application_id
        raise DataLossError(
            f"the global table of topic {table.topic} is not what it was when run {slice_.run_id!r} began: "
            f"{why}",
            fix="give the topic cleanup.policy=compact, and drop the slice, as no attempt could see the same "
            f"table any more; the next run goes on where it stopped: {drop_slice_command(app)}",
            run_id=slice_.run_id,
        )
