"""Finishes a run: writes the finished marker and the ledger's entry in one transaction, under the
coordinator's claim. What they hold is decided in :mod:`airflow_kstreams.batch.run.finish`.

A run that writes to tables commits its files to them between the check and the marker
(:mod:`airflow_kstreams.batch.run.tables.landing`), and tidies them up behind the marker
(:mod:`airflow_kstreams.batch.run.tables.tidying`).

Order: a ledger that says finished ends it, as a repeated finish does. Then it waits for the lease of another
owner, claims the id unless its own driver holds the claim, reads both logs, checks that everything is at its
stop, and writes. A crash before the commit changes nothing. After it the run is finished: only processed
records of repartition topics may be left, which the next run deletes.

The first look may be the caller's, who has just made it. It decides nothing but whether to wait, and whether
to claim at all: what it misses, the read under the claim finds, as it finds what comes between any look and
the claim. After a lost race the ledger is read anew.

Where another coordinator has claimed the id meanwhile, the ledger says whether that one was refused, has
claimed the run, or has finished it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from contextlib import nullcontext

import msgspec

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.invariants import check_finish
from airflow_kstreams.batch.ledger.facts import LandedTable
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.metadata_records import finished_record, plan_pieces
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.attempts import CoordinatorAttempt
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.finish import FinishedSlice, close_slice
from airflow_kstreams.batch.run.lease.lease import Claimant, CoordinatorLease
from airflow_kstreams.batch.run.tables.file_lists import SealedFiles
from airflow_kstreams.batch.run.tables.landing import Landing, seal, sealed_files
from airflow_kstreams.batch.run.tables.marks import drop_marks
from airflow_kstreams.batch.run.tables.tidying import tidy
from airflow_kstreams.streams.errors import (
    DataLossError,
    KafkaClientError,
    KStreamsError,
    RunError,
    TaskFencedError,
)
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.tables.table_port import TablesPort

log = package_log(__name__)


class RunFinish:
    """The finish of a run by one coordinator.

    :param session: session of the coordinator.
    :param lease: the lease that it may hold.
    :param attempt: the attempt that it makes.
    :param seen: the ledger as the caller has just read it without waiting; None if it has not.
    :param tables: opens the tables that the run writes to.
    """

    def __init__(
        self,
        session: CoordinatorSession,
        lease: CoordinatorLease,
        attempt: CoordinatorAttempt,
        *,
        seen: Ledger | None = None,
        tables: TablesPort | None = None,
    ) -> None:
        self._session = session
        self._app = session.application_id
        self._lease = lease
        self._attempt = attempt
        self._seen = seen
        self._tables = tables

    def finish(self, caller: Claimant, reports: Collection[TaskReport]) -> RunSummary:
        run_id = caller.run_id
        ledger, self._seen = self._seen or self._session.read_ledger(wait_ms=0), None
        if (done := finished_run(ledger, run_id)) is not None:
            return done
        self._lease.await_turn(ledger, caller, same_run_may_wait=False)
        try:
            return self._finish_claimed(run_id, caller, reports)
        except TaskFencedError:
            if self._lease.held is None:
                raise self._lease.lost_race(caller) from None
        except (DataLossError, KafkaClientError) as error:
            # Another coordinator may have finished the run meanwhile, purged what was being read here, and
            # begun the next run, whose offsets are none of this one.
            done = None if error.is_retriable else finished_run(self._session.read_ledger(), run_id)
            if done is not None:
                return done
            if isinstance(error, DataLossError) and self._lease.held is not None:
                self._lease.renew()  # nothing that a driver finds after it was superseded is to be believed
            raise
        # The coordinator that fenced the owner of the lease was refused, has claimed the run, or has finished
        # the run itself; the ledger says which.
        self._lease.reclaim()
        done = finished_run(self._session.read_ledger(), run_id)
        return done or self._finish_claimed(run_id, caller, reports)

    def finish_under_claim(self, caller: Claimant) -> RunSummary:
        """Finish the run for a coordinator that has claimed its id; another may hold the lease."""
        return self._finish_claimed(caller.run_id, caller, ())

    def _finish_claimed(self, run_id: str, caller: Claimant, reports: Collection[TaskReport]) -> RunSummary:
        claimed = self._session.claimed
        with nullcontext() if claimed else self._session.claiming():
            ledger = self._session.read_ledger()
            if (done := finished_run(ledger, run_id)) is not None:
                return done
            if not claimed:
                self._lease.refuse_busy(ledger, caller, same_run_may_wait=False)
        self._attempt.look(ledger, free=self._lease.is_free(ledger))
        self._attempt.works_on(run_id)
        facts = RunFacts(self._app, ledger, self._session.read_metadata(None))
        self._attempt.take_reported(facts.reported, finished=ledger.is_finished)
        metadata = facts.metadata
        slice_ = metadata.slice
        if slice_ is None or slice_.run_id != run_id:
            found = "nothing" if slice_ is None else f"run {slice_.run_id!r}, {metadata.state.value}"
            raise RunError(
                f"run {run_id!r} of application {self._app!r} cannot be finished: it has no slice, the "
                f"metadata topic holds {found}",
                fix="begin the run first",
                run_id=run_id,
            )
        if slice_.plan.targets:
            metadata = seal(self._session, self._lease, slice_)
        with self._attempt.steps.step("finish"):
            closed = close_slice(self._session, slice_=slice_, folded=metadata, reports=reports)
        landed = ledger.tables
        files: SealedFiles | None = None
        if slice_.plan.targets:
            files = sealed_files(self._session, slice_, metadata)
            # The lease is renewed meanwhile, so the ledger moves on, and the run may be finished.
            now = self._land(slice_, files)
            ledger = self._session.read_ledger()
            if (done := finished_run(ledger, run_id)) is not None:
                return done
            if now is None:
                raise self._lease.lost_race(caller)
            landed = {**ledger.tables, **now}
        history, others = self._attempt.finished(slice_, captured_by=metadata.owner)
        change = LedgerChange(
            ledger=dataclasses.replace(
                ledger,
                reset=None,
                changelog_ends=closed.changelogs or ledger.changelog_ends,
                accepted={tp: each for tp, each in ledger.accepted.items() if tp not in closed.offsets},
                tables=landed,
            ),
            finished=msgspec.structs.replace(
                closed.summary, history=history, attempts=history.number, tables=dict(landed)
            ),
            details_kept=self._session.settings.ledger_details_kept,
        )
        check_finish(slice_, metadata, closed.offsets)
        lease = self._lease.held
        ours = lease is not None and lease.owner_run_id == run_id
        marker = [*plan_pieces(slice_), finished_record(slice_, owner=metadata.owner)]
        finished = self._session.write(
            [*marker, *self._attempt.forgetting_reported()],
            offsets=closed.offsets,
            ledger=change,
            lease=msgspec.structs.replace(lease, expires_ms=0) if lease is not None and ours else lease,
            histories=others,
        )
        self._attempt.close()
        self._lease.take(None if ours else lease)
        log.info("application %s: run %s is finished", self._app, run_id)
        self._purge(closed)
        if files is not None:
            tidy(self._session, self._tables, slice_, files)
            settings = self._session.settings
            if settings.backfill_of and settings.backfill_runs == "one":
                drop_marks(self._tables, slice_)
        return finished or closed.summary

    def _land(self, slice_: Slice, files: SealedFiles) -> dict[str, LandedTable] | None:
        """Commit the run's files to its tables; None if the run was found finished."""
        landing = Landing(session=self._session, tables=self._tables, slice=slice_, files=files)
        with nullcontext() if self._lease.held is None else self._lease.renewing():
            return landing.land()

    def _purge(self, done: FinishedSlice) -> None:
        """Delete processed repartition records; only saves space, so a failure is logged and left to the
        next run.
        """
        try:
            self._session.admin.delete_records(done.purge)
        except KStreamsError as error:
            log.warning("repartition topics of application %s could not be purged: %s", self._app, error)


def finished_run(ledger: Ledger, run_id: str) -> RunSummary | None:
    """Return a finished run with its details, as far as they have not expired; None if it is not finished."""
    found = ledger.find(run_id)
    return None if found is None else ledger.detailed(found)
