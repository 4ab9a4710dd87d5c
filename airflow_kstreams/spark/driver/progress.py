"""Says how far the running tasks of a run are: a line every ten seconds.

It is read from the offsets that the tasks have committed, wherever they run, so it moves by commits
(``commit.interval.ms``). An offset counts for a record; markers of transactions are among them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, spans_of
from airflow_kstreams.spark.driver.task_reports import Launch
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.ports import Clock, ReaderPort
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

_INTERVAL_SECONDS = 10.0
_PATIENCE_SECONDS = 2.0
#: Number of looks over which the rate is taken: it follows a change within a minute.
_LOOKS = 7


class RunProgress:
    """The progress of the tasks that a driver has launched and that have not ended.

    :param slice_: the slice of the tasks.
    :param reading: opens a reader of the application's group that does not wait for open transactions.
    """

    def __init__(self, slice_: Slice, reading: Callable[[], ReaderPort], *, clock: Clock) -> None:
        self._slice = slice_
        self._reading = reading
        self._clock = clock
        self._lock = threading.Lock()
        self._running: set[TaskShare] = set()
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS)
        self._ended = threading.Event()

    def listening(self, launch: Launch) -> Launch:
        """Return a launch whose tasks are looked at while they run."""

        def launched(tasks: Sequence[TaskShare]) -> list[TaskReport]:
            self._change(began=tasks)
            try:
                return launch(tasks)
            finally:
                self._change(ended=tasks)

        return launched

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Log a line every ten seconds of the block in which tasks run."""
        thread = threading.Thread(target=self._tell, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(_PATIENCE_SECONDS)  # a broker that does not answer must not delay the end

    def line(self, reader: ReaderPort) -> str:
        """Look once, and return the line; empty if no task runs."""
        with self._lock:
            tasks, looks = [*self._running], self._looks
        spans = {tp: span for task in tasks for tp, span in spans_of(self._slice, task).items()}
        total = sum(stop - start for start, stop in spans.values())
        if not total:
            return ""
        committed = reader.committed(spans)
        done = 0
        for tp, (start, stop) in spans.items():
            if tp in committed:
                done += min(max(committed[tp].offset, start), stop) - start
        looks.append((self._clock.monotonic_seconds(), done))
        numbers = sorted({task.subtopology for task in tasks})
        what = f"subtopolog{'y' if len(numbers) == 1 else 'ies'} {', '.join(map(str, numbers))}"
        return f"{what}: {done:,} of {counted(total, 'record')}{_speed(looks, total - done)}"

    def _change(self, *, began: Sequence[TaskShare] = (), ended: Sequence[TaskShare] = ()) -> None:
        with self._lock:  # subtopologies are launched side by side
            self._running = self._running.union(began).difference(ended)
            self._looks = deque(maxlen=_LOOKS)

    def _tell(self) -> None:
        while not self._ended.wait(_INTERVAL_SECONDS):
            try:
                with closing(self._reading()) as reader:
                    line = self.line(reader)
            except KStreamsError as error:  # the tasks' own errors say it where it matters
                log.debug("no progress could be read: %s", error.cause)
                continue
            if line and not self._ended.is_set():
                log.info("%s", line)


def _speed(looks: Sequence[tuple[float, int]], left: int) -> str:
    """Return rate and time left; nothing as long as no rate is known."""
    (before, first), (now, last) = looks[0], looks[-1]
    if last <= first or now <= before:
        return ""
    rate = (last - first) / (now - before)
    return f", {rate:,.0f}/s" + (f", {duration_text(1000 * left / rate)} left" if left else "")
