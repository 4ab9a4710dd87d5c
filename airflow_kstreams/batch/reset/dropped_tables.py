"""Lets the files of a run that is dropped land in its tables.

Offsets that tasks of the run have committed stay committed, so the rows that belong to them must come into
the tables, though the run never finishes. The files are those that its tasks have listed.

Rule, once every task is fenced, so that the list grows no more:

1. A run whose mark is in a table had all its tasks done. It is finished, and not dropped, unless its finish
   is refused.
2. Any other run's list is committed to every table under the run's sequence, by the rule of every commit
   (:mod:`airflow_kstreams.batch.run.tables.landing`); without a row, too. A list that was sealed stays as it
   is: its end was frozen, and is part of the reset's record.
3. One transaction then says that the list is read, and what the last commit to each table is.

Why a committer that sleeps brings nothing later: its commit has the run's sequence, and the condition of a
look from before. The commit that is made here moves the table, so that condition fails, and its next look
finds the mark. If its commit was first, the look here finds the mark: only a sealed list is committed, and
that is the list here.

Crash argument: the reset's record has the slice from the transaction that drops it to the one of step 3. So
whichever reset comes next, with the same request or another, lands the same list under the same sequence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from airflow_kstreams.batch.ledger.facts import DroppedRun, DroppedSlice, LandedTable, ResetRecord
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.slice.metadata import Folded
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import slice_starts
from airflow_kstreams.batch.reset.rows_again import dropped_run
from airflow_kstreams.batch.run.attempts import CoordinatorAttempt
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.lease.lease import Claimant, CoordinatorLease
from airflow_kstreams.batch.run.run_finish import RunFinish
from airflow_kstreams.batch.run.tables.file_lists import FileList, SealedFiles
from airflow_kstreams.batch.run.tables.landing import Landing, list_partition, sealed_at
from airflow_kstreams.streams.errors import KStreamsError, TaskFencedError
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.tables.table_port import TablesPort

log = package_log(__name__)
_OWNER = "reset"
#: Dropped runs whose rows the ledger knows.
_KNOWN = 8


def with_tables(slice_: Slice | None) -> Slice | None:
    """Return the slice if its tasks may have written files for tables; else None."""
    return slice_ if slice_ is not None and slice_.plan.targets else None


def dropping(slice_: Slice | None, folded: Folded) -> DroppedSlice | None:
    """Return what the reset's record keeps of a slice that is dropped; None of one without tables.

    :param folded: content of the metadata topic, which the same transaction deletes.
    """
    kept = with_tables(slice_)
    if kept is None:
        return None
    return DroppedSlice(slice=kept, list_stop=folded.intermediate_stops.get(list_partition(kept), -1))


@dataclasses.dataclass(frozen=True, slots=True)
class TableDrop:
    """The part of a reset that concerns tables of the run that it drops.

    :param session: the session of the reset's coordinator.
    :param tables: opens the tables; None if it was not said where they are.
    """

    session: CoordinatorSession
    tables: TablesPort | None

    def refuse_unfit(self, slice_: Slice) -> None:
        """Look at the tables before anything is changed.

        :raises ConfigError: it is not said where tables are.
        :raises TableUnavailableError: a table did not answer.
        :raises TableRefusedError: a table is not the one that the run began with.
        """
        self._landing(slice_, SealedFiles()).looks()

    def finished(self, slice_: Slice) -> bool:
        """Finish a run whose commit is in one of its tables, and return whether that was done.

        :raises TaskFencedError: another coordinator has claimed the id.
        """
        looks = self._landing(slice_, SealedFiles()).looks()
        if not any(
            look.marks.get(name, 0) >= slice_.plan.targets[name].sequence for name, look in looks.items()
        ):
            return False
        settings = self.session.settings
        attempt = CoordinatorAttempt(
            self.session.application_id, self.session.clock, most_runs=settings.ledger_details_kept
        )
        attempt.start(slice_.run_id, part="finish", owner=_OWNER, order=(0, 0))
        caller = Claimant(run_id=slice_.run_id, order=(0, 0), owner=_OWNER, hold_lease=False)
        finish = RunFinish(self.session, CoordinatorLease(self.session, attempt), attempt, tables=self.tables)
        try:
            finish.finish_under_claim(caller)
        except TaskFencedError:
            raise
        except KStreamsError as error:
            if error.is_retriable:
                raise
            log.warning(
                "run %s has landed in a table, and cannot be finished; it is dropped: %s",
                slice_.run_id,
                error,
            )
            return False
        return True

    def land(self, record: ResetRecord) -> ResetRecord:
        """Commit what the tasks of a dropped run have listed, and write that it has landed.

        :param record: the reset's record; every task is fenced.
        :return: the record after that.
        :raises TableUnavailableError: a table did not answer; the same reset may be run again.
        :raises TableRefusedError: a table is not the one that the run began with.
        """
        dropped = record.dropping
        if dropped is None:
            return record
        partition, admin = list_partition(dropped.slice), self.session.admin
        offsets, files = {}, SealedFiles()
        if partition.topic in admin.describe_topics([partition.topic]):
            stop = dropped.list_stop
            if stop < 0:
                stop = admin.end_offsets([partition], isolation="read_uncommitted")[partition]
            files = self._listed(dropped.slice, stop)
            committed = self.session.committed([partition])
            at = max(stop, committed[partition].offset) if partition in committed else stop
            offsets[partition] = sealed_at(dropped.slice, at)
        else:
            log.warning("%s is gone, which listed the files of run %s", partition, dropped.slice.run_id)
        landed = self._landing(dropped.slice, files).land()
        ledger = self.session.read_ledger()
        done = msgspec.structs.replace(record, dropping=None)
        ledger = dataclasses.replace(
            ledger,
            tables={**ledger.tables, **(landed or {})},
            dropped=(*ledger.dropped, self._dropped(dropped.slice, landed or {}))[-_KNOWN:],
        ).with_reset(done)
        self.session.write((), ledger=LedgerChange(ledger=ledger), offsets=offsets)
        return done

    def _dropped(self, slice_: Slice, landed: Mapping[str, LandedTable]) -> DroppedRun:
        return dropped_run(
            slice_, self.session.committed([part.topic_partition for part in slice_.inputs]), landed
        )

    def _listed(self, slice_: Slice, stop: int) -> SealedFiles:
        """Return what the list says; records in it that no task of the run has written are passed over.

        :param stop: end of the list.
        """
        partition = list_partition(slice_)
        span = (slice_starts(slice_).get(partition, 0), stop)
        return FileList(
            session=self.session, slice=slice_, partition=partition, span=span, lenient=True
        ).sealed()

    def _landing(self, slice_: Slice, files: SealedFiles) -> Landing:
        return Landing(session=self.session, tables=self.tables, slice=slice_, files=files, dropped=True)
