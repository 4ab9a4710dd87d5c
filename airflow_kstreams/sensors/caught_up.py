"""Waits until an application has processed its input topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_kstreams.batch.inspect.conditions import CaughtUp
from airflow_kstreams.hooks.rendered import Reader, given, number, topic_names
from airflow_kstreams.sensors.condition_sensor import ConditionSensor

__all__ = ["CaughtUpSensor"]


class CaughtUpSensor(ConditionSensor):
    """Waits until an application has processed what its input topics hold.

    It serves where no finished run can be waited for: behind a continuous application, which finishes none,
    or after a reset that makes several runs process old records again. Records below the offsets that the
    application's group has committed are processed, those of a run under way included. Records are counted as
    a read_committed reader sees them. The sensor joins no group and commits nothing.

    Where the committed offsets are the ends, no record is fetched. Else at most one more than ``max_records``
    is counted, since transaction markers and compacted records have offsets, too: in a process of its own,
    whose memory is bounded (``KSTREAMS_LOOK_MEMORY_BYTES``).

    :param application_id: the application. (templated)
    :param topics: its input topics, as a list, or as text with commas between them; those of its last run by
        default. (templated)
    :param max_records: number of records that may be left: more than 0 if new ones arrive all the time. They
        are read to be counted, so leave it small. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param deferrable: whether to wait in the triggerer, without occupying a worker slot; by default as
        ``[operators] default_deferrable`` says, except with ``mode="reschedule"`` or ``exponential_backoff``,
        which have no effect there.
    :param kwargs: as for every sensor: ``poke_interval`` and ``timeout`` in seconds, ``mode``, ``soft_fail``,
        ...
    :return: a :class:`~airflow_kstreams.hooks.reports.NewDataResult` of what is left; its ``oldest_ms`` is 0
        if nothing is.

    >>> from airflow.sdk import DAG
    >>> from airflow_kstreams.sensors.caught_up import CaughtUpSensor
    >>> with DAG("orders_report", schedule="@daily"):
    ...     caught_up = CaughtUpSensor(
    ...         task_id="orders_are_processed", application_id="orders", max_records=100, deferrable=True
    ...     )
    """

    template_fields: Sequence[str] = (*ConditionSensor.template_fields, "topics", "max_records")
    readers: ClassVar[Mapping[str, Reader]] = {
        **ConditionSensor.readers,
        "topics": topic_names,
        "max_records": number(0),
    }

    def __init__(
        self,
        *,
        topics: Sequence[str] | str | None = None,
        max_records: int | str = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics: Any = given(topics)
        self.max_records: Any = max_records

    def _condition(self) -> CaughtUp:
        return CaughtUp(
            application_id=self.application_id,
            topics=self.topics,
            max_records=self.max_records,
        )
