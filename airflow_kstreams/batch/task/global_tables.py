"""What the global tables of a run hold, read once in a process for all of its tasks.

Rule: the piece of each topic that begin froze, folded by key: the newest value, none where it is null. It is
kept as bytes, and shared by the tasks of the process, which only read it. What another run has read is let
go.

A repeat reads the same piece, if its records are still there. Compaction removes the older records of a key,
and what replaced them may lie behind the stop; ``doctor`` says when it may do so within a run. A topic that
was deleted or cut since begin is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import closing

from airflow_kstreams.batch.protocol.slice import FrozenTable, Slice
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, TopicPartition
from airflow_kstreams.streams.reset_command import drop_slice_command

#: Application, run, when it began.
_Run = tuple[str, str, int]


class GlobalTables:
    """The global tables that a process has read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[tuple[_Run, FrozenTable], Mapping[bytes, bytes]] = {}

    def entries(
        self, cluster: ClusterPort, admin: AdminPort, slice_: Slice, topics: Iterable[str], *, clock: Clock
    ) -> dict[str, Mapping[bytes, bytes]]:
        """Return what global tables hold, by topic.

        :param slice_: of the run.
        :param topics: of the tables that the task uses.
        :raises DataLossError: a topic is not what it was when the run began.
        :raises KafkaClientError: a topic cannot be read.
        """
        wanted = {*topics}
        tables = [table for table in slice_.plan.global_tables if table.topic in wanted]
        app = slice_.plan.topology.application_id
        run = (app, slice_.run_id, slice_.plan.begun_ms)
        found: dict[str, Mapping[bytes, bytes]] = {}
        with self._lock:
            for key in [key for key in self._read if key[0][0] == app and key[0] != run]:
                del self._read[key]
            for table in tables:
                if (run, table) not in self._read:
                    _refuse_changed(admin, table, slice_)
                    self._read[run, table] = _read(cluster, table, group_id=app, clock=clock)
                found[table.topic] = self._read[run, table]
        return found


#: Those of this process, where it hosts tasks one after another and side by side.
OF_PROCESS = GlobalTables()


def _read(cluster: ClusterPort, table: FrozenTable, *, group_id: str, clock: Clock) -> dict[bytes, bytes]:
    entries: dict[bytes, bytes] = {}
    spans = {TopicPartition(table.topic, number): span for number, span in enumerate(table.spans)}
    with closing(cluster.reader(group_id=group_id)) as reader:
        for fetched in BoundedRead(reader, spans, clock=clock):
            for records in fetched.values():
                for record in records:
                    key, value = record.key(), record.value()
                    if key is None:
                        continue
                    if value is None:
                        entries.pop(key, None)
                    else:
                        entries[key] = value
    return entries


def _refuse_changed(admin: AdminPort, table: FrozenTable, slice_: Slice) -> None:
    """Refuse a topic of which something is gone since the run began: an attempt would see another table."""
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
            fix="no attempt could see the same table any more: drop the slice with "
            f"{drop_slice_command(app)}, and begin another run; give the topic cleanup.policy=compact",
            run_id=slice_.run_id,
        )
