"""Makes the last step of a run: the finished marker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_kstreams.batch.report.counts import behind_lines, count_rows, headline, parked_lines, speed_lines
from airflow_kstreams.batch.report.results import RunResult, result_of_summary
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.operators.work.application_work import ApplicationWork, RunOperator
from airflow_kstreams.operators.work.lineage_facets import ReportsLineage, announced
from airflow_kstreams.operators.work.run_settings import RunIdentity
from airflow_kstreams.operators.work.run_state import refuse_parked

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["FinishRunOperator"]


class FinishRunOperator(ReportsLineage, RunOperator):
    """Finishes a run: the finished marker and the ledger's entry, in one transaction (KIP-95).

    It refuses unless every input and intermediate partition is committed up to its stop offset. Executed
    again, it finds the run finished and changes nothing.

    :param application_id: names the consumer group and the internal topics. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param settings: application settings by their dotted names. (templated)
    :param backfill_outputs: the topic that a backfill run writes in place of each one that the topology
        writes; refused in a backfill unless given, see ``docs/backfill.md``. (templated)
    :param backfill_in_order: whether the task's DAG is there for the backfills of a topology that keeps
        state, see :func:`~airflow_kstreams.operators.backfill_dag.backfill_dag`.
    :param allow_parked: whether the task succeeds though the run left records parked for another attempt of
        their calls. With False it fails then, though the run is finished and stays so, and says how many are
        parked where and when they are due; its retry looks whether later runs have processed them.
    :param kwargs: as for every operator: ``task_id``, ``retries``, ... The events of assets in ``outlets``
        say which run it was and which offsets it processed
        (:func:`~airflow_kstreams.hooks.reports.event_extra`); a backfill that writes other topics than
        the live application does not update them.
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

        with airflow_outcomes():
            identity = RunIdentity.of(context)
            work = ApplicationWork.on_run(self, identity)
            cluster = work.cluster()
            coordinator = Coordinator(cluster, work.settings)
            try:
                before = coordinator.finished(identity.run_id)
                if before is not None:
                    check_finished(
                        before,
                        work.settings,
                        plan=None,
                        dag_id=identity.dag_id,
                        interval_ms=identity.interval_ms,
                    )
                summary = before or coordinator.finish(identity.run_id)
            finally:
                coordinator.close()
        self.remember(summary, cluster)
        self.outlets = announced(
            context, self.outlets, summary, work.settings, for_backfills=self.backfill_in_order
        )
        result = result_of_summary(summary, already=before is not None)
        for warning in summary.warnings:
            self.log.warning("Run %s: %s", summary.run_id, warning)
        self.log.info("Run %s is finished: %s", summary.run_id, headline(summary))
        for row in (*count_rows(summary), *behind_lines(summary), *parked_lines(summary)):
            self.log.info("%s", row)
        for line in speed_lines(summary.tasks):
            self.log.info("%s", line)
        if work.settings.keeps_to_interval:
            self.log.info(
                "It is a backfill, of application %s: %d records dated outside its interval were left out",
                work.settings.application_id,
                result["records_skipped"],
            )
        if before is not None:
            self.log.info("%s", nothing_processed(before))
        if not self.allow_parked:
            with airflow_outcomes():
                refuse_parked(cluster, summary)
        return result
