"""Resets an application from a DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_kstreams.batch.report.results import ResetResult, reset_result
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.rendered import Reader, given, json_object, optional_text, topic_names
from airflow_kstreams.hooks.tables_connection import opened_tables
from airflow_kstreams.operators.work.application_work import ApplicationOperator, ApplicationWork
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kstreams.batch.reset.reset_plan import ResetRequest

log = package_log(__name__)

__all__ = ["ResetApplicationOperator"]


class ResetApplicationOperator(ApplicationOperator):
    """Sets an application's offsets and deletes its internal topics, as ``airflow-kstreams reset`` does, so
    that it processes its input again (``docs/explanation/reset.md``).

    It refuses while the application is at work, or has an unfinished run, unless its options say otherwise.
    A retry goes on with a reset that was interrupted, and finds one that is done: offsets are never shifted
    twice. Clear the task to reset again.

    :param application_id: id of the application. (templated)
    :param input_topics: topics whose offsets are set: a list, or text with commas between. (templated)
    :param intermediate_topics: your own topics that the application writes and reads; unread records in them
        are skipped. (templated)
    :param internal_topics: internal topics to delete; all of them by default. (templated)
    :param unread_topics: topics between subtopologies that the topology does not read any more; records in
        them that no run has read are given up. Given alone, the task does nothing else. (templated)
    :param offsets: the new offsets, by the name of one option of the command: ``{"to-datetime":
        "2026-01-31T00:00:00.000"}``, ``{"by-duration": "P1D"}``, ``{"shift-by": -100}``, ``{"to-offset":
        0}``, ``{"to-latest": True}``, ``{"from-file": "/path/to.csv"}``; by default to the earliest.
        (templated)
    :param delete_stop_offsets: whether to drop an unfinished run's slice, too; given without topics, the task
        does nothing else.
    :param force: whether to go on although the application is at work; its run is taken from it.
    :param tables: rows in Iceberg and Delta tables whose records will be read again: ``keep`` them, so that
        they come again, or ``remove`` them; without it a reset by which there would be some is refused.
        (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param settings: application settings by their dotted names. (templated)
    :param tables_conn_id: connection that says where the Iceberg and Delta tables are that the topology
        writes; needed where a run is dropped that has rows for them. (templated)
    :param kwargs: arguments of every Airflow operator: ``task_id``, ``retries``, ...
    :return: a :class:`~airflow_kstreams.hooks.reports.ResetResult`.

    >>> from airflow.sdk import DAG
    >>> with DAG("orders_again", schedule=None, params={"since": "2026-01-31T00:00:00.000"}) as dag:
    ...     reset = ResetApplicationOperator(
    ...         task_id="reset",
    ...         application_id="orders",
    ...         input_topics=["orders"],
    ...         offsets={"to-datetime": "{{ params.since }}"},
    ...     )
    >>> print(*dag.task_ids)
    reset
    """

    template_fields: Sequence[str] = (
        *ApplicationOperator.template_fields,
        "input_topics",
        "intermediate_topics",
        "internal_topics",
        "unread_topics",
        "offsets",
        "tables_conn_id",
        "tables",
    )
    readers: ClassVar[Mapping[str, Reader]] = {
        **ApplicationOperator.readers,
        "input_topics": topic_names,
        "intermediate_topics": topic_names,
        "internal_topics": topic_names,
        "unread_topics": topic_names,
        "offsets": json_object,
        "tables_conn_id": optional_text,
        "tables": optional_text,
    }
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **ApplicationOperator.template_fields_renderers,
        "offsets": "json",
    }
    ui_color = "#f7d5d5"

    def __init__(  # noqa: PLR0913 - all have defaults
        self,
        *,
        input_topics: Sequence[str] | str = (),
        intermediate_topics: Sequence[str] | str = (),
        internal_topics: Sequence[str] | str = (),
        unread_topics: Sequence[str] | str = (),
        offsets: Mapping[str, Any] | str | None = None,
        delete_stop_offsets: bool = False,
        force: bool = False,
        tables_conn_id: str | None = None,
        tables: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_topics: Any = given(input_topics)
        self.intermediate_topics: Any = given(intermediate_topics)
        self.internal_topics: Any = given(internal_topics)
        self.unread_topics: Any = given(unread_topics)
        self.offsets: Any = given(offsets)
        self.delete_stop_offsets = delete_stop_offsets
        self.force = force
        self.tables_conn_id: Any = given(tables_conn_id)
        self.tables: Any = given(tables)

    def execute(self, context: Context) -> ResetResult:
        """Reset the application."""
        from airflow_kstreams.batch.protocol.offsets.parked import parked_text, parked_total
        from airflow_kstreams.batch.reset.reset import ApplicationReset

        with airflow_outcomes():
            work = ApplicationWork.on_live(self, context, "resets an application")
            cluster = work.cluster()
            request = self._request(work.identity.work_id)
            tables = opened_tables(self.tables_conn_id)
            with ApplicationReset(cluster, request, settings=work.settings, tables=tables) as tool:
                done = tool.run()
            if done.done_before:
                log.info("Application %s was reset by an earlier try", self.application_id)
            for change in done.offsets:
                log.info("offset of %s: was %s, is %d", change.partition, change.before, change.after)
            for topic in sorted(done.deleted):
                log.info("internal topic %s: deleted", topic)
            for topic, count in sorted(done.unread.items()):
                log.warning(
                    "topic %s: given up, though no run has read them: %s", topic, counted(count, "record")
                )
            if done.given_up:
                given_up = parked_text(parked_total(done.given_up))
                log.warning("Given up with their retry topics: %s", given_up)
            return reset_result(done)

    def _request(self, reset_id: str) -> ResetRequest:
        from airflow_kstreams.batch.reset.reset_plan import ResetRequest, tables_choice
        from airflow_kstreams.batch.reset.scenario import scenario_of

        return ResetRequest(
            application_id=self.application_id,
            input_topics=self.input_topics,
            scenario=scenario_of(self.offsets),
            intermediate_topics=self.intermediate_topics,
            internal_topics=self.internal_topics,
            unread_topics=self.unread_topics,
            delete_stop_offsets=self.delete_stop_offsets,
            force=self.force,
            reset_id=reset_id,
            tables=tables_choice(self.tables),
        )
