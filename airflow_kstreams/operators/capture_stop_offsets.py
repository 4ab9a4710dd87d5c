"""Makes the first step of a run: freezes where it stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_kstreams.batch.report.results import RunResult, result_of_slice, result_of_summary
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.rendered import Reader, text
from airflow_kstreams.operators.work.application_work import ApplicationWork, Killable, RunOperator
from airflow_kstreams.operators.work.lineage_facets import ReportsLineage, refuse_outlets
from airflow_kstreams.operators.work.run_settings import RunIdentity, refuse_state_side_by_side

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kstreams.batch.run.slice_request import BeginResult

__all__ = ["CaptureStopOffsetsOperator"]


class CaptureStopOffsetsOperator(ReportsLineage, Killable, RunOperator):
    """Begins a run: writes the stop offset of every input partition, all or nothing, into the metadata topic
    (KIP-95).

    Executed again for the same dag run, wherever the log ends by then, it finds the run's stop offsets and
    leaves them as they are. If an earlier run did not finish, its slice stays first in line, and
    :class:`RunTopologyOperator` completes it before this run's own.

    :param application_id: names the consumer group and the internal topics. (templated)
    :param application: path of the application file, which defines ``topology()``. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param settings: application settings by their dotted names, e.g. ``{"processing.guarantee":
        "exactly_once"}``. (templated)
    :param backfill_outputs: the topic that a backfill run writes in place of each one that the topology
        writes; refused in a backfill unless given, see ``docs/backfill.md``. (templated)
    :param backfill_in_order: whether the task's DAG is there for the backfills of a topology that keeps
        state, see :func:`~airflow_kstreams.operators.backfill_dag.backfill_dag`.
    :param kwargs: as for every operator: ``task_id``, ``retries``, ... but no ``outlets``: nothing is
        complete yet.
    :return: a :class:`~airflow_kstreams.hooks.reports.RunResult`.
    :raises ConfigError: there are outlets.
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
        from airflow_kstreams.batch.run.begin.intervals import check_interval
        from airflow_kstreams.batch.run.coordinator import Coordinator

        with airflow_outcomes():
            refuse_outlets(self.task_id, self.outlets)  # which may be added to a task
            identity = RunIdentity.of(context)
            work = ApplicationWork.on_run(self, identity)
            check_interval(work.settings, identity.run_id, identity.interval_ms)
            cluster = work.cluster()
            loader = work.loader(self.application, log=self.log, was_killed=self.was_killed)
            plan = loader.plan(work.settings.application_id)
            refuse_state_side_by_side(plan, identity, self.application_id, in_order=self.backfill_in_order)
            coordinator = Coordinator(cluster, work.settings)
            try:
                begun = coordinator.begin(
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
            finally:
                coordinator.close()
            self.remember(begun.finished or begun.slice, cluster)
            return self._report(identity.run_id, begun)

    def _report(self, run_id: str, begun: BeginResult) -> RunResult:
        from airflow_kstreams.batch.run.finished_before import nothing_processed

        if begun.finished is not None:
            self.log.info("%s", nothing_processed(begun.finished))
            return result_of_summary(begun.finished, already=True)
        if begun.slice is None:
            raise ValueError("begin returned neither a slice nor a summary")
        result = result_of_slice(begun.slice)
        for warning in begun.slice.plan.warnings:
            self.log.warning("Run %s: %s", begun.slice.run_id, warning)
        if begun.slice.run_id != run_id:
            self.log.warning(
                "Run %s is unfinished: it is finished before run %s begins", begun.slice.run_id, run_id
            )
            return result
        for partition in begun.slice.inputs:
            self.log.info(
                "%s-%d: from offset %d to stop offset %d",
                partition.topic,
                partition.partition,
                partition.start_offset,
                partition.stop_offset,
            )
        self.log.info(
            "Run %s %s: %d offsets to read, generation %d",
            run_id,
            "begun" if begun.created else "resumed with the stop offsets it began with",
            result["record_span"],
            result["generation"],
        )
        return result
