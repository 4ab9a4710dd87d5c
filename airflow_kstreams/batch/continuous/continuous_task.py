"""Runs a task of a continuous run: attempts one after another, in steps, under the rules of the task runner.

The protocol is that of :mod:`airflow_kstreams.batch.task.runner`, with the ledger in place of the metadata
topic in step 2, and no end in step 5. A step that fails in a way that starting over may help drops the
attempt; the next one begins a moment later, while the thread goes on with its other tasks. A task that was
fenced gives up at once: either another attempt of it is alive, or the broker timed it out, and Spark starts
it anew.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TypeVar

import msgspec

from airflow_kstreams.batch.continuous.continuous_work import ContinuousWork
from airflow_kstreams.batch.metrics.figures import task_line
from airflow_kstreams.batch.protocol.offsets.task_report import TaskReport
from airflow_kstreams.batch.retry_budget import RetryBudget, resumable
from airflow_kstreams.batch.task.attempt import OpenTask, TaskAttempt
from airflow_kstreams.batch.task.work import TaskSetup
from airflow_kstreams.streams.errors import KStreamsError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Between a failed attempt and the next: grows with every fruitless one, up to a limit, with jitter.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0


class ContinuousTask:
    """One task of a continuous run.

    :param setup: which task of which continuous run, and what its attempts are made from.
    """

    def __init__(self, setup: TaskSetup) -> None:
        self._setup = setup
        self._task_id = setup.assignment.task_id
        self._clock = setup.clock
        self._work = ContinuousWork()
        self._attempts = RetryBudget()
        self._attempt: TaskAttempt | None = None
        self._open: OpenTask | None = None
        self._resume_at = setup.clock.monotonic_seconds()

    @property
    def is_open(self) -> bool:
        """Whether it is ready to process; else the next step opens it, which may take long."""
        return self._open is not None

    @property
    def waits(self) -> bool:
        """Whether it is too early for the next attempt."""
        return self._open is None and self._clock.monotonic_seconds() < self._resume_at

    def step(self, wait_seconds: float) -> bool:
        """Open the task if it is not, else let it fetch and process for one turn.

        :param wait_seconds: for records, if there are none yet.
        :return: whether anything was done.
        :raises KStreamsError: what attempts could not overcome.
        """
        if self.waits:
            self._clock.sleep(wait_seconds)
            return False
        opened = self._open
        if opened is None:
            return self._guarded(self._begin) is not None
        return bool(self._guarded(lambda: opened.loop.step(wait_seconds)))

    def commit(self) -> None:
        """Commit what was processed, if the task is open and there is anything.

        :raises KStreamsError: what attempts could not overcome.
        """
        opened = self._open
        if opened is not None:
            self._guarded(opened.loop.commit)

    def stop(self) -> TaskReport:
        """Close the processors, make the last commit, and keep the local state for the next run.

        :raises KStreamsError: it failed; everything uncommitted is void.
        """
        opened, report = self._open, None
        if opened is not None:
            report = self._guarded(opened.finish, again=False)
        self.close()
        if report is None:  # between two attempts: there is nothing to commit
            report = TaskReport(task_id=str(self._task_id), attempts=self._attempts.number)
        report = msgspec.structs.replace(report, outcome="stopped")
        log.info("%s", task_line(report))
        return report

    def close(self) -> None:
        """Close the attempt; what is not committed is void."""
        self._drop(None)

    def _begin(self) -> OpenTask:
        self._attempt = attempt = TaskAttempt(self._setup, self._work, self._attempts)
        opened = attempt.open()
        if isinstance(opened, TaskReport):
            raise TypeError("a task without stop offsets is never done before it has begun")
        opened.loop.start(opened.share.bounds)
        self._open = opened
        log.info("task %s is ready", self._task_id)
        return opened

    def _guarded(self, step: Callable[[], T], *, again: bool = True) -> T | None:
        """Take a step; when it fails, drop the attempt.

        :param again: whether another attempt may follow.
        :return: None if it failed and another attempt follows.
        """
        try:
            return step()
        except BaseException as error:
            self._drop(error)
            if again and self._attempts.leaves_out(error, self._setup.settings):
                log.warning("task %s resumes without a result: %s", self._task_id, _first_line(error))
                return None
            exhausted = self._attempts.fruitless >= self._setup.settings.task_max_attempts
            if not again or exhausted or not resumable(error):
                raise
            pause = min(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS * 2**self._attempts.fruitless)
            pause *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
            self._resume_at = self._clock.monotonic_seconds() + pause
            log.warning("task %s starts over in %.1f s: %s", self._task_id, pause, _first_line(error))
            return None

    def _drop(self, error: BaseException | None) -> None:
        """End the attempt, if there is one.

        :param error: why; None if nothing went wrong.
        """
        attempt, self._attempt, self._open = self._attempt, None, None
        if attempt is not None:
            kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
            attempt.__exit__(kind, error, traceback)


def _first_line(error: BaseException) -> str:
    return error.cause if isinstance(error, KStreamsError) else type(error).__name__
