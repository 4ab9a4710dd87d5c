"""Runs the task protocol (KIP-129): one bounded task from fencing to its last commit.

Steps of an attempt, in this order, which is the proof:

1. ``init_transactions`` under ``<app>-<subtopology>_<group>`` fences every older attempt of the task and
   waits until what it left open is aborted or completed. Nothing an older attempt still does can become
   visible after this line.
2. Look at the lease in the ledger's tail: unless it is in force for the task's run and generation, stop;
   nothing was written (:mod:`airflow_kstreams.batch.ledger.fold`). The driver ships the task's share,
   with the stops that are frozen for the run, and they never move.
3. Read the committed offsets. Because of step 1 they cannot move any more except by this attempt, or by one
   that fences it in turn.
4. Restore state from the task's local files, as far as a checkpoint of a clean end goes, and from the
   changelog, up to its end: step 1 settled that, too.
5. Process to the stop offsets. A commit writes outputs, changelogs, offsets (and with the last one the done
   notification) in one transaction, so a crash between any two lines leaves either all of a commit or
   nothing of it.

A crash in 1 to 4 has written nothing. A crash in 5 leaves an open transaction, which step 1 of the next
attempt aborts. If the outcome of a commit is unknown, or its writer is suspect, the writer is dropped and the
next attempt starts at 1, where the committed offsets say it. With ``at_least_once`` outputs are flushed
before changelogs, notification and offsets are committed in a transaction, so that a crash repeats records
and never skips one. Only the outputs of a zombie are not fenced then.
"""

from __future__ import annotations

import logging
from contextlib import closing

import tenacity

from airflow_kstreams.batch.metrics import task_line
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.retry_budget import RetryBudget, resumable
from airflow_kstreams.batch.task.attempt import TaskAttempt, already_done, committed_progress
from airflow_kstreams.batch.task.work import SliceWork, TaskSetup, TaskSlice
from airflow_kstreams.streams.errors import RecordError, TaskFencedError

log = logging.getLogger(__name__)

_FENCED_POLL_SECONDS = 0.5


class TaskRunner:
    """Runs one task of a slice until its stop offsets are committed.

    :param setup: which task of which slice, and what its attempts are made from.
    :param work: its share of that slice.
    """

    def __init__(self, setup: TaskSetup, work: SliceWork) -> None:
        self._setup = setup
        self._settings = setup.settings
        self._clock = setup.clock
        self._work = work
        self._attempts = RetryBudget()

    def run(self) -> TaskReport:
        """Run attempts until the task is done.

        :raises RecordError: a record could not be decoded, processed, encoded or delivered.
        :raises TaskFencedError: another attempt owns the task and makes no progress either.
        :raises KStreamsError: any other error that attempts could not overcome.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(resumable),
            stop=lambda _: self._attempts.fruitless >= self._settings.task_max_attempts,
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=5),
            sleep=self._clock.sleep,
            before_sleep=tenacity.before_sleep_log(log, logging.WARNING),
            reraise=True,
        )
        try:
            report = retrying(self._attempt)
        except TaskFencedError as error:
            report = self._done_by_another(error)
        log.info("%s", task_line(report))
        return report

    def _attempt(self) -> TaskReport:
        while True:
            try:
                with TaskAttempt(self._setup, self._work, self._attempts) as attempt:
                    return attempt.run()
            except RecordError as error:
                if not self._attempts.leaves_out(error, self._settings):
                    raise
                log.warning("%s; it is left out, and the task resumes", error.cause)

    def _done_by_another(self, fenced: TaskFencedError) -> TaskReport:
        """Watch the attempt that fenced this one; success is reported only when the stop offsets are
        committed.
        """
        patience = 2 * self._settings.transaction_timeout_ms / 1000
        progressed = self._clock.monotonic_seconds()
        seen: object = None
        while self._clock.monotonic_seconds() - progressed < patience:
            slice_, share = self._share()
            if share.processed:
                return already_done(committed_progress(slice_, share), self._setup.assignment.task_id)
            if share.committed != seen:
                seen, progressed = share.committed, self._clock.monotonic_seconds()
            self._clock.sleep(_FENCED_POLL_SECONDS)
        raise fenced

    def _share(self) -> tuple[Slice, TaskSlice]:
        cluster, group_id = self._setup.cluster, self._settings.application_id
        with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=group_id)) as reader:
            return self._work.share(self._setup, reader, admin)
