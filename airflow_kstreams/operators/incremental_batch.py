"""Makes the first step of a run, which freezes its stop offsets, and the last, the finished marker, and lays
out all steps as one task group. The step between the two, on Spark, is in ``run_topology.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset, TaskGroup, chain

from airflow_kstreams.batch.report.counts import (
    behind_lines,
    count_rows,
    nothing_new_text,
    outcome_text,
    parked_lines,
    speed_lines,
)
from airflow_kstreams.batch.report.results import RunResult, result_of_slice, result_of_summary
from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.rendered import Reader, text
from airflow_kstreams.hooks.tables_connection import opened_tables
from airflow_kstreams.operators.run_topology import DEFAULT_SPARK_CONN_ID, RunTopologyOperator
from airflow_kstreams.operators.work.application_work import (
    ApplicationLoader,
    ApplicationWork,
    Killable,
    RunOperator,
)
from airflow_kstreams.operators.work.lineage_facets import ReportsLineage, announced, refuse_outlets
from airflow_kstreams.operators.work.run_settings import (
    RunIdentity,
    refuse_state_side_by_side,
    warn_of_next_interval,
)
from airflow_kstreams.operators.work.run_state import refuse_parked
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kstreams.batch.ledger.run_summary import RunSummary
    from airflow_kstreams.batch.run.coordinator import BeginResult
    from airflow_kstreams.kafka.cluster import KafkaCluster
    from airflow_kstreams.streams.plan import TopologyPlan
    from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)

__all__ = ["CaptureStopOffsetsOperator", "FinishRunOperator", "incremental_batch"]


#: Below Airflow's own limit for a DAG file (``dagbag_import_timeout``, 30 s): the error names the file then.
_PARSE_SECONDS = 20.0
#: Number of partitions whose offsets the log of capture has; the others are in Kafka.
_PARTITIONS_SHOWN = 10


class CaptureStopOffsetsOperator(ReportsLineage, Killable, RunOperator):
    """Begins a run: writes the stop offset of every input partition, all or nothing, into the metadata topic
    (KIP-95).

    Executed again for the same dag run, wherever the log ends by then, it finds the run's stop offsets and
    leaves them as they are. If an earlier run did not finish, its slice stays first in line, and
    :class:`RunTopologyOperator` completes it before this run's own.

    :param application_id: id of the application, from which its consumer group and internal topics get their
        names. (templated)
    :param application: path of the application file, which defines ``topology()``. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param settings: application settings by their dotted names, e.g. ``{"processing.guarantee":
        "exactly_once"}``. (templated)
    :param backfill_outputs: the topic that a backfill run writes in place of each one that the topology
        writes; refused in a backfill unless given, see ``docs/explanation/backfill.md``. (templated)
    :param backfill_in_order: whether the task's DAG is there for the backfills of a topology that keeps
        state, see :func:`~airflow_kstreams.operators.backfill_dag.backfill_dag`.
    :param tables_conn_id: connection that says where the Iceberg and Delta tables are that the topology
        writes. (templated)
    :param kwargs: arguments of every Airflow operator: ``task_id``, ``retries``, ... but no ``outlets``: no
        output is complete yet.
    :return: a :class:`~airflow_kstreams.hooks.reports.RunResult`.
    :raises ConfigError: the task has outlets.
    """

    template_fields: Sequence[str] = (*RunOperator.template_fields, "application")
    readers: ClassVar[Mapping[str, Reader]] = {**RunOperator.readers, "application": text}
    ui_color = "#d5e8f7"

    def __init__(
        self,
        *,
        application: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        refuse_outlets(self.task_id, self.outlets)
        self.application = application

    def execute(self, context: Context) -> RunResult:
        """Begin the run."""
        with airflow_outcomes():
            refuse_outlets(self.task_id, self.outlets)  # which may be added to a task
            identity = RunIdentity.of(context)
            work = ApplicationWork.on_run(self, identity)
            loader = work.loader(self.application, log=log, was_killed=self.was_killed)
            # The file is loaded while this process imports client and engine, and its clients connect. None
            # of that depends on the file, and loading it takes longest.
            with loader.loading(work.settings.application_id) as loaded:
                cluster = work.cluster()
                with work.reporting("capture"):
                    begun = self._begin(work, cluster, loader, loaded)
            self.remember(begun.finished or begun.slice, cluster)
            return self._report(identity.run_id, begun)

    def _begin(
        self,
        work: ApplicationWork,
        cluster: KafkaCluster,
        loader: ApplicationLoader,
        loaded: Callable[[], TopologyPlan],
    ) -> BeginResult:
        from airflow_kstreams.batch.run.begin.intervals import check_interval
        from airflow_kstreams.batch.run.coordinator import Coordinator

        identity = work.identity
        check_interval(work.settings, identity.run_id, identity.interval_ms)
        warn_of_next_interval(self._interval_timetable, identity)
        tables = opened_tables(self.tables_conn_id)
        with closing(Coordinator(cluster, work.settings, tables=tables)) as coordinator:
            coordinator.session.make_clients()
            plan = loaded()
            tables.check(plan.tables)
            refuse_state_side_by_side(plan, identity, self.application_id, in_order=self.backfill_in_order)
            return coordinator.begin(
                identity.run_id,
                plan,
                # The run operator's tries start at 1: every try of capture comes before them.
                order=(identity.clear_number, 0),
                interval_ms=identity.interval_ms,
                owner=identity.owner,
                hold_lease=False,
                groups=lambda counts: loader.groups(plan, counts),
                dag_id=identity.dag_id,
            )

    def _report(self, run_id: str, begun: BeginResult) -> RunResult:
        from airflow_kstreams.batch.run.finished_before import nothing_processed

        if begun.finished is not None:
            log.info("%s", nothing_processed(begun.finished))
            return result_of_summary(begun.finished, already=True)
        if begun.slice is None:
            raise ValueError("begin returned neither a slice nor a summary")
        result = result_of_slice(begun.slice)
        for warning in begun.slice.plan.warnings:
            log.warning("Run %s: %s", begun.slice.run_id, warning)
        if begun.slice.run_id != run_id:
            log.warning(
                "Run %s is unfinished: it is finished before run %s begins", begun.slice.run_id, run_id
            )
            return result
        inputs = begun.slice.inputs
        for partition in inputs[:_PARTITIONS_SHOWN]:
            log.info(
                "%s-%d: from offset %d to stop offset %d",
                partition.topic,
                partition.partition,
                partition.start_offset,
                partition.stop_offset,
            )
        if more := len(inputs[_PARTITIONS_SHOWN:]):
            log.info("... and %s: airflow-kstreams status shows all", counted(more, "more partition"))
        log.info(
            "Run %s %s: %s to read, generation %d",
            run_id,
            "begun" if begun.created else "resumed with the stop offsets it began with",
            counted(result["record_span"], "offset"),
            result["generation"],
        )
        return result


class FinishRunOperator(ReportsLineage, RunOperator):
    """Finishes a run: the finished marker and the ledger's entry, in one transaction (KIP-95).

    It refuses unless every input and intermediate partition is committed up to its stop offset. Executed
    again, it finds the run finished and changes nothing.

    :param application_id: id of the application, from which its consumer group and internal topics get their
        names. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param settings: application settings by their dotted names. (templated)
    :param backfill_outputs: the topic that a backfill run writes in place of each one that the topology
        writes; refused in a backfill unless given, see ``docs/explanation/backfill.md``. (templated)
    :param backfill_in_order: whether the task's DAG is there for the backfills of a topology that keeps
        state, see :func:`~airflow_kstreams.operators.backfill_dag.backfill_dag`.
    :param tables_conn_id: connection that says where the Iceberg and Delta tables are that the topology
        writes. (templated)
    :param allow_parked: whether the task succeeds though the run left records parked for another attempt of
        their calls. With False it fails then, though the run is finished and stays so, and names the nodes,
        the number of records and the time at which they are due; its retry looks whether later runs have
        processed them.
    :param kwargs: arguments of every Airflow operator: ``task_id``, ``retries``, ... The events of assets in
        ``outlets`` name the run and the offsets that it processed
        (:func:`~airflow_kstreams.hooks.reports.event_extra`); a backfill that writes other topics than the
        live application does not update them.
    :return: a :class:`~airflow_kstreams.hooks.reports.RunResult`.
    :raises RecordsParkedError: records are parked, and ``allow_parked`` is False.
    """

    ui_color = "#d5e8f7"

    def __init__(
        self,
        *,
        allow_parked: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.allow_parked = allow_parked

    def execute(self, context: Context) -> RunResult:
        """Finish the run."""
        from airflow_kstreams.batch.run.coordinator import Coordinator
        from airflow_kstreams.batch.run.finished_before import check_finished, nothing_processed
        from airflow_kstreams.batch.run.run_finish import finished_run

        with airflow_outcomes():
            identity = RunIdentity.of(context)
            work = ApplicationWork.on_run(self, identity)
            cluster = work.cluster()
            coordinator = Coordinator(cluster, work.settings, tables=opened_tables(self.tables_conn_id))
            with work.reporting("finish"), closing(coordinator):
                ledger = coordinator.session.read_ledger(wait_ms=0)
                before = finished_run(ledger, identity.run_id)
                if before is not None:
                    check_finished(
                        before,
                        work.settings,
                        plan=None,
                        dag_id=identity.dag_id,
                        interval_ms=identity.interval_ms,
                    )
                summary = before or coordinator.finish(
                    identity.run_id, order=identity.order, owner=identity.owner, seen=ledger
                )
            self.remember(summary, cluster)
            self.outlets = announced(
                context, self.outlets, summary, work.settings, for_backfills=self.backfill_in_order
            )
            self._report(summary, work.settings)
            if not self.allow_parked:
                refuse_parked(cluster, summary)
            if before is not None:
                log.info("%s", nothing_processed(before))
            elif summary.empty:
                log.info("%s", nothing_new_text(ledger, now_ms=summary.finished_ms))
            else:
                seconds = (summary.finished_ms - summary.begun_ms) / 1000
                log.info("%s", outcome_text(summary, seconds=seconds))
        return result_of_summary(summary, already=before is not None)

    def _report(self, summary: RunSummary, settings: ApplicationSettings) -> None:
        for warning in summary.warnings:
            log.warning("Run %s: %s", summary.run_id, warning)
        for row in (*count_rows(summary), *behind_lines(summary), *parked_lines(summary)):
            log.info("%s", row)
        for line in speed_lines(summary.tasks, summary.purposes):
            log.info("%s", line)
        if settings.keeps_to_interval:
            log.info(
                "It is a backfill, of application %s: left out as dated outside its interval: %s",
                settings.application_id,
                counted(summary.records_skipped, "record"),
            )


def incremental_batch(  # noqa: PLR0913 - all but two have defaults
    *,
    application_id: str,
    application: str,
    group_id: str = "incremental_batch",
    kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
    spark_conn_id: str = DEFAULT_SPARK_CONN_ID,
    settings: Mapping[str, Any] | str | None = None,
    conf: Mapping[str, Any] | None = None,
    outlets: Sequence[Asset] = (),
    per_subtopology: bool | Sequence[int] = False,
    backfill_outputs: Mapping[str, str] | str | None = None,
    backfill_in_order: bool = False,
    allow_parked: bool = True,
    tables_conn_id: str | None = None,
) -> TaskGroup:
    """Lay out one incremental run: ``capture_stop_offsets >> run_topology >> finish_run``.

    Give the DAG ``max_active_runs=1`` and, through ``default_args``, retries: an attempt that died is resumed
    by the next one with the same stop offsets. Other arguments reach the tasks through ``default_args``, too,
    e.g. ``env_vars`` and ``py_files`` of the tasks on Spark.

    :param application_id: id of the application, from which its consumer group and internal topics get their
        names.
    :param application: path of the application file, which defines ``topology()``.
    :param group_id: id of the task group.
    :param kafka_conn_id: connection to Kafka.
    :param spark_conn_id: connection to Spark.
    :param settings: application settings by their dotted names.
    :param conf: Spark configuration, e.g. ``{"spark.executor.memory": "2g"}``.
    :param outlets: assets that are updated once the run is finished; their events name run and offsets. A
        backfill that writes other topics does not update them.
    :param per_subtopology: with True, one Airflow task ``run_subtopology_<id>`` for each subtopology takes
        the place of ``run_topology``, in topology order, one after the other; each retries and resumes alone.
        The application file is then loaded wherever the DAG file is parsed, in a process of its own that
        touches no network. A list of the ids in topology order (``airflow-kstreams describe``) spares that.
    :param backfill_outputs: the topic that a backfill of the DAG writes in place of each one that the
        topology writes, e.g. ``{"large-orders": "large-orders-backfilled"}``; without it ``airflow backfill
        create`` is refused by the first task. A topology that keeps state needs a DAG of its own, see
        :func:`~airflow_kstreams.operators.backfill_dag.backfill_dag`.
    :param backfill_in_order: whether the DAG is made for such backfills; its other runs are then skipped.
    :param allow_parked: whether ``finish_run`` succeeds though the run left records parked, see
        :class:`~airflow_kstreams.operators.incremental_batch.FinishRunOperator`.
    :param tables_conn_id: connection that says where the Iceberg and Delta tables are that the topology
        writes; all three tasks use it.
    :return: the task group.
    :raises ConfigError: the application's path is a template, and ``per_subtopology`` is True.
    :raises KStreamsError: ``per_subtopology`` is True, and the application file is wrong.

    >>> from airflow.sdk import DAG
    >>> from airflow_kstreams.operators.incremental_batch import incremental_batch
    >>> with DAG("orders_hourly", schedule="@hourly", max_active_runs=1, default_args={"retries": 2}) as dag:
    ...     group = incremental_batch(application_id="orders", application="/opt/spark_apps/orders.py")
    >>> print(*dag.task_ids)
    incremental_batch.capture_stop_offsets incremental_batch.run_topology incremental_batch.finish_run
    """
    of_run: dict[str, Any] = {
        "application_id": application_id,
        "kafka_conn_id": kafka_conn_id,
        "settings": settings,
        "backfill_outputs": backfill_outputs,
        "backfill_in_order": backfill_in_order,
        "tables_conn_id": tables_conn_id,
    }
    with TaskGroup(group_id=group_id) as group:
        capture = CaptureStopOffsetsOperator(
            task_id="capture_stop_offsets", application=application, **of_run
        )
        runs = [
            RunTopologyOperator(
                task_id="run_topology" if subtopology is None else f"run_subtopology_{subtopology}",
                application=application,
                spark_conn_id=spark_conn_id,
                subtopology=subtopology,
                conf=dict(conf or {}),
                **of_run,
            )
            for subtopology in _parts(application, per_subtopology)
        ]
        finish = FinishRunOperator(
            task_id="finish_run", outlets=list(outlets), allow_parked=allow_parked, **of_run
        )
        chain(capture, *runs, finish)
    return group


def _parts(application: str, per_subtopology: bool | Sequence[int]) -> Sequence[int | None]:
    """Return the subtopology of each Airflow task that processes; None is the whole topology."""
    if per_subtopology is False:
        return [None]
    if per_subtopology is not True:
        return list(dict.fromkeys(per_subtopology))
    if "{{" in application or "{%" in application:
        raise ConfigError(
            f"per_subtopology=True needs the application file where the DAG is parsed, and its path "
            f"{application!r} is a template",
            fix="give the ids of the subtopologies in topology order instead, e.g. per_subtopology=[0, 1] "
            "(airflow-kstreams describe shows them)",
        )
    # The ids of subtopologies do not depend on the application's id, which may be a template.
    loader = ApplicationLoader(application=application, log=log, timeout_seconds=_PARSE_SECONDS)
    # What lands in tables is the work of finish_run, without Spark.
    return [sub.id for sub in loader.plan("parsed").subtopologies if not sub.lands]
