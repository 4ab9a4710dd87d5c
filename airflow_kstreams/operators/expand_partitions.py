"""Grows a topic from a DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_kstreams.batch.report.results import PartitionsResult, partitions_result
from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.operators.work.application_work import ApplicationWork

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["ExpandPartitionsOperator"]


class ExpandPartitionsOperator(BaseOperator):
    """Gives a topic more partitions, as ``airflow-kstreams expand partitions`` does, after a look at what
    that means for the state of an application (``docs/growing.md``).

    What the next run would refuse is refused before anything changes: a topic never loses partitions again.
    Runs may go on meanwhile. The task may be repeated: a topic that has so many partitions stays as it is.

    :param application_id: the application that reads the topic. (templated)
    :param topic: the topic. (templated)
    :param partitions: how many partitions it is to have in all. (templated)
    :param kafka_conn_id: connection to Kafka; its user may alter the topic. (templated)
    :param settings: application settings by their dotted names, as the runs have them. (templated)
    :param kwargs: as for every operator: ``task_id``, ``retries``, ...
    :return: a :class:`~airflow_kstreams.hooks.reports.PartitionsResult`.

    >>> from airflow.sdk import DAG
    >>> with DAG("more_partitions", schedule=None, params={"partitions": 24}) as dag:
    ...     grow = ExpandPartitionsOperator(
    ...         task_id="grow", application_id="orders", topic="orders", partitions="{{ params.partitions }}"
    ...     )
    >>> print(*dag.task_ids)
    grow
    """

    template_fields: Sequence[str] = ("application_id", "topic", "partitions", "kafka_conn_id", "settings")
    template_fields_renderers = {"settings": "json"}
    ui_color = "#d5f0d9"

    def __init__(
        self,
        *,
        application_id: str,
        topic: str,
        partitions: int | str,
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        settings: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application_id = application_id
        self.topic = topic
        self.partitions = partitions
        self.kafka_conn_id = kafka_conn_id
        self.settings = settings

    def execute(self, context: Context) -> PartitionsResult:
        """Grow the topic."""
        from airflow_kstreams.batch.expand.partitions import PartitionExpansion
        from airflow_kstreams.batch.report.growth import growth_notes

        with airflow_outcomes():
            work = ApplicationWork.on_live(self, context, "grows a topic")
            with PartitionExpansion(
                work.cluster(), work.settings, topic=self.topic, count=self.partitions
            ) as tool:
                done = tool.run()
        self.log.info("%s: from %d to %d partitions", done.topic, done.before, done.count)
        for note in growth_notes(done):
            self.log.info("%s", note)
        return partitions_result(done)
