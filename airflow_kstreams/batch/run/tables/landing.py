"""Lands the files of a run in its tables.

The subtopology that lands reads the topic in which tasks list their files; no task runs it. Its stop is
frozen as that of any topic between subtopologies: when every task that writes it has notified. Then the list
is *sealed*: the coordinator commits the topic's offset at the stop. What is sealed never changes, whoever
goes on.

Rule of the commit, for each table: look at the table; only then read the ledger's end; a mark at the run's
sequence, or a ledger that says finished, means done; else one commit on condition of that look, which writes
the mark. Whatever fails is answered by another look. Nothing is sent again blindly, no file is deleted.

Invariant: a run's files come into a table at most once. Two commits of one run are made on two looks. If the
first has landed, the second's look finds its mark, or was made before it, and then its condition fails. A
mark may be gone only after the run is finished, which the ledger says; it is read behind the look, so that a
coordinator that slept between them cannot miss both.

Invariant: no listed file is left out. The finished marker is written by the same coordinator after every
table has answered, or shown the mark.

Crash argument: before the seal, nothing is in a table, and the next driver freezes and seals. Behind it, the
next coordinator reads the same list and goes on with the tables whose marks are missing. Between the last
commit and the marker, it finds all marks, and writes the marker.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
import tenacity

from airflow_kstreams.batch.ledger.facts import LandedTable
from airflow_kstreams.batch.protocol.checked_reading import UnreadableError
from airflow_kstreams.batch.protocol.file_list import FileListReading
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.metadata import Folded
from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget, Slice
from airflow_kstreams.batch.protocol.slice.stops import slice_starts, stops_of
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.intermediate_stops import frozen_upstream
from airflow_kstreams.batch.run.lease.lease import CoordinatorLease
from airflow_kstreams.batch.run.tables.targets import ids_of, require_tables
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import (
    DataLossError,
    RunError,
    TableMovedError,
    TableRefusedError,
    TableUnavailableError,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.table_plan import TablePlan, changes_for
from airflow_kstreams.streams.tables.table_port import (
    FileFacts,
    TableCommit,
    TableLook,
    TablePort,
    TablesPort,
)

log = package_log(__name__)
#: Looks at a table before the run gives up for now: about a minute with the pauses between them.
_LOOKS = 8
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 20.0
#: Age of a slice, in milliseconds, from which its files are looked at again before they are committed: others
#: may have cleaned up what no snapshot names.
_OLD_MS = 3_600_000
#: Most bytes of the offsets in a snapshot's summary, which every metadata file of a table repeats.
_OFFSET_BYTES = 4_096
#: The beginning of the names in a snapshot's summary.
SUMMARY = "kstreams."


def seal(session: CoordinatorSession, lease: CoordinatorLease, slice_: Slice) -> Folded:
    """Freeze the list of files, and seal it; nothing to do where it is sealed.

    :return: the content of the metadata topic after that.
    :raises UpstreamNotDoneError: tasks that write files are not done.
    :raises RunSupersededError: another driver owns the slice.
    """
    landing = slice_.plan.topology.landing
    if landing is None:
        raise ValueError(f"run {slice_.run_id!r} writes to no table")
    folded = frozen_upstream(session, lease, slice_, landing.id)
    partition, (_, stop) = _listed_span(slice_, folded)
    committed = session.committed([partition])
    if partition not in committed or committed[partition].offset < stop:
        done = OffsetMetadata(run_id=slice_.run_id, stop_set=slice_.stop_set, parked={}, complete=True)
        lease.write((), offsets={partition: CommittedOffset(stop, done.encode())})
        log.info("run %s: the list of its files is sealed", slice_.run_id)
    return folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """The landing of one run.

    :param session: the session of a coordinator that has claimed its id.
    :param tables: opens the tables.
    :param slice: the slice, whose list is sealed.
    :param folded: content of the metadata topic, with the list's stop.
    """

    session: CoordinatorSession
    tables: TablesPort | None
    slice: Slice
    folded: Folded

    def land(self) -> dict[str, LandedTable] | None:
        """Commit to every table.

        :return: the commits; None if the run was found finished.
        :raises TableUnavailableError: a table did not answer, or others kept changing it.
        :raises TableRefusedError: a table is not the one that the run began with.
        :raises DataLossError: a listed file is gone.
        """
        plan = self.slice.plan.topology
        opened = require_tables(self.tables, plan)
        listed = self._listed()
        landed: dict[str, LandedTable] = {}
        for table in plan.tables:
            found = self._land(opened.table(table), table, listed.get(table.name, []))
            if found is None:
                return None
            landed[table.name] = found
        return landed

    def _land(self, port: TablePort, table: TablePlan, files: list[FileFacts]) -> LandedTable | None:
        target = self.slice.plan.targets[table.name]
        change = TableCommit(
            application_id=self.session.application_id,
            sink=table.name,
            sequence=target.sequence,
            summary=self._summary(target),
            added=files,
        )
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((TableMovedError, TableUnavailableError)),
            wait=tenacity.wait_exponential(multiplier=_FIRST_PAUSE_SECONDS, max=_LONGEST_PAUSE_SECONDS),
            stop=tenacity.stop_after_attempt(_LOOKS),
            sleep=self.session.clock.sleep,
            before_sleep=lambda state: log.warning(
                "table %s is looked at again: %s", table.name, state.outcome and state.outcome.exception()
            ),
            reraise=True,
        )
        return retrying(self._once, port, table, change)

    def _once(self, port: TablePort, table: TablePlan, change: TableCommit) -> LandedTable | None:
        target = self.slice.plan.targets[table.name]
        look = port.look(self.session.application_id)
        if self.session.read_ledger().is_finished(self.slice.run_id):
            return None
        look = self._refuse_other(table, target, look)
        if look.marks.get(table.name, 0) >= target.sequence:
            snapshot = _snapshot_of(port, look, change)
            log.info("table %s: commit %d was made before", table.name, target.sequence)
        else:
            self._refuse_missing(port, look, table, change.added)
            snapshot = port.commit(look, change)
            log.info("table %s: commit %d adds %s", table.name, target.sequence, _said(change.added))
        return LandedTable(
            table_id=look.table_id,
            sequence=target.sequence,
            snapshot=snapshot,
            run_id=self.slice.run_id,
            rows=sum(file.rows for file in change.added),
            files=len(change.added),
        )

    def _listed(self) -> dict[str, list[FileFacts]]:
        """Return the sealed list: name of a table's sink -> its files, in the order of the list."""
        partition, (start, stop) = _listed_span(self.slice, self.folded)
        reading = FileListReading(self.slice.plan.topology.tables)
        found: dict[str, list[FileFacts]] = {}
        with self.session.reading:
            read = BoundedRead(self.session.reader, {partition: (start, stop)}, clock=self.session.clock)
            for record in (each for fetch in read for records in fetch.values() for each in records):
                try:
                    name, listed = reading.read(record, run_id=self.slice.run_id)
                except UnreadableError as error:
                    raise RunError(
                        f"run {self.slice.run_id!r} cannot land its files: in {partition}, {error}; no task "
                        "of the application has written that",
                        run_id=self.slice.run_id,
                    ) from error
                found.setdefault(name, []).append(listed.file)
        return found

    def _summary(self, target: FrozenTarget) -> dict[str, str]:
        """Return what a snapshot says of the run."""
        interval = self.slice.plan.interval_ms
        said = {
            "application-id": self.session.application_id,
            "run-id": self.slice.run_id,
            "sequence": str(target.sequence),
            **({} if interval is None else {"interval": f"{interval[0]}/{interval[1]}"}),
            "offsets": _offsets_text(self.slice),
        }
        return {f"{SUMMARY}{name}": text for name, text in said.items()}

    def _refuse_other(self, table: TablePlan, target: FrozenTarget, look: TableLook | None) -> TableLook:
        """Refuse a table that is not the one that the run's files were written for."""
        if look is None or look.table_id != target.table_id:
            found = "it is gone" if look is None else f"it is table {look.table_id}"
            cause = f"the run began with table {target.table_id}, and {found}"
        elif look.refused:
            cause = "; ".join(look.refused)
        elif look.spec_id != target.spec_id or look.partition_by != table.partition_by:
            cause = "its partitioning was changed since the run began"
        elif changes_for(table.columns, look.columns) or ids_of(table, look) != target.column_ids:
            cause = "columns of the rows were changed since the run began"
        else:
            return look
        raise TableRefusedError(
            f"run {self.slice.run_id!r} cannot land in table {table.name!r}: {cause}",
            fix="restore the table as it was, then retry the run: its files are kept",
        )

    def _refuse_missing(
        self, port: TablePort, look: TableLook, table: TablePlan, files: Collection[FileFacts]
    ) -> None:
        """Look at files that have waited for long: a format would commit one that is gone."""
        if self.session.clock.now_ms() - self.slice.plan.begun_ms < _OLD_MS:
            return
        sizes = port.files(look).sizes([file.path for file in files])
        gone = [file.path for file in files if sizes.get(file.path) != file.size]
        if gone:
            raise DataLossError(
                f"run {self.slice.run_id!r}: {counted(len(gone), 'file')} for table {table.name!r} that its "
                f"tasks have written and listed, and that no snapshot has yet, cannot be found: {gone[0]}",
                fix="restore the files, then retry the run; else reset the application to the run's start",
                run_id=self.slice.run_id,
            )


def _listed_span(slice_: Slice, folded: Folded) -> tuple[TopicPartition, tuple[int, int]]:
    """Return the partition that lists files, and the slice's span of it."""
    topic = ProtocolTopics(slice_.plan.topology.application_id).table_files
    ((partition, stop),) = stops_of(folded, slice_, [topic]).items()
    return partition, (slice_starts(slice_).get(partition, 0), stop)


def _snapshot_of(port: TablePort, look: TableLook, change: TableCommit) -> str:
    """Return the id of the snapshot that a commit made; empty if the history does not show it any more."""
    for snapshot in reversed(port.snapshots(look)):
        if change.summary.items() <= snapshot.summary.items():
            return snapshot.snapshot
    return ""


def _offsets_text(slice_: Slice) -> str:
    """Return start and stop of each input partition as JSON, or of each topic where that is long."""
    by_partition = {str(p.topic_partition): (p.start_offset, p.stop_offset) for p in slice_.inputs}
    text = msgspec.json.encode(by_partition)
    if len(text) > _OFFSET_BYTES:
        by_topic: dict[str, tuple[int, int]] = {}
        for part in slice_.inputs:
            start, stop = by_topic.get(part.topic, (0, 0))
            by_topic[part.topic] = (start + part.start_offset, stop + part.stop_offset)
        text = msgspec.json.encode(by_topic)
    return text.decode()


def _said(files: Collection[FileFacts]) -> str:
    rows = sum(file.rows for file in files)
    return f"{counted(rows, 'row')} in {counted(len(files), 'file')}"
