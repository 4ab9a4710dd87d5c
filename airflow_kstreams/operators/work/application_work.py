"""Gives an Airflow task its work: one application, loaded in a process of its own, with checked settings, on
the cluster of its connection.

Operators keep their arguments as Airflow's templates need them, in attributes. Here they are read, once the
task is executed and the templates are rendered.

A subprocess gives the plan of an application file, and the groups of its partition grouper. So user code
cannot stay in a worker's memory, change its modules or hang it. The subprocess imports neither Airflow, Spark
nor a Kafka client, so it takes a fraction of a second. It ends with the task that waits for it: a task that
is killed ends it, and the kernel does where the worker was killed at once (on Linux).

Airflow calls ``on_kill`` out of a signal handler and the task goes on; what is still alive a few seconds
later is killed. So ``on_kill`` only sets a mark, and all code that starts a process, or waits for one, checks
it before and after (:class:`Killable`).
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from airflow.sdk import BaseOperator, BaseOperatorLink

from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID, KafkaHook
from airflow_kstreams.hooks.operator_links import KafkaRunLink
from airflow_kstreams.hooks.rendered import (
    Reader,
    Rendered,
    given,
    optional_text,
    settings_object,
    text,
    texts_object,
)
from airflow_kstreams.launch.processes import end_session
from airflow_kstreams.operators.work.run_settings import RunIdentity, batch_settings, settings_of_run
from airflow_kstreams.streams.errors import (
    KilledError,
    KStreamsError,
    ReportedError,
    TopologyError,
    reported_in,
)
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.plan import TopologyPlan, decode_json
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.loader import GROUPS_MARKER, PLAN_MARKER, LoadedGroups

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger

    from airflow_kstreams.batch.ledger.history import Part
    from airflow_kstreams.kafka.cluster import KafkaCluster

log = package_log(__name__)

#: An application file only builds objects; one that takes longer connects to something.
LOAD_TIMEOUT_SECONDS = 60.0
_LOADER = "airflow_kstreams.streams.topology.loader"
_GRACE_SECONDS = 0.5
#: Longest time for the requests that report a failure, in milliseconds.
_REPORT_MS = 5_000
#: Longest time until a killed task ends its wait, in seconds. Airflow gives it five.
_LOOK_SECONDS = 0.2


class ApplicationOperator(Rendered, BaseOperator):
    """Takes the arguments for the application that an operator works on.

    :param application_id: id of the application. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param settings: application settings by their dotted names. (templated)
    """

    template_fields: Sequence[str] = ("application_id", "kafka_conn_id", "settings")
    readers: ClassVar[Mapping[str, Reader]] = {
        "application_id": text,
        "kafka_conn_id": text,
        "settings": settings_object,
    }
    template_fields_renderers: ClassVar[dict[str, str]] = {"settings": "json"}
    operator_extra_links: Collection[BaseOperatorLink] = (KafkaRunLink(),)

    def __init__(
        self,
        *,
        application_id: str,
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        settings: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application_id = application_id
        self.kafka_conn_id = kafka_conn_id
        self.settings = given(settings)


class RunOperator(ApplicationOperator):
    """Takes the arguments that the operators of a run have in common.

    :param backfill_outputs: the topic that a backfill run writes in place of each one that the topology
        writes. (templated)
    :param backfill_in_order: whether the task's DAG is there for the backfills of a topology that keeps
        state.
    :param tables_conn_id: connection that says where the Iceberg and Delta tables are that the topology
        writes. (templated)
    """

    #: The setting ``backfill.replace``, where the operator says it itself.
    backfill_replace = ""
    template_fields: Sequence[str] = (
        *ApplicationOperator.template_fields,
        "backfill_outputs",
        "tables_conn_id",
    )
    readers: ClassVar[Mapping[str, Reader]] = {
        **ApplicationOperator.readers,
        "backfill_outputs": texts_object,
        "tables_conn_id": optional_text,
    }
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **ApplicationOperator.template_fields_renderers,
        "backfill_outputs": "json",
    }

    def __init__(
        self,
        *,
        backfill_outputs: Mapping[str, str] | str | None = None,
        backfill_in_order: bool = False,
        tables_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables_conn_id: Any = given(tables_conn_id)
        self.backfill_outputs = given(backfill_outputs)
        self.backfill_in_order = backfill_in_order

    @property
    def _interval_timetable(self) -> Any:
        """The timetable that gives the task's data interval; None if there is none."""
        dag = self.get_dag()
        return None if dag is None else dag.timetable


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationWork:
    """The application that an Airflow task works on, with its settings and its connection.

    :param identity: identity of the dag run.
    :param settings: settings of the application; in a backfill they have an application id of their own.
    :param hook: hook of the Kafka connection.
    """

    identity: RunIdentity
    settings: ApplicationSettings
    hook: KafkaHook

    @classmethod
    def on_run(cls, operator: RunOperator, identity: RunIdentity) -> ApplicationWork:
        """Return the work on a run.

        :raises ConfigError: a setting is wrong, as for :func:`settings_of_run`, or a templated field cannot
            be read.
        :raises AirflowSkipException: the DAG is there for backfills, and the run is none.
        """
        operator.read_rendered()
        settings = settings_of_run(
            identity,
            operator.application_id,
            operator.settings,
            outputs=operator.backfill_outputs,
            in_order=operator.backfill_in_order,
            replace=operator.backfill_replace,
        )
        return cls(identity=identity, settings=settings, hook=KafkaHook(operator.kafka_conn_id))

    @classmethod
    def on_live(cls, operator: ApplicationOperator, context: Context, what: str) -> ApplicationWork:
        """Return the work on the live application, beside its runs.

        :param what: the action of the task, for the message.
        :raises ConfigError: a setting or a templated field is wrong, or the dag run belongs to a backfill.
        """
        operator.read_rendered()
        identity = RunIdentity.of(context)
        identity.refuse_backfill(what)
        settings = batch_settings(operator.application_id, operator.settings)
        return cls(identity=identity, settings=settings, hook=KafkaHook(operator.kafka_conn_id))

    def cluster(self) -> KafkaCluster:
        """Return the cluster; touches no network yet.

        :raises ConfigError: the connection is not defined, or cannot be used.
        """
        return self.hook.cluster(self.settings, in_child=False)

    @contextmanager
    def reporting(self, part: Part) -> Iterator[None]:
        """Report the failure of the block in Kafka, where ``airflow-kstreams status`` finds it, unless the
        run's history has it already.

        :param part: the part of the run that the task works on.
        """
        begun_ms = time.time_ns() // 1_000_000
        try:
            yield
        except Exception as error:
            from airflow_kstreams.batch.run.lease.lease import Claimant
            from airflow_kstreams.batch.run.reported_failures import is_to_be_reported, report_failure

            identity = self.identity
            caller = Claimant(
                run_id=identity.run_id,
                order=(identity.clear_number, 0) if part == "capture" else identity.order,
                owner=identity.owner,
                hold_lease=part == "driver",
            )
            settings = self.settings.of_look(min(_REPORT_MS, 2 * self.settings.client_timeout_ms))
            if is_to_be_reported(error):
                try:
                    report_failure(
                        self.hook.cluster(settings, in_child=False),
                        settings.application_id,
                        caller,
                        error,
                        part=part,
                        begun_ms=begun_ms,
                        dag_id=identity.dag_id,
                    )
                except KStreamsError as refused:
                    log.info("Only this log says why the task failed, not Kafka: %s", refused.cause)
            raise

    def loader(
        self, application: str, *, log: Logger | logging.Logger, was_killed: Callable[[], bool]
    ) -> ApplicationLoader:
        """Return the loader of the application file.

        :param application: path of the file.
        :param log: log that gets the lines that the file prints.
        :param was_killed: returns whether to give up, because the Airflow task was killed.
        """
        return ApplicationLoader(
            application=application,
            log=log,
            timeout_seconds=LOAD_TIMEOUT_SECONDS,
            settings=self.settings,
            was_killed=was_killed,
        )


class Killable:
    """An operator that starts nothing once its Airflow task was killed."""

    _killed: bool = False

    def on_kill(self) -> None:
        """Remember that the task was killed."""
        self._killed = True

    def was_killed(self) -> bool:
        """Return whether the task was killed."""
        return self._killed

    def refuse_when_killed(self, what: str) -> None:
        """Refuse to go on if the task was killed.

        :param what: the next action, for the message.
        :raises KilledError: the task was killed; a retry goes on.
        """
        if self._killed:
            raise KilledError(f"the Airflow task was killed before {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationLoader:
    """Loads an application file in subprocesses.

    :param application: path of the application file.
    :param log: log that gets the lines that the file prints.
    :param timeout_seconds: time limit of one subprocess.
    :param settings: settings of the application, which may name the topics to write.
    :param was_killed: returns whether to give up, because the Airflow task was killed.
    """

    application: str
    log: Logger | logging.Logger
    timeout_seconds: float
    settings: ApplicationSettings | None = None
    was_killed: Callable[[], bool] = lambda: False

    def plan(self, application_id: str) -> TopologyPlan:
        """Return the plan of the file's topology.

        :param application_id: id of the application.
        :raises ReportedError: the file or its topology is wrong; with file and line.
        :raises TopologyError: loading took too long, or ended the process.
        :raises KilledError: the Airflow task was killed meanwhile.
        """
        with self.loading(application_id) as plan:
            return plan()

    @contextmanager
    def loading(self, application_id: str) -> Iterator[Callable[[], TopologyPlan]]:
        """Load the file while the caller does something else. The block gets a function that returns the
        plan, when it is there.

        :param application_id: id of the application.
        :raises KStreamsError: what :meth:`plan` raises; by that function.
        """
        with self._answering(PLAN_MARKER, application_id) as answer:
            yield lambda: decode_json(answer(), TopologyPlan)

    def groups(self, plan: TopologyPlan, counts: Mapping[str, int]) -> dict[int, Groups]:
        """Ask the file's partition grouper for the groups of every subtopology.

        :param plan: the plan that the file gave before.
        :param counts: partition count of every topic that is read, by real name.
        :raises ReportedError: the grouper fails, or its groups cannot be; with file and line.
        :raises TopologyError: the file builds another topology by now, took too long, or ended the process.
        :raises KilledError: the Airflow task was killed meanwhile.
        """
        asked = msgspec.json.encode(counts).decode()
        with self._answering(GROUPS_MARKER, plan.application_id, asked) as answer:
            loaded = decode_json(answer(), LoadedGroups)
        if loaded.topology_hash != plan.topology_hash:
            raise TopologyError(
                f"application file {self.application!r} changed while the run began: it built topology "
                f"{plan.topology_hash[:12]}, and builds {loaded.topology_hash[:12]} now",
                fix="run the task again",
            )
        return {int(sub): groups for sub, groups in loaded.groups.items()}

    @contextmanager
    def _answering(self, marker: str, *asked: str) -> Iterator[Callable[[], str]]:
        """Run the loader; the block gets a function that waits for its answer."""
        arguments = [self.application, *asked]
        if self.settings is not None:
            arguments += ["--settings", json.dumps(self.settings.to_dict())]
        deadline = time.monotonic() + self.timeout_seconds
        # As a context manager it closes the pipes, also when loading took too long.
        with subprocess.Popen(
            [sys.executable, "-m", _LOADER, *arguments, "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield lambda: self._answer(process, marker, arguments, deadline)
            finally:
                if process.returncode is None:
                    end_session(process.pid, grace_seconds=_GRACE_SECONDS)

    def _answer(
        self, process: subprocess.Popen[str], marker: str, arguments: Sequence[str], deadline: float
    ) -> str:
        """Wait for the loader's end, and return its answer."""
        try:
            out, err = self._output(process, deadline)
        finally:
            end_session(process.pid, grace_seconds=_GRACE_SECONDS)
        reported = _printed(err, self.log)
        if reported is not None:
            raise reported
        answer = next((line for line in reversed(out.splitlines()) if line.startswith(marker)), None)
        if process.returncode != 0 or answer is None:
            raise TopologyError(
                f"loading application file {self.application!r} ended the process with code "
                f"{process.returncode}",
                fix="see the lines above in this log; try: python -m " + shlex.join([_LOADER, *arguments]),
            )
        return answer.removeprefix(marker)

    def _output(self, process: subprocess.Popen[str], deadline: float) -> tuple[str, str]:
        """Wait for the loader's end, and return its stdout and stderr."""
        while True:
            if self.was_killed():
                raise KilledError(
                    f"the Airflow task was killed while application file {self.application!r} was loaded"
                )
            left = deadline - time.monotonic()
            try:
                # Called again after its time is up, it goes on collecting.
                return process.communicate(timeout=max(0.0, min(left, _LOOK_SECONDS)))
            except subprocess.TimeoutExpired:
                if left > _LOOK_SECONDS:
                    continue
                raise TopologyError(
                    f"application file {self.application!r} did not load within {self.timeout_seconds:g} s",
                    fix="building a topology must not connect to anything: move such work into the "
                    "processors",
                ) from None


def _printed(text: str, log: Logger | logging.Logger) -> ReportedError | None:
    reported: ReportedError | None = None
    for line in text.splitlines():
        found = reported_in(line)
        if found is not None:
            reported = found
        elif line.strip():
            log.info("%s", line)
    return reported
