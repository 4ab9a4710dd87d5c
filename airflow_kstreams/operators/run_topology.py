"""Makes the middle step of a run: the topology on Spark, until the stop offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.report.counts import (
    behind_lines,
    count_rows,
    nothing_new_text,
    outcome_text,
    parked_lines,
)
from airflow_kstreams.batch.report.results import RunResult, result_of_summary, result_so_far
from airflow_kstreams.hooks.kafka import allowed_settings
from airflow_kstreams.hooks.metrics_settings import metrics_target
from airflow_kstreams.hooks.operator_links import SparkLink
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.rendered import (
    Reader,
    commands,
    given,
    number,
    of_spark,
    spark_object,
    text,
    texts_of_spark,
)
from airflow_kstreams.hooks.tables_connection import tables_settings
from airflow_kstreams.launch.client_config_file import client_config_file
from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE, CLIENT_CONFIG_IS_TEMPORARY, RunSpec
from airflow_kstreams.operators.work.application_work import ApplicationWork, Killable, RunOperator
from airflow_kstreams.operators.work.lineage_facets import ReportsLineage, announced, refuse_outlets
from airflow_kstreams.operators.work.run_settings import (
    RunIdentity,
    refuse_state_side_by_side,
    warn_of_next_interval,
)
from airflow_kstreams.operators.work.run_state import (
    FoundRun,
    refuse_parked,
    refuse_unfinished,
    so_far,
    subtopologies_of,
)
from airflow_kstreams.streams.errors import ConfigError, ReportedError, RunError, TopologyError
from airflow_kstreams.streams.printable import package_log

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from airflow_kstreams.batch.ledger.run_summary import RunSummary
    from airflow_kstreams.batch.protocol.slice.slice import Slice
    from airflow_kstreams.hooks.spark import TopologySubmitHook
    from airflow_kstreams.kafka.cluster import KafkaCluster
    from airflow_kstreams.streams.plan import TopologyPlan
    from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)

__all__ = ["RunTopologyOperator"]

#: The connection that Airflow's own Spark provider uses by default, too.
DEFAULT_SPARK_CONN_ID = "spark_default"


class RunTopologyOperator(ReportsLineage, Killable, RunOperator, SparkSubmitOperator):
    """Runs a topology on Spark until the run's stop offsets; a retry resumes where the last attempt
    committed.

    Kafka decides what there is to do, never XCom: a run that is finished, that has nothing new, or whose
    tasks are at their stop offsets already, returns without starting Spark, unless a driver of an earlier
    attempt still holds the run's lease, for which drivers of other Airflow tasks would wait. An attempt with
    a higher try number claims the run from one that may still be alive: a driver that was left behind when
    its Airflow worker died ends itself when it learns of that. Where the Spark provider finds the driver
    again (``durable``, on YARN with ``yarn_track_via_rm_api``, on Kubernetes with
    ``track_driver_via_k8s_api``), a retry waits for the one that runs instead.

    Killing the task ends the Spark application; commits that were made stay, and the next try goes on there.

    Secrets of the Kafka connection reach the driver in a file that only this user can read and that is
    removed when the driver ends. A driver on another machine (deploy mode ``cluster``) cannot read it: mount
    a JSON file of client settings there and name it in ``env_vars={"KSTREAMS_KAFKA_CONFIG_FILE": ...}``. The
    settings of ``tables_conn_id`` go the same way, and stand in the same file.

    A plain ``local[N]`` master gives up at the first failed task; ``local[N,4]`` retries as a cluster does.

    :param application_id: id of the application, from which its consumer group and internal topics get their
        names. (templated)
    :param application: path of the application file, which defines ``topology()``. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param spark_conn_id: connection to Spark. (templated)
    :param settings: application settings by their dotted names. (templated)
    :param backfill_outputs: the topic that a backfill run writes in place of each one that the topology
        writes; refused in a backfill unless given, see ``docs/explanation/backfill.md``. (templated)
    :param backfill_in_order: whether the task's DAG is there for the backfills of a topology that keeps
        state, see :func:`~airflow_kstreams.operators.backfill_dag.backfill_dag`.
    :param tables_conn_id: connection that says where the Iceberg and Delta tables are that the topology
        writes. (templated)
    :param subtopology: id of the one subtopology to run, after all that it reads from; all of them by
        default. One driver at a time works on an application, so such tasks follow each other. (templated)
    :param finish: whether the driver also finishes the run, when no :class:`FinishRunOperator` follows.
    :param allow_parked: whether the task succeeds though the run left records parked for another attempt of
        their calls; False needs ``finish``. With False it fails then, though the run is finished and stays
        so, and names the nodes, the number of records and the time at which they are due; its retry looks
        whether later runs have processed them.
    :param kwargs: arguments of ``SparkSubmitOperator``, except ``application_args``, which tell the driver
        its run. ``outlets`` need ``finish``; their events are those of :class:`FinishRunOperator`.
    :return: a :class:`~airflow_kstreams.hooks.reports.RunResult`.
    :raises ConfigError: ``outlets`` or ``allow_parked=False`` is given, and the task does not finish the run.
    """

    template_fields: Sequence[str] = (
        *RunOperator.template_fields,
        "spark_conn_id",
        "subtopology",
        *(name for name in SparkSubmitOperator.template_fields if name != "application_args"),
    )
    readers: ClassVar[Mapping[str, Reader]] = {
        **{name: of_spark for name in SparkSubmitOperator.template_fields if name != "application_args"},
        **RunOperator.readers,
        "application": text,
        "spark_conn_id": text,
        "subtopology": number(0, optional=True),
        "conf": spark_object,
        "env_vars": texts_of_spark,
        "post_submit_commands": commands,
    }
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **RunOperator.template_fields_renderers,
        "conf": "json",
        "env_vars": "json",
    }
    operator_extra_links = (*RunOperator.operator_extra_links, SparkLink())
    ui_color = "#f7e3d5"

    _hook: TopologySubmitHook | None
    #: When this try began, by the monotonic clock.
    _started: float = 0.0

    def __init__(
        self,
        *,
        application_id: str,
        application: str,
        spark_conn_id: str = DEFAULT_SPARK_CONN_ID,
        subtopology: int | str | None = None,
        finish: bool = False,
        allow_parked: bool = True,
        **kwargs: Any,
    ) -> None:
        if "application_args" in kwargs:
            raise TypeError("RunTopologyOperator takes no application_args: they say what the driver runs")
        # Spark's pages show an application under its own name, unless the user says otherwise.
        kwargs.setdefault("name", application_id)
        super().__init__(
            application_id=application_id, application=application, conn_id=spark_conn_id, **kwargs
        )
        self.spark_conn_id = spark_conn_id
        self.subtopology: Any = given(subtopology)
        self.finish = finish
        self.allow_parked = allow_parked
        self._refuse_early_outlets()

    def execute(self, context: Context) -> RunResult:  # type: ignore[override]  # the provider's operator returns None
        """Run the topology, unless Kafka says that there is nothing to do."""
        self._started = time.monotonic()
        with airflow_outcomes():
            self._refuse_early_outlets()  # which may be added to a task
            identity = self._identity(context)
            work = ApplicationWork.on_run(self, identity)
            cluster = work.cluster()
            with work.reporting("driver"):
                return self._process(context, work, cluster)

    def on_kill(self) -> None:
        """End the Spark application, driver and workers included, and start none any more."""
        Killable.on_kill(self)
        # Before the hook is made nothing runs yet, and a signal handler is no place to look up connections.
        if self._hook is not None:
            SparkSubmitOperator.on_kill(self)
            # Where a cluster manager was asked to end the driver, spark-submit may still wait here.
            self._hook.end_application()

    @property
    def spark_driver(self) -> str:
        """The Spark application's id in its cluster manager; empty where there is none."""
        return "" if self._hook is None else self._hook.driver_name

    def submit_job(self, context: Context) -> str | None:
        """Submit, where the provider finds the driver again.

        :param context: context of the task.
        :return: name of the driver in its cluster manager.
        """
        store = context.get("task_state_store")
        if store is not None:
            # What the provider remembers of an earlier driver's end is not said of the new one.
            store.delete(self._K8S_DRIVER_STATUS_KEY)
        return super().submit_job(context)

    def is_job_succeeded(self, status: str) -> bool:
        """Never take the end of an earlier driver for the end of the run: Kafka was asked before, and says
        that something is left to do.

        :param status: state of the driver, in the cluster manager's words.
        """
        return False

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> None:
        """Wait for a driver, which may be one that an earlier try submitted.

        :param external_id: name of the driver in its cluster manager.
        :param context: context of the task.
        """
        if self._hook is not None:
            self._hook.follow(str(external_id))
        if self.was_killed():
            # Until now this process did not know which driver it is.
            self.on_kill()
            self.refuse_when_killed("the driver's end")
        super().poll_until_complete(external_id, context)

    def _process(self, context: Context, work: ApplicationWork, cluster: KafkaCluster) -> RunResult:
        identity, settings = work.identity, work.settings
        subtopology = self.subtopology
        found = FoundRun.read(cluster, settings.application_id, identity.run_id)
        slice_ = found.slice
        self.remember(found.finished or slice_, cluster)
        if found.finished is not None:
            return self._finished_before(context, cluster, found.finished, work)
        if slice_ is not None and not self.finish:
            wanted = subtopologies_of(slice_, subtopology)
            if slice_.plan.empty or found.nothing_left(cluster, wanted):
                state = "has nothing new" if slice_.plan.empty else "is at its stop offsets"
                log.info("Run %s %s: Spark is not started", identity.run_id, state)
                return self._so_far(cluster, found, slice_, wanted)
        if slice_ is None:
            self._look_ahead(work, found)
        spec = RunSpec(
            application_id=settings.application_id,
            run_id=identity.run_id,
            order=identity.order,
            interval_ms=identity.interval_ms,
            owner=identity.owner,
            settings=settings.to_dict(),
            topology_hash=slice_.plan.topology.topology_hash if slice_ is not None else "",
            finish=self.finish,
            subtopology=subtopology,
            dag_id=identity.dag_id,
            metrics=metrics_target(),
        )
        # What is said of tables goes the way of the client's secrets, in the one file that the driver reads.
        config = {**work.hook.client_config(), **tables_settings(self.tables_conn_id)}
        self._submit(context, spec, config)
        return self._result(context, cluster, spec, settings)

    def _submit(self, context: Context, spec: RunSpec, client_config: Mapping[str, str]) -> None:
        """Submit the application file with the driver's arguments."""
        from airflow_kstreams.hooks.spark import refuse_undefined_connection
        from airflow_kstreams.kafka.configuration.code_settings import ALLOWED_VARIABLE

        self._conn_id = self.spark_conn_id
        refuse_undefined_connection(self._conn_id)
        self.application_args = ["--run-spec", spec.to_json()]
        given = self.env_vars or {}
        # The deployment's setting wins in the driver over the value that a DAG writes into its environment.
        self.env_vars = {**given, ALLOWED_VARIABLE: allowed_settings().to_text()}
        if CLIENT_CONFIG_FILE in given:
            self._hook = self._get_hook()
            self._start(context, self._hook)
            return
        with client_config_file(client_config) as made:
            self.env_vars.update({CLIENT_CONFIG_FILE: made.path, CLIENT_CONFIG_IS_TEMPORARY: "1"})
            self._hook = hook = self._get_hook()
            if hook.deploy_mode != "client":
                raise ConfigError(
                    f"deploy mode {hook.deploy_mode!r} starts the driver on another machine, "
                    "which cannot read the Kafka connection",
                    fix="mount a JSON file of client settings there and name it in "
                    f"env_vars={{{CLIENT_CONFIG_FILE!r}: ...}}",
                )
            hook.let_inherit(made.lock)
            self._start(context, hook)

    def _start(self, context: Context, hook: TopologySubmitHook) -> None:
        hook.refuse_unfit_deployment(durable=self.durable)
        self.refuse_when_killed("Spark was started")
        super().execute(context)

    def _look_ahead(self, work: ApplicationWork, found: FoundRun) -> None:
        """Check a run that has not begun: capture did not begin it, or an earlier run comes first.

        :raises ConfigError: the run goes by its data interval and has none, or it is a backfill that its DAG
            cannot do.
        """
        from airflow_kstreams.batch.run.begin.intervals import check_interval

        identity = work.identity
        check_interval(work.settings, identity.run_id, identity.interval_ms)
        if found.earlier is not None:
            log.warning(
                "Run %s is unfinished: it is finished before run %s begins",
                found.earlier,
                identity.run_id,
            )
        if identity.backfill:
            warn_of_next_interval(self._interval_timetable, identity)
            loader = work.loader(str(self.application), log=log, was_killed=self.was_killed)
            plan = loader.plan(work.settings.application_id)
            refuse_state_side_by_side(plan, identity, self.application_id, in_order=self.backfill_in_order)

    def _identity(self, context: Context) -> RunIdentity:
        return RunIdentity.of(context)

    @property
    def _for_backfills(self) -> bool:
        """Whether only backfills use this operator, so that its outlets are the assets that they write."""
        return self.backfill_in_order

    def _refuse_early_outlets(self) -> None:
        if not self.finish:
            refuse_outlets(self.task_id, self.outlets)
            if not self.allow_parked:
                raise ConfigError(
                    f"task {self.task_id!r} has allow_parked=False, but does not finish the run, which says "
                    "what is parked",
                    fix="set allow_parked=False on the task that finishes the run",
                )

    def _so_far(
        self, cluster: KafkaCluster, found: FoundRun, slice_: Slice, subtopologies: Sequence[int]
    ) -> RunResult:
        summary = so_far(cluster, slice_, subtopologies)
        self._say_last(found, summary)
        return result_so_far(summary)

    def _say_last(self, found: FoundRun, summary: RunSummary) -> None:
        """Log the last line: what went in and came out, in all tries, and the time of this one."""
        if summary.empty:
            log.info("%s", nothing_new_text(found.facts.ledger, now_ms=SystemClock().now_ms()))
        else:
            log.info("%s", outcome_text(summary, seconds=time.monotonic() - self._started))

    def _report(
        self, context: Context, cluster: KafkaCluster, summary: RunSummary, settings: ApplicationSettings
    ) -> None:
        self.outlets = announced(context, self.outlets, summary, settings, for_backfills=self._for_backfills)
        for line in (*behind_lines(summary), *parked_lines(summary)):
            log.info("%s", line)
        if not self.allow_parked:
            refuse_parked(cluster, summary)

    def _finished_before(
        self, context: Context, cluster: KafkaCluster, summary: RunSummary, work: ApplicationWork
    ) -> RunResult:
        """Return a finished run, which needs no driver, if its work is this task's.

        :raises ConfigError: the run did other work.
        :raises RecordsParkedError: records that it left parked are not processed, and ``allow_parked`` is
            False.
        :raises TopologyError: the run had another topology, and the settings forbid that.
        """
        from airflow_kstreams.batch.run.finished_before import check_finished, nothing_processed

        identity = work.identity
        check_finished(
            summary,
            work.settings,
            plan=self._plan_here(work),
            dag_id=identity.dag_id,
            interval_ms=identity.interval_ms,
        )
        log.info("Spark is not started")
        self._report(context, cluster, summary, work.settings)
        log.info("%s", nothing_processed(summary))
        return result_of_summary(summary, already=True)

    def _plan_here(self, work: ApplicationWork) -> TopologyPlan | None:
        """Load the topology, to compare it with the one that ran; None where this worker cannot: the file, or
        a module that it imports, may be on the driver's machine only.
        """
        if not Path(str(self.application)).is_file():
            return None
        loader = work.loader(str(self.application), log=log, was_killed=self.was_killed)
        try:
            return loader.plan(work.settings.application_id)
        except (ReportedError, TopologyError) as error:
            if work.settings.finished_with_other_topology == "fail":
                raise
            log.warning("The topology is not compared with the one that ran: %s", error.cause)
            return None

    def _result(
        self, context: Context, cluster: KafkaCluster, spec: RunSpec, settings: ApplicationSettings
    ) -> RunResult:
        found = FoundRun.read(cluster, spec.application_id, spec.run_id, certain=True)
        self.remember(found.finished or found.slice, cluster)
        if found.finished is not None:
            for row in count_rows(found.finished):
                log.info("%s", row)
            self._report(context, cluster, found.finished, settings)
            self._say_last(found, found.finished)
            return result_of_summary(found.finished)
        if found.slice is not None:
            wanted = subtopologies_of(found.slice, spec.subtopology)
            refuse_unfinished(cluster, found, wanted)
            if spec.finish:
                raise RunError(
                    f"Spark ended well, but run {spec.run_id!r} is not finished",
                    fix="read the driver's log for what ended it early; the retry finishes the run",
                    run_id=spec.run_id,
                )
            return self._so_far(cluster, found, found.slice, wanted)
        raise ConfigError(
            f"Spark ended well, but run {spec.run_id} of application {spec.application_id!r} never began in "
            "Kafka",
            fix="check that the driver reads the same Kafka cluster as the connection of this operator",
        )

    def _get_hook(self) -> TopologySubmitHook:
        from airflow_kstreams.hooks.spark import TopologySubmitHook

        return TopologySubmitHook.adopt(super()._get_hook())
