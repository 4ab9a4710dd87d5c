"""Lands the files of a run in its tables.

The subtopology that lands reads the topic in which tasks list their files; no task runs it. Its stop is
frozen as that of any topic between subtopologies: when every task that writes it has notified. Then the list
is *sealed*: the coordinator commits the topic's offset at the stop, or past the merged files that it writes
there in the same transaction (:mod:`.file_lists`). A sealed list never changes: every later process commits
the same one.

Rule of the commit, for each table: look at the table; only then read the ledger's end; a mark at the run's
sequence, or a ledger that says finished, means done; else one commit on condition of that look, which writes
the mark. Whatever fails is answered by another look. Nothing is sent again blindly, no file is deleted.

Invariant: a run's files come into a table at most once. Two commits of one run are made on two looks. If the
first has landed, the second's look finds its mark, or was made before it, and then its condition fails. A
mark may be gone only after the run is finished, which the ledger says; it is read behind the look, so that a
coordinator that slept between them cannot miss both.

Invariant: no listed file is left out. The finished marker is written by the same coordinator after every
table has answered, or shown the mark.

Crash argument: before the seal, nothing is in a table, and the next driver freezes, merges and seals. Behind
it, the next coordinator reads the same list and goes on with the tables whose marks are missing. Between the
last commit and the marker, it finds all marks, and writes the marker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import tenacity

from airflow_kstreams.batch.ledger.facts import AcceptedState, LandedTable
from airflow_kstreams.batch.protocol.file_list import MergedFile, merged_record
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.metadata import Folded
from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget, Slice
from airflow_kstreams.batch.protocol.slice.stops import partitions_of, slice_starts, stops_of
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.intermediate_stops import DOUBTFUL, frozen_upstream
from airflow_kstreams.batch.run.lease.lease import CoordinatorLease
from airflow_kstreams.batch.run.tables.file_lists import FileList, SealedFiles
from airflow_kstreams.batch.run.tables.merge_plan import MakeMerges
from airflow_kstreams.batch.run.tables.replacing import ReplacedInterval, digest_of
from airflow_kstreams.batch.run.tables.targets import ACCEPT, ids_of, require_tables
from airflow_kstreams.streams.errors import (
    DataLossError,
    KStreamsError,
    RunSupersededError,
    TableMovedError,
    TableRefusedError,
    TableUnavailableError,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.commands import drop_slice_command
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.table_plan import TablePlan, changes_for
from airflow_kstreams.streams.tables.table_port import (
    FileFacts,
    MadeSnapshot,
    TableCommit,
    TableLook,
    TablePort,
    TablesPort,
)

log = package_log(__name__)
#: Looks at a table before the run gives up for now: about a minute with the pauses between them.
_LOOKS = 8
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 20.0
#: Tries to write the seal.
_WRITES = 3
#: Age of a slice, in milliseconds, from which its files are looked at again before they are committed: others
#: may have cleaned up what no snapshot names.
_OLD_MS = 3_600_000
#: Most bytes of the offsets in a snapshot's summary, which every metadata file of a table repeats.
_OFFSET_BYTES = 4_096
#: The beginning of the names in a snapshot's summary.
SUMMARY = "kstreams."


def seal(
    session: CoordinatorSession,
    lease: CoordinatorLease,
    slice_: Slice,
    make_merges: MakeMerges | None = None,
) -> Folded:
    """Freeze the list of files, and seal it; nothing to do where it is sealed.

    :param make_merges: merges small files before that; None to seal what is listed.
    :return: the content of the metadata topic after that.
    :raises UpstreamNotDoneError: tasks that write files are not done.
    :raises RunSupersededError: another driver owns the slice.
    """
    landing = slice_.plan.topology.landing
    if landing is None:
        raise ValueError(f"run {slice_.run_id!r} writes to no table")
    folded = frozen_upstream(session, lease, slice_, landing.id)
    partition, span = _listed_span(slice_, folded)
    if not _is_sealed(session, partition, span):
        listed = FileList(session=session, slice=slice_, partition=partition, span=span)
        _write_seal(session, lease, listed, [] if make_merges is None else _merged(listed, make_merges))
    return folded


def _is_sealed(session: CoordinatorSession, partition: TopicPartition, span: tuple[int, int]) -> bool:
    committed = session.committed([partition])
    return partition in committed and committed[partition].offset >= span[1]


def _merged(listed: FileList, make_merges: MakeMerges) -> list[tuple[str, MergedFile]]:
    """Let small files be merged; where that fails, the run lands with those that it has."""
    try:
        return listed.merged(make_merges)
    except RunSupersededError:
        raise
    except KStreamsError as error:
        log.warning("run %s: its small files are not merged: %s", listed.slice.run_id, error)
        return []


def _write_seal(
    session: CoordinatorSession,
    lease: CoordinatorLease,
    listed: FileList,
    merged: Sequence[tuple[str, MergedFile]],
) -> None:
    """Write merged files behind the stop and the offset past them, in one transaction.

    It is not known whether a transaction that failed came through. So the id is claimed anew before another
    one, which settles it, and the offset is looked at. Merged files of a seal that is lost are not deleted.

    The records get the places behind the end of the log: every transaction with a record below the stop has
    ended, tasks have notified, and no coordinator but the one that holds the claim writes there.
    """
    slice_, partition = listed.slice, listed.partition
    records = [merged_record(session.application_id, name, each) for name, each in merged]
    for writes_left in reversed(range(_WRITES)):
        try:
            with session.writing:
                if not session.claimed:
                    lease.reclaim()
                end = listed.span[1]
                if records:
                    ends = session.admin.end_offsets([partition], isolation="read_uncommitted")
                    end = ends[partition] + len(records)
                lease.write(records, offsets={partition: sealed_at(slice_, end)})
        except KStreamsError as error:
            doubtful = isinstance(error, DOUBTFUL) and error.is_retriable
            if not writes_left or not doubtful or lease.held is None:
                raise
            log.info("run %s: its seal is looked for: %s", slice_.run_id, error.cause)
            lease.reclaim()
            if _is_sealed(session, partition, listed.span):
                return
        else:
            log.info(
                "run %s: the list of its files is sealed, with %s",
                slice_.run_id,
                counted(len(records), "merged file"),
            )
            return


def sealed_at(slice_: Slice, stop: int) -> CommittedOffset:
    """Return the offset of the list that says that it is sealed.

    :param stop: end of the list.
    """
    done = OffsetMetadata(run_id=slice_.run_id, stop_set=slice_.stop_set, parked={}, complete=True)
    return CommittedOffset(stop, done.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """The landing of one run.

    :param session: the session of a coordinator that has claimed its id.
    :param tables: opens the tables.
    :param slice: the slice, whose list is sealed.
    :param files: what the list says.
    :param dropped: whether the run is dropped: then its tasks have processed a part of the slice.
    """

    session: CoordinatorSession
    tables: TablesPort | None
    slice: Slice
    files: SealedFiles = field(default_factory=SealedFiles)
    dropped: bool = False

    def land(self) -> dict[str, LandedTable] | None:
        """Commit to every table.

        :return: the commits; None if the run was found finished.
        :raises TableUnavailableError: a table did not answer, or others kept changing it.
        :raises TableRefusedError: a table is not the one that the run began with.
        :raises DataLossError: a listed file is gone.
        """
        plan = self.slice.plan.topology
        opened = require_tables(self.tables, plan)
        landed: dict[str, LandedTable] = {}
        # An upsert that rewrites files takes longest, and is made anew when others commit: it comes last.
        for table in sorted(plan.tables, key=lambda table: table.rewrites):
            found = self._land(opened.table(table), table, self.files.added.get(table.name, []))
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
            key_column=table.key_column,
        )
        return looking_again(self.session, table.name)(self._once, port, table, change)

    def _once(self, port: TablePort, table: TablePlan, change: TableCommit) -> LandedTable | None:
        target = self.slice.plan.targets[table.name]
        look = port.look(self.session.application_id)
        ledger = self.session.read_ledger()
        if ledger.is_finished(self.slice.run_id):
            return None
        look, known = self._refuse_other(table, target, look), ledger.tables.get(table.name)
        if look.marks.get(table.name, 0) >= target.sequence:
            made = MadeSnapshot(
                snapshot=snapshot_of(port, look, change.application_id, change.sequence),
                rewritten_bytes=None if change.key_column else 0,
            )
            log.info("table %s: commit %d was made before", table.name, target.sequence)
        else:
            self._refuse_rolled_back(port, look, known)
            self._refuse_missing(port, look, table, change.added)
            change = self._replacing(port, look, table, change)
            made = port.commit(look, change)
            does = "takes rows by their keys from" if change.key_column else "adds"
            log.info("table %s: commit %d %s %s", table.name, target.sequence, does, _said(change.added))
        return LandedTable(
            table_id=look.table_id,
            sequence=target.sequence,
            snapshot=made.snapshot,
            run_id=self.slice.run_id,
            rows=sum(file.rows for file in change.added),
            files=len(change.added),
            rewritten_bytes=made.rewritten_bytes,
            format=table.format,
            location=table.location,
            accepted=accepted_of(known, look.table_id),
        )

    def _replacing(
        self, port: TablePort, look: TableLook, table: TablePlan, change: TableCommit
    ) -> TableCommit:
        """Return the commit with the files that a backfill takes out; a dropped one adds and takes nothing.

        :raises TableRefusedError: others have changed what the table has of the interval.
        """
        target = self.slice.plan.targets[table.name]
        if target.replaces_ms is None:
            return change
        if self.dropped:
            return replace(change, added=())
        part = ReplacedInterval.of(table, target.replaces_ms)
        part.refuse_outside(change.added)
        removed = part.files(port, look)
        if digest_of(removed) != target.replaced:
            raise TableRefusedError(
                f"run {self.slice.run_id!r} cannot replace its interval in table {table.name!r}: others have "
                "changed what the table has of it since the run began, and may have added rows that the run "
                "has not read",
                fix="let no other run write the interval meanwhile; drop this run's slice: "
                f"{drop_slice_command(self.session.application_id)}; then retry",
            )
        return replace(change, removed=removed)

    def _summary(self, target: FrozenTarget) -> dict[str, str]:
        """Return what a snapshot says of the run."""
        interval = self.slice.plan.interval_ms
        said = {
            "application-id": self.session.application_id,
            "run-id": self.slice.run_id,
            "sequence": str(target.sequence),
            **({} if interval is None else {"interval": f"{interval[0]}/{interval[1]}"}),
            **({"dropped": "true"} if self.dropped else {"offsets": _offsets_text(self.slice)}),
        }
        return {f"{SUMMARY}{name}": text for name, text in said.items()}

    def looks(self) -> dict[str, TableLook]:
        """Look at every table.

        :return: name of the table's sink -> the look.
        :raises TableUnavailableError: a table did not answer.
        :raises TableRefusedError: a table is not the one that the run began with.
        :raises ConfigError: it is not said where tables are.
        """
        plan = self.slice.plan
        opened = require_tables(self.tables, plan.topology)
        return {
            table.name: self._refuse_other(
                table, plan.targets[table.name], opened.table(table).look(self.session.application_id)
            )
            for table in plan.topology.tables
        }

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

    def _refuse_rolled_back(self, port: TablePort, look: TableLook, known: LandedTable | None) -> None:
        """Refuse a table that was rolled back since the run began.

        The next begin looks for this run's snapshot alone: it would not see that earlier rows are missing.
        """
        if known is None or known.table_id != look.table_id or not known.snapshot:
            return
        if port.holds(look, known.snapshot) is False:
            raise TableRefusedError(
                f"run {self.slice.run_id!r} cannot land: its table was rolled back or restored past snapshot "
                f"{known.snapshot}, commit {known.sequence} of run {known.run_id!r}, and lacks its rows",
                fix=f"bring the table forward again to that snapshot, then retry the run; {ACCEPT}",
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


def sealed_files(session: CoordinatorSession, slice_: Slice, folded: Folded) -> SealedFiles:
    """Return what the sealed list of a run says.

    :param folded: content of the metadata topic, with the list's stop.
    :raises RunError: a record is none of this list's, or merged files are missing.
    """
    partition, span = _listed_span(slice_, folded)
    return FileList(session=session, slice=slice_, partition=partition, span=span).sealed()


def list_partition(slice_: Slice) -> TopicPartition:
    """Return the partition in which tasks list their files."""
    (partition,) = partitions_of(slice_, [ProtocolTopics(slice_.plan.topology.application_id).table_files])
    return partition


def _listed_span(slice_: Slice, folded: Folded) -> tuple[TopicPartition, tuple[int, int]]:
    """Return the partition that lists files, and the slice's span of it."""
    partition = list_partition(slice_)
    stop = stops_of(folded, slice_, [partition.topic])[partition]
    return partition, (slice_starts(slice_).get(partition, 0), stop)


def looking_again(session: CoordinatorSession, table: str) -> tenacity.Retrying:
    """Return a retry policy for a look at a table and the commit on its condition.

    :param table: name of the table's sink, for messages.
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((TableMovedError, TableUnavailableError)),
        wait=tenacity.wait_exponential(multiplier=_FIRST_PAUSE_SECONDS, max=_LONGEST_PAUSE_SECONDS),
        stop=tenacity.stop_after_attempt(_LOOKS),
        sleep=session.clock.sleep,
        before_sleep=lambda state: log.warning(
            "table %s is looked at again: %s", table, state.outcome and state.outcome.exception()
        ),
        reraise=True,
    )


def snapshot_of(port: TablePort, look: TableLook, application_id: str, sequence: int) -> str:
    """Return the id of the snapshot that a commit made; empty if the history does not show it any more.

    It is looked for among those that the table was rolled back past, too: then the next begin sees that the
    rows are missing.
    """
    said = {f"{SUMMARY}application-id": application_id, f"{SUMMARY}sequence": str(sequence)}.items()
    for snapshot in reversed(port.snapshots(look, taken_back=True)):
        if said <= snapshot.summary.items():
            return snapshot.snapshot
    return ""


def accepted_of(known: LandedTable | None, table_id: str) -> AcceptedState | None:
    """Return the state in which a table was accepted last.

    :param known: the ledger's last commit to a table of its name.
    :param table_id: id of the table.
    """
    return None if known is None or known.table_id != table_id else known.accepted


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
