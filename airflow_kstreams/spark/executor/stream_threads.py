"""Runs the tasks of one Spark slot in continuous mode on some threads; one more watches the driver's lease.

The Spark task ends when the lease holds a stop, and returns the report of each of its tasks. It fails as soon
as one of them fails: the others commit and end, and all start anew.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from airflow_kstreams.batch.continuous.continuous_task import ContinuousTask
from airflow_kstreams.batch.continuous.lease_watch import LeaseWatch
from airflow_kstreams.batch.continuous.task_thread import TaskThread
from airflow_kstreams.batch.protocol.offsets.task_report import TaskReport

_LOOK_SECONDS = 0.5


def run_until_stopped(
    tasks: Sequence[ContinuousTask], watch: LeaseWatch, *, run_id: str, most_threads: int
) -> list[TaskReport]:
    """Run tasks until the lease holds a stop.

    :param watch: the watch of the lease, which :func:`watching` updates.
    :param run_id: id of the continuous run.
    :param most_threads: largest number of threads that share the tasks.
    :raises RunSupersededError: the lease is lost.
    :raises KStreamsError: a task failed for good.
    """
    count = min(most_threads, len(tasks))
    failed = threading.Event()
    threads = [
        TaskThread(tasks[index::count], verdict=lambda: watch.verdict, run_id=run_id)
        for index in range(count)
    ]
    with ThreadPoolExecutor(max_workers=count, thread_name_prefix="stream-thread") as pool:
        futures = [pool.submit(_run, thread, failed) for thread in threads]
    return [report for future in futures for report in future.result()]


@contextmanager
def watching(watch: LeaseWatch) -> Iterator[None]:
    """Look at the lease in a thread of its own, so that slow functions of a topology do not delay a stop."""
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            watch.look(timeout_seconds=_LOOK_SECONDS)

    with ExitStack() as stack:
        stack.callback(watch.close)
        thread = threading.Thread(target=look, name="lease-watch", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        yield


def _run(thread: TaskThread, failed: threading.Event) -> list[TaskReport]:
    try:
        return thread.run(failed.is_set)
    except BaseException:
        failed.set()
        raise
    finally:
        thread.close()
