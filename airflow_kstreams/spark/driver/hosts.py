"""Runs shipped hosts as jobs of one Spark session, and turns a failed job into an error: the one that an
executor reported, or Spark's own text in one line.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from airflow_kstreams.spark.driver.package_archive import shipped
from airflow_kstreams.spark.driver.spark_session import cancel_jobs, open_session, shipped_settings
from airflow_kstreams.spark.executor.machine_files import ClientSettings
from airflow_kstreams.spark.executor.report_rows import REPORT_SCHEMA, HostReport
from airflow_kstreams.streams.errors import (
    ExecutorSetupError,
    KStreamsError,
    ReportedError,
    RunError,
    SparkSessionError,
    reported_in,
)
from airflow_kstreams.streams.plan import decode_json
from airflow_kstreams.streams.printable import package_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_kstreams.spark.executor.copy_host import CopyHost
    from airflow_kstreams.spark.executor.merge_host import MergeHost
    from airflow_kstreams.spark.executor.rewrite_host import RewriteHost
    from airflow_kstreams.spark.executor.task_host import TaskHost

log = package_log(__name__)
#: Spark's words for a worker that ends before it hosts a task -> what to do. What they match is the cause.
_SETUPS = {
    re.compile(r'Cannot run program "[^"]*"(?: \(in directory "[^"]*"\))?: error=(?:2|13), [\w ]+'): (
        "name a Python that executors have, by PYSPARK_PYTHON in the driver's environment or by "
        "spark.pyspark.python (conf= of the operators)"
    ),
    re.compile(r"\[PYTHON_VERSION_MISMATCH\][^\n]*"): (
        "name a Python of the driver's version, by PYSPARK_PYTHON in the driver's environment or by "
        "spark.pyspark.python (conf= of the operators)"
    ),
    re.compile(r"ModuleNotFoundError: No module named '[\w.]++'"): (
        "install it in the executors' Python: what Spark itself needs there (pyarrow) is not in the archive "
        "of `airflow-kstreams pack`"
    ),
}
#: Spark's words for a worker process that ended while it hosted tasks, without a word of its own.
_WORKER_ENDED = "Python worker exited unexpectedly"
#: The Spark task of a job that failed, and its number of failures.
_FAILED = re.compile(r"Task ([0-9]{1,9}) in stage [0-9.]++ failed ([0-9]{1,9}) times")
#: py4j's own words before those of what failed.
_BEFORE = re.compile(r"An error occurred while calling \S+\.?\s*:?\s*")
#: How often the jobs of a session that is being cancelled are cancelled once more, seconds: Spark cancels the
#: jobs that have begun, and knows nothing of one that is on its way to it.
_CANCEL_AGAIN_SECONDS = 0.2


class SparkHosts:
    """Runs hosts on a Spark session, which is opened on first use; several threads may run jobs side by side.

    :param name: name of the session, shown in Spark's UI.
    :param client_config_path: the driver's file of client settings.
    :param master: as for :func:`~airflow_kstreams.spark.driver.spark_session.open_session`.
    :param session: an open session to use.
    """

    def __init__(
        self,
        name: str,
        *,
        client_config_path: str,
        master: str | None = None,
        session: SparkSession | None = None,
    ) -> None:
        self._name = name
        #: Where hosts read the client settings, once the session is open.
        self.client = ClientSettings(path=client_config_path)
        self._shipped = ExitStack()
        self._master = master
        self._opened = session
        self._changed = threading.Condition()
        self._launched = 0
        self._cancelled = False

    @property
    def session(self) -> SparkSession:
        """The session, once it is open."""
        if self._opened is None:
            raise RuntimeError("start the executors first")
        return self._opened

    def start(self) -> None:
        """Open the session.

        :raises ConfigError: Spark is configured in a way that breaks the task protocol.
        :raises SparkSessionError: Spark did not start.
        """
        if self._opened is None:
            self._opened = started(self._name, self._master)
            log.info("Spark session ready")
            self.client = self._shipped.enter_context(shipped_settings(self._opened, self.client.path))

    def run(self, host: TaskHost | CopyHost | MergeHost | RewriteHost, *, run_id: str) -> list[HostReport]:
        """Run a host as one Spark job.

        :param run_id: the job's run, for messages.
        :raises SparkSessionError: the session's JVM is gone, or its jobs were cancelled.
        :raises KStreamsError: the host's error.
        """
        with self._launching(run_id):
            try:
                partitions = len(host.names)
                frame = self.session.range(0, partitions, 1, partitions)
                rows = frame.mapInArrow(shipped(host), REPORT_SCHEMA).collect()
            except Exception as error:  # any error of Spark or py4j
                raise failure_of(error, run_id, host.names) from error
        outcomes = [decode_json(row.report, HostReport) for row in rows]
        for outcome in outcomes:
            if outcome.error is not None:
                raise ReportedError.from_dict(outcome.error)
        return outcomes

    def cancel(self) -> None:
        """Cancel the session's jobs, also those that have not reached Spark yet; return when none runs."""
        with self._changed:
            self._cancelled = True
            while self._launched and self._opened is not None:
                cancel_jobs(self._opened)
                self._changed.wait(_CANCEL_AGAIN_SECONDS)

    def close(self) -> None:
        """Stop the session; an error is only logged, so that it does not hide why the run ended."""
        if self._opened is not None:
            try:
                self._opened.stop()
            except Exception as error:  # py4j raises any error of a lost connection to the JVM
                log.warning("the Spark session could not be stopped: %s", type(error).__name__)
        self._shipped.close()

    @contextmanager
    def _launching(self, run_id: str) -> Iterator[None]:
        with self._changed:
            if self._cancelled:
                raise SparkSessionError(
                    f"the Spark jobs of run {run_id!r} were cancelled before this one began",
                    fix="look for the failure that cancelled them, then retry the run",
                )
            self._launched += 1
        try:
            yield
        finally:
            with self._changed:
                self._launched -= 1
                self._changed.notify_all()


def started(name: str, master: str | None = None) -> SparkSession:
    """Open a session, see :func:`~airflow_kstreams.spark.driver.spark_session.open_session`.

    :raises ConfigError: Spark is configured in a way that breaks the task protocol.
    :raises SparkSessionError: Spark did not start.
    """
    try:
        return open_session(name, master)
    except KStreamsError:
        raise
    except Exception as error:  # any error of Spark, its launcher or py4j
        raise SparkSessionError(
            f"Spark did not start for {name!r}: {first_line(error)}",
            fix="read Spark's own message in the driver's log, mend its settings, then retry the run",
        ) from error


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
        if match := words.search(text):
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
    """Return whether a call did not reach Spark's JVM, or its answer was lost."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, OSError | EOFError | Py4JNetworkError)
