"""Runs shipped hosts as jobs of one Spark session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_kstreams.spark.driver.failures import failure_of, first_line
from airflow_kstreams.spark.driver.shipped import shipped
from airflow_kstreams.spark.driver.spark_session import cancel_jobs, open_session, ship_file
from airflow_kstreams.spark.executor.report_rows import REPORT_SCHEMA, HostReport
from airflow_kstreams.streams.decoders import decode_json
from airflow_kstreams.streams.errors import KStreamsError, ReportedError, SparkSessionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_kstreams.spark.executor.copy_host import CopyHost
    from airflow_kstreams.spark.executor.task_host import TaskHost

log = logging.getLogger(__name__)

#: How often the jobs of a session that is being cancelled are cancelled once more, seconds: Spark cancels the
#: jobs that have begun, and knows nothing of one that is on its way to it.
_CANCEL_AGAIN_SECONDS = 0.2


class SparkHosts:
    """Runs hosts on a Spark session, which is opened on first use; several threads may run jobs side by side.

    :param name: name of the session, shown in Spark's UI.
    :param client_config_path: file of the Kafka client's configuration; executors read it, too.
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
        self._client_config_path = client_config_path
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
            try:
                self._opened = open_session(self._name, self._master)
            except KStreamsError:
                raise
            except Exception as error:  # any error of Spark, its launcher or py4j
                raise SparkSessionError(
                    f"Spark did not start for {self._name!r}: {first_line(error)}",
                    fix="read Spark's own message in the driver's log, mend its settings, then retry the run",
                ) from error
            log.info("Spark session ready")
            ship_file(self._opened, self._client_config_path)

    def run(self, host: TaskHost | CopyHost, *, run_id: str) -> list[HostReport]:
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
