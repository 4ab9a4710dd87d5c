"""Keeps the Spark jobs of a continuous run running, one per slot, until SIGTERM or SIGINT asks for a stop.

Every task has its slot from the beginning, tasks of one subtopology are spread over the
slots, and nothing moves while the run lasts. A job whose tasks failed is launched again, alone, a bounded
number of times in a row; when that does not help, the others are stopped cleanly and the run fails with the
error.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.spark.driver.executors import MAX_LAUNCHES, pause_seconds, worth_another_launch
from airflow_kstreams.streams.errors import KStreamsError, RunSupersededError
from airflow_kstreams.streams.ports import Clock
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.runtime.stream_task import TaskId

log = package_log(__name__)


#: A job that ran for so long before it failed was well: its failure is the first one again.
_WELL_SECONDS = 600.0
_LOOK_SECONDS = 0.2


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Sets an event at the first signal; the second one ends the process at once.

    A context manager that restores the signals' handlers at its end. Outside the main thread, where Python
    handles no signals, it does nothing.

    :ivar requested: set by the first signal.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def install(self) -> None:
        """Set the signals' handlers, again if the start of a Spark context has replaced them."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested.is_set():
            sys.exit(1)
        self.requested.set()
        log.info("the run stops: the driver was sent %s", signal.Signals(number).name)


@dataclass(slots=True, kw_only=True)
class ContinuousJobs:
    """The jobs of one continuous run.

    :param hosts: the tasks of each slot.
    :param launch: runs the tasks of one slot until they stop.
    :param cancel: cancels running jobs.
    :param check: raises when this driver was superseded; called before every launch but the first.
    :param stop: set when the run is to end.
    :param announce: asks the tasks to stop, through Kafka.
    :param patience_seconds: time after which tasks that go on are cancelled.
    :param periodically: called at intervals while the run lasts; must not raise.
    """

    hosts: Sequence[Sequence[TaskId]]
    launch: Callable[[Sequence[TaskId]], list[TaskReport]]
    cancel: Callable[[], None]
    check: Callable[[], None]
    stop: threading.Event
    announce: Callable[[], None]
    patience_seconds: float
    periodically: Callable[[], None]
    clock: Clock
    _announced_at: float | None = field(default=None, init=False)
    _said: frozenset[str] = field(default=frozenset(), init=False)
    _saying: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(self) -> list[TaskReport]:
        """Run all tasks until a stop is requested.

        :return: the report of each task since its last launch.
        :raises KStreamsError: a task failed for good, or did not stop in time.
        """
        reports: list[TaskReport] = []
        failure: KStreamsError | None = None
        with ThreadPoolExecutor(max_workers=len(self.hosts), thread_name_prefix="slot") as pool:
            running = {pool.submit(self._keep, tasks) for tasks in self.hosts}
            try:
                while running:
                    done, running = wait(running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
                    for future in done:
                        try:
                            reports.extend(future.result())
                        except KStreamsError as error:
                            failure = failure or error
                    # Tasks end only on request or by an error: in either case the others end, too.
                    if done or self.stop.is_set():
                        self.stop.set()
                        self._end()
                    else:
                        self.periodically()
            except BaseException:
                self.stop.set()
                self.cancel()
                raise
        if failure is not None:
            raise failure
        return reports

    def _keep(self, tasks: Sequence[TaskId]) -> list[TaskReport]:
        """Keep the tasks of one slot running."""
        failures = 0
        while True:
            launched = self.clock.monotonic_seconds()
            try:
                if failures:
                    self.check()
                return self.launch(tasks)
            except KStreamsError as error:
                if self.stop.is_set() or not worth_another_launch(error):
                    raise
                well = self.clock.monotonic_seconds() - launched >= _WELL_SECONDS
                failures = 1 if well else failures + 1
                if failures >= MAX_LAUNCHES:
                    raise
                self._say_again(tasks, error)
            if self.stop.wait(pause_seconds(failures)):
                return []

    def _say_again(self, tasks: Sequence[TaskId], error: KStreamsError) -> None:
        """Log that tasks are launched again; a cause stands whole in the log when it is the first of its."""
        names = ", ".join(map(str, tasks))
        with self._saying:
            if error.cause in self._said:
                log.warning("launching tasks %s again after the same %s", names, error.type_name)
            else:
                log.warning("launching tasks %s again: %s", names, error.cause)
                self._said |= {error.cause}

    def _end(self) -> None:
        """Ask the tasks to stop, once; cancel them if that takes too long."""
        now = self.clock.monotonic_seconds()
        if self._announced_at is None:
            self._announced_at = now
            try:
                self.announce()
            except RunSupersededError:
                self.cancel()
                raise
            except KStreamsError as error:
                log.warning("the stop is announced with the next renewal of the lease: %s", error.cause)
        elif now - self._announced_at > self.patience_seconds:
            self._announced_at = now
            log.warning("tasks did not stop in %.0f s and are cancelled", self.patience_seconds)
            self.cancel()


def tasks_of(run: ContinuousRun) -> list[TaskId]:
    """Return all tasks, those of one subtopology side by side."""
    return [
        TaskId(subtopology=sub.id, group=group)
        for sub in run.plan.topology.subtopologies
        for group in range(run.plan.tasks[str(sub.id)])
    ]
