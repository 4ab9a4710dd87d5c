"""Turns a failed Spark job into an error: one that an executor reported, or Spark's own text in one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflow_kstreams.streams.errors import (
    ExecutorSetupError,
    KStreamsError,
    ReportedError,
    RunError,
    SparkSessionError,
    reported_in,
)

#: Spark's words for a worker that ends before it hosts a task -> what to do. What they match is the cause.
_SETUPS = {
    r"Cannot run program .*?: error=(?:2|13), [\w ]+": (
        "name a Python that executors have, by PYSPARK_PYTHON in the driver's environment or by "
        "spark.pyspark.python (conf= of the operators)"
    ),
    r"\[PYTHON_VERSION_MISMATCH\][^\n]*": (
        "name a Python of the driver's version, by PYSPARK_PYTHON in the driver's environment or by "
        "spark.pyspark.python (conf= of the operators)"
    ),
    r"ModuleNotFoundError: No module named '[\w.]+'": (
        "install it in the executors' Python: what Spark itself needs there (pyarrow) is not in the archive "
        "of `airflow-kstreams pack`"
    ),
}


#: Spark's words for a worker process that ended while it hosted tasks, without a word of its own.
_WORKER_ENDED = "Python worker exited unexpectedly"
#: The Spark task of a job that failed, and its number of failures.
_FAILED = re.compile(r"Task ([0-9]+) in stage [0-9.]+ failed ([0-9]+) times")
#: py4j's own words before those of what failed.
_BEFORE = re.compile(r"An error occurred while calling \S+\.?\s*:?\s*")


def failure_of(error: Exception, run_id: str, hosted: Sequence[Sequence[str]] = ()) -> KStreamsError:
    """Return the error of this package for an error of Spark or py4j.

    :param error: error of a Spark job.
    :param run_id: the job's run.
    :param hosted: ids of the tasks that each Spark task of the job hosted.
    """
    text = str(error)
    return (
        error_in(text)
        or _setup_error(text)
        or _ended_worker(text, run_id, hosted)
        or _spark_failure(error, run_id)
    )


def error_in(text: str) -> ReportedError | None:
    """Return the last error that an executor reported in a Spark failure's text."""
    found = (reported_in(line) for line in reversed(text.splitlines()))
    return next((error for error in found if error is not None), None)


def first_line(error: Exception) -> str:
    """Return the first line with a text."""
    lines = (line.strip() for line in _BEFORE.sub("", str(error), count=1).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:500]


def _setup_error(text: str) -> ExecutorSetupError | None:
    for words, fix in _SETUPS.items():
        if match := re.search(words, text):
            return ExecutorSetupError(f"Spark's executors cannot run Python tasks: {match[0]}", fix=fix)
    return None


def _ended_worker(text: str, run_id: str, hosted: Sequence[Sequence[str]]) -> RunError | None:
    failed = _FAILED.search(text)
    if _WORKER_ENDED not in text or failed is None or int(failed[1]) >= len(hosted):
        return None
    tasks, times = hosted[int(failed[1])], int(failed[2])
    return RunError(
        f"the Python process that ran {'task' if len(tasks) == 1 else 'tasks'} {', '.join(tasks)} of run "
        f"{run_id!r} ended {'once' if times == 1 else f'{times} times'} without an error: something in it "
        "exited, crashed, or was killed",
        fix="look in the functions of that subtopology for what ends its process (os._exit, native code), "
        "and at the memory of the executors, then retry the run: its slice is kept",
        run_id=run_id,
    )


def _spark_failure(error: Exception, run_id: str) -> KStreamsError:
    if _connection_lost(error):
        return SparkSessionError(
            f"a Spark job of run {run_id!r} lost Spark's JVM: {type(error).__name__}: {first_line(error)}",
            fix="look for what ended the JVM (often the machine's memory), then retry the run: its slice is "
            "kept",
        )
    return RunError(
        f"a Spark job of run {run_id!r} failed: {first_line(error)}",
        fix="read the driver's log for the executor that failed, then retry the run: its slice is kept",
        run_id=run_id,
    )


def _connection_lost(error: Exception) -> bool:
    """Say whether a call did not reach Spark's JVM, or its answer was lost."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, OSError | EOFError | Py4JNetworkError)
