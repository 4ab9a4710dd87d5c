"""Keeps the attempt that a coordinator makes, until it is written with what the coordinator writes anyway.

:mod:`airflow_kstreams.batch.ledger.history` says what is kept, and when. Here nothing is written: the begin,
the release of the lease and the finish ask for the histories to write, and their transactions carry them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from airflow_kstreams.batch.ledger.history import (
    Attempt,
    Failure,
    Histories,
    How,
    Part,
    RunHistory,
    how_ended,
    short_name,
)
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.metrics import slowest_first
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport, by_subtopology, subtopology_of
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord, reported_key, tombstone
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.step_times import StepName, StepTimes, TimedTask, steps_of_tasks
from airflow_kstreams.streams.ports import Clock
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)
#: Number of tasks whose steps are kept one by one.
_SLOWEST = 5
_NS_PER_MS = 1_000_000


class StepLog:
    """The steps of an attempt so far; several threads may add to it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: list[StepTimes] = []

    @property
    def steps(self) -> tuple[StepTimes, ...]:
        """The steps that have ended, in the order of their ends."""
        return tuple(self._steps)

    def now_ms(self) -> int:
        """Return the time, epoch milliseconds."""
        return self._clock.now_ms()

    def add(self, name: StepName, begun_ms: int, *, subtopology: int = -1) -> None:
        """Add a step that ends now."""
        self._steps.append(StepTimes(name, begun_ms, self.now_ms(), subtopology))

    @contextmanager
    def step(self, name: StepName, *, subtopology: int = -1) -> Iterator[None]:
        """Add the block as a step, however it ends."""
        begun_ms = self.now_ms()
        try:
            yield
        finally:
            self.add(name, begun_ms, subtopology=subtopology)

    def clear(self) -> None:
        """Forget the steps."""
        self._steps = []


class CoordinatorAttempt:
    """The attempt that a coordinator makes; it makes none where it finds nothing to do.

    :ivar steps: its steps.
    :ivar reports: returns the last reports of the tasks that its driver has run.

    :param application_id: id of the application, for messages.
    :param most_runs: number of runs that have not finished and are kept.
    """

    def __init__(self, application_id: str, clock: Clock, *, most_runs: int) -> None:
        self._application_id = application_id
        self._clock = clock
        self._most_runs = most_runs
        self.steps = StepLog(clock)
        self.reports: Callable[[], Iterable[TaskReport]] = tuple
        self._histories = Histories()
        self._took_reported = False
        self._run_id = self._dag_id = ""
        self._captured_by: str | None = None
        self._attempt: Attempt | None = None
        self._open = False
        self._end: tuple[How, Failure | None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether its begin is written, and its end is not."""
        return self._open

    @property
    def known(self) -> bool:
        """Whether the attempts before this one are known, so that its end can be written."""
        return self._attempt is not None and bool(self._run_id)

    def start(self, run_id: str, *, part: Part, owner: str, order: tuple[int, int], dag_id: str = "") -> None:
        """Start an attempt that a caller makes; one that is open goes on.

        :param run_id: the run that it is started for.
        :param dag_id: the DAG that starts the run; empty if none.
        """
        self._end = None
        if self._open:
            return
        self.steps.clear()
        self.reports = tuple
        self._run_id, self._dag_id, self._histories, self._took_reported = "", dag_id, Histories(), False
        self._attempt = Attempt(
            part=part,
            owner=short_name(owner),
            order=order,
            begun_ms=self._clock.now_ms(),
            for_run=run_id,
        )

    def look(self, ledger: Ledger, *, free: bool = True) -> None:
        """Take note of the attempts that the ledger has.

        :param ledger: the ledger, read under the claim.
        :param free: whether no former owner of the lease can be at work.
        """
        found = ledger.histories()
        if found.unreadable and not self._open:
            log.warning(
                "application %s: the history of earlier attempts cannot be read and begins anew; nothing "
                "that a run needs stands in it",
                self._application_id,
            )
        if self._open:
            if not found.unreadable:
                self._histories = found
            return
        how = How.LOST if free else How.TAKEN_OVER
        seen_ms = ledger.lease_written_ms if ledger.held_lease is not None else 0
        self._histories = msgspec.structs.replace(
            found, runs=tuple(run.noted(how, seen_ms) for run in found.runs)
        )

    def take_reported(self, reported: Histories, *, finished: Callable[[str], bool]) -> None:
        """Take note of the failures that Airflow tasks have reported.

        :param finished: returns whether a run is finished.
        """
        self._took_reported = reported != Histories()
        self._histories = self._histories.with_reported(reported, finished=finished)

    def forgetting_reported(self) -> list[MetadataRecord]:
        """Return the record that deletes the reported failures, for the transaction whose histories have
        them; none if there are none.
        """
        if not self._took_reported:
            return []
        return [tombstone(self._application_id, reported_key(self._application_id))]

    def works_on(self, run_id: str, *, captured_by: str | None = None) -> None:
        """Take note of the run that the attempt works on, which may be an earlier one than the caller's.

        :param captured_by: who froze its slice, if no driver has worked on that.
        """
        if self._attempt is None or self._open:
            return
        self._captured_by = captured_by
        of_caller = self._attempt.for_run or self._run_id
        self._run_id = run_id
        for_run = "" if of_caller == run_id else of_caller
        self._attempt = msgspec.structs.replace(self._attempt, for_run=for_run)

    def begun(self, slice_: Slice) -> Histories | None:
        """Return the histories to write with the begin of an attempt; None if no attempt begins here.

        :param slice_: the slice that it works on, or the continuous run in that form, as of its begin.
        """
        if self._attempt is None or self._open:
            return None
        run = self._of(slice_.run_id, slice_.plan.dag_id)
        steps: tuple[StepTimes, ...] = ()
        if self._captured_by is not None:
            captured = _captured(slice_, self._captured_by, self._attempt.order[0])
            # Failures that tasks have reported may have come since.
            before = [each for each in run.attempts if each.begun_ms < captured.begun_ms]
            attempts = (*before, captured, *run.attempts[len(before) :])
            run = msgspec.structs.replace(run, attempts=attempts)
        elif slice_.generation == 1 or self._attempt.part == "continuous":
            steps = slice_.plan.begin_steps
        self._attempt = msgspec.structs.replace(self._attempt, generation=slice_.generation, steps=steps)
        self._histories = self._with(run.with_attempt(self._attempt))
        return self._histories

    def opened(self) -> None:
        """Take note that the begin is written."""
        self._open = True

    def ended(self, error: BaseException | None, *, otherwise: How = How.DONE) -> None:
        """Take note of its end, unless that is known.

        :param error: the error that ended it; None without one.
        :param otherwise: the end to note where there was no error.
        """
        if self._end is None:
            failure = None if error is None else Failure.of(error)
            self._end = how_ended(error, otherwise=otherwise), failure

    @contextmanager
    def ending(self, *, otherwise: How = How.DONE) -> Iterator[None]:
        """Take note of how the block ends.

        :param otherwise: how the attempt ends if the block ends without an error.
        """
        try:
            yield
        except BaseException as error:
            self.ended(error)
            raise
        self.ended(None, otherwise=otherwise)

    def closing(self) -> Histories | None:
        """Return the histories to write with the end of the attempt; None if there is nothing to write."""
        if not self.known or self._attempt is None:
            return None
        how, failure = self._end or (How.DONE, None)
        attempt = self._attempt.ended(
            how, self._clock.now_ms(), failure=failure, steps=self._all_steps(failed=how is How.FAILED)
        )
        run = self._of(self._run_id, "" if self._attempt.for_run else self._dag_id)
        return self._with(run.without(attempt).with_attempt(attempt))

    def finished(self, slice_: Slice, *, captured_by: str) -> tuple[RunHistory, Histories | None]:
        """Return the history of the run, which this attempt finishes, and the histories to write in the place
        of those that the ledger has; None if these stay.

        :param captured_by: who froze the slice, or drove it last.
        """
        run = self._of(slice_.run_id, slice_.plan.dag_id)
        if not run.attempts and not self._open:
            order = (0, 0) if self._attempt is None else self._attempt.order
            run = run.with_attempt(_captured(slice_, captured_by, order[0]))
        if self._attempt is not None:
            attempt = self._attempt.ended(
                How.FINISHED, self._clock.now_ms(), steps=self._all_steps(failed=False)
            )
            if not self._open:
                attempt = msgspec.structs.replace(attempt, for_run="", generation=slice_.generation)
            run = run.without(attempt).with_attempt(attempt)
        changed = self._took_reported or self._histories.of(slice_.run_id) is not None
        return run.bounded(), self._histories.without(slice_.run_id) if changed else None

    def close(self) -> None:
        """Take note that its end is written."""
        self._attempt, self._run_id, self._open, self._end = None, "", False, None
        self.steps.clear()

    def _of(self, run_id: str, dag_id: str) -> RunHistory:
        return self._histories.of(run_id) or RunHistory(run_id=run_id, dag_id=short_name(dag_id))

    def _with(self, run: RunHistory) -> Histories:
        return self._histories.with_run(run, most_runs=self._most_runs)

    def _all_steps(self, *, failed: bool) -> list[StepTimes]:
        """Return the steps of the run, of its subtopologies and of its slowest tasks."""
        reports = [report for report in self.reports() if report.times is not None]
        timed = by_subtopology(reports)
        # The tasks' own times are more than those that the driver has seen from outside.
        steps = [
            step
            for step in self.steps.steps
            if step.name != "process" or failed or step.subtopology not in timed
        ]
        for of_subtopology in timed.values():
            steps += steps_of_tasks(map(_timed, of_subtopology))
        # The one task of a subtopology has the times of its subtopology.
        several = (report for group in timed.values() if len(group) > 1 for report in group)
        for report in slowest_first(several)[:_SLOWEST]:
            steps += steps_of_tasks([_timed(report)])
        return steps


def _timed(report: TaskReport) -> TimedTask:
    if report.times is None:
        raise ValueError("a task without times")
    spent = -1 if report.metrics is None else report.metrics.commit.total_ns // _NS_PER_MS
    return TimedTask(report.task_id, subtopology_of(report.task_id), report.times, spent)


def _captured(slice_: Slice, owner: str, clear_number: int) -> Attempt:
    """Return the attempt that froze a slice, as the slice says."""
    plan = slice_.plan
    steps = plan.begin_steps
    begun_ms = min((step.begun_ms for step in steps), default=plan.begun_ms)
    ended_ms = max((step.ended_ms for step in steps), default=plan.begun_ms)
    capture = Attempt(part="capture", owner=short_name(owner), order=(clear_number, 0), begun_ms=begun_ms)
    return capture.ended(How.DONE, ended_ms, steps=steps)
