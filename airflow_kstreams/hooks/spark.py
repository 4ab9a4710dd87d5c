"""Extends the Spark provider's hook: a driver's error arrives as an error, and a kill leaves no process
behind.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook

from airflow_kstreams.hooks.airflow_versions import AirflowException, AirflowNotFoundException
from airflow_kstreams.hooks.spark_output import DEFAULT_LEVEL, LEVEL_SETTING, SparkOutput, ending_signal
from airflow_kstreams.launch.jvm_options import quick_start_options
from airflow_kstreams.launch.processes import end_session
from airflow_kstreams.streams.errors import ConfigError, KilledError, KStreamsError
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

#: Airflow kills a task five seconds after it asked it to end. In between, Spark's JVM removes its scratch
#: folders.
_GRACE_SECONDS = 2.5

#: Settings that choose the driver's Python.
_PYTHON_VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_PYTHON_SETTINGS = ("spark.pyspark.driver.python", "spark.pyspark.python")


def refuse_undefined_connection(conn_id: str) -> None:
    """Refuse a connection that does not exist; the provider would quietly submit to YARN instead.

    :raises ConfigError: it does not.
    """
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"connection {conn_id!r} is not defined in Airflow",
            fix=f"add it: airflow connections add {conn_id} --conn-type spark --conn-host 'local[2,4]'",
        ) from None


class TopologySubmitHook(SparkSubmitHook):
    """Submits an application file of this package; made by :meth:`adopt`."""

    #: The output of a spark-submit whose driver runs on this machine.
    _output: SparkOutput | None = None
    #: Whether ``on_kill`` asked to end the application, which may be before there is one.
    _killed: bool = False
    #: File descriptors that spark-submit inherits.
    _inherited: tuple[int, ...] = ()

    @classmethod
    def adopt(cls, hook: SparkSubmitHook) -> Self:
        """Return a hook of this class in the state of a provider's hook.

        The provider's operator makes its hook from two dozen parameters; a copy of the hook's state needs no
        change when their number changes.
        """
        adopted = cls.__new__(cls)
        adopted.__dict__.update(hook.__dict__)
        return adopted

    @property
    def deploy_mode(self) -> str:
        """The deploy mode: with ``client`` the driver runs on this machine, with ``cluster`` on another
        one.
        """
        return str(self._connection["deploy_mode"] or "client")

    @property
    def master(self) -> str:
        """The Spark master."""
        return str(self._connection["master"])

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit the application and wait for its end.

        :raises ReportedError: what the driver reported.
        :raises KilledError: the Airflow task was killed.
        :raises ConfigError: there is no spark-submit.
        :raises SparkSessionError: a driver on this machine ended without a report.
        :raises AirflowException: Spark failed on another machine.
        """
        self._refuse_when_killed()
        try:
            driver_id: str | None = super().submit(
                application, start_new_session=True, pass_fds=self._inherited, **kwargs
            )
        except FileNotFoundError as error:
            if Path(str(error.filename)).name != self._connection["spark_binary"]:
                raise
            raise ConfigError(
                f"{self._connection['spark_binary']!r} is not on the PATH of this Airflow worker",
                fix="put the folder that holds it on the worker's PATH, or install pyspark beside Airflow, "
                "which brings spark-submit",
            ) from None
        except BaseException as error:
            # Ctrl-C and task timeouts, too, end up here: no driver may go on without its Airflow task.
            self.end_application()
            failure = self._failure() if isinstance(error, AirflowException) else None
            if failure is not None:
                raise failure from None
            raise
        finally:
            # The provider's hook leaves the pipe open for as long as the operator lives.
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()
        return driver_id

    def let_inherit(self, *descriptors: int) -> None:
        """Let spark-submit, and so Spark's JVM in client mode, inherit open files.

        :param descriptors: descriptors of the files.
        """
        self._inherited = descriptors

    def follow(self, job_id: str) -> None:
        """Remember the driver to wait for, which an earlier try may have submitted, so that a kill reaches
        it.
        """
        if self._is_yarn_cluster_mode:
            self._yarn_application_id = job_id

    @property
    def driver_name(self) -> str:
        """The application's id on YARN or Kubernetes; empty where the provider has learned none."""
        return self._yarn_application_id or self._kubernetes_application_id or ""

    def refuse_unfit_deployment(self, *, durable: bool) -> None:
        """Refuse a deployment that Spark or its provider cannot serve, before Spark is started.

        :param durable: whether a retry is to find a driver again.
        :raises ConfigError: naming what to set.
        """
        if self._should_track_driver_status:
            raise ConfigError(
                f"Spark runs no Python driver on the workers of a standalone cluster ({self.master}, deploy "
                "mode 'cluster')",
                fix="use deploy mode 'client' with this master",
            )
        if self._is_yarn_cluster_mode and durable and not self._yarn_track_via_rm_api:
            raise ConfigError(
                "on YARN in deploy mode 'cluster', a retry finds the driver of an earlier try through the "
                "resource manager's REST API only",
                fix="pass yarn_track_via_rm_api=True and set yarn_resourcemanager_webapp_address in the "
                f"extra of connection {self._conn_id!r}; or pass durable=False: a retry starts a new driver",
            )

    def on_kill(self) -> None:
        """End the application: its processes on this machine, else through the cluster manager. From then on
        this hook submits none.

        Safe in a signal handler.
        """
        self._killed = True
        if self.deploy_mode == "client":
            self.end_application()
            super().on_kill()
        else:
            # The provider's method asks the cluster manager only while spark-submit runs, or its tracking is
            # on.
            super().on_kill()
            self.end_application()

    def end_application(self) -> None:
        """End spark-submit, the driver and the workers that run on this machine. Does nothing if none
        runs.
        """
        if self._submit_sp is not None:
            killed = end_session(self._submit_sp.pid, grace_seconds=_GRACE_SECONDS)
            if killed:
                log.warning("Killed the processes of the Spark application that did not end: %s", killed)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        in_client = self.deploy_mode == "client"
        if in_client:
            self._conf = {LEVEL_SETTING: DEFAULT_LEVEL, **self._conf}
        command: list[str] = super()._build_spark_submit_command(application)
        if in_client:
            self._env = {**(self._env or {}), **self._local_environment()}
        return command

    def _local_environment(self) -> dict[str, str]:
        """Return the variables that let a driver on this machine start soon, with Airflow's own Python and
        pyspark.

        Airflow may be started by path (``.venv/bin/airflow``) without its folder on the PATH.
        """
        given = {**os.environ, **(self._env or {})}
        environment = quick_start_options(given)
        own = Path(sys.executable).parent
        binary = str(self._connection["spark_binary"])
        if shutil.which(binary, path=given.get("PATH")) is None and (own / binary).exists():
            environment["PATH"] = os.pathsep.join([str(own), given.get("PATH", os.defpath)])
        if not any(given.get(name) for name in _PYTHON_VARIABLES) and not any(
            name in self._conf for name in _PYTHON_SETTINGS
        ):
            environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
        return environment

    def _refuse_when_killed(self) -> None:
        if self._killed:
            raise KilledError("the Airflow task was killed before Spark was started")

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        # A signal handler that ran while spark-submit was being started did not know it yet.
        self._refuse_when_killed()
        if self.deploy_mode != "client":
            # The provider finds in these lines the driver that it waits for, or kills.
            super()._process_spark_submit_log(itr)
            return
        self._spark_exit_code = 0  # as the provider has it for a driver of its own
        self._output = SparkOutput(str(self._conf[LEVEL_SETTING]))
        for line in itr:
            self._output.show(str(line))

    def _failure(self) -> KStreamsError | None:
        """Return the error of a spark-submit that has failed; None if its driver ran on another machine."""
        if self._killed:
            return KilledError("the Airflow task was killed while Spark ran; all that is committed stays")
        if self._output is None or self._submit_sp is None:
            return None
        code = int(self._submit_sp.returncode or 0)
        # A driver that reports exits by itself.
        reported = self._output.reported if ending_signal(code) is None else None
        return reported or self._output.failure(code)
