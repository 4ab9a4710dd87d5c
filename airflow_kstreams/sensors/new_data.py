"""Waits until there are records for a run to process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from airflow_kstreams.batch.inspect.conditions import NewData
from airflow_kstreams.hooks.rendered import Reader, given, number, span, topic_names
from airflow_kstreams.sensors.condition_sensor import ConditionSensor

__all__ = ["NewDataSensor"]


class NewDataSensor(ConditionSensor):
    """Waits until enough records have arrived that no run of an application has processed.

    Enough is a number of records, or fewer if one of them has waited long enough. Records are counted as a
    read_committed reader sees them: no transaction markers, nothing aborted, nothing of an open transaction.
    What a run that is under way will process does not count. New is what the next run would read: at or past
    the offsets that the application's group has committed, which a reset or a continuous run moves, too.
    (Offsets that another tool sets while a sensor waits in the triggerer count once a run or a reset of the
    application has followed.) Records that the last run left parked, for another attempt of their calls, are
    enough, however few, once the first of them is due. The sensor joins no group and commits nothing.

    :param application_id: the application; its ledger says up to where its runs have processed. (templated)
    :param topics: its input topics, as a list, or as text with commas between them; those of its last run by
        default. (templated)
    While there are fewer new offsets than ``min_records``, and no ``older_than``, no record is fetched. Else
    as many are as decide, since transaction markers and compacted records have offsets, too: in a process of
    its own, whose memory is bounded (``KSTREAMS_LOOK_MEMORY_BYTES``).

    :param min_records: number of new records that are enough; they are read to be counted, so leave it small,
        and let ``older_than`` do the rest. (templated)
    :param older_than: age of a record, by its timestamp, from which one new record is enough: a
        ``timedelta``, seconds, or text such as ``PT15M``. Where a partition is read in the order of its log,
        its first new record is taken for its oldest. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param deferrable: whether to wait in the triggerer, without occupying a worker slot; by default as
        ``[operators] default_deferrable`` says, except with ``mode="reschedule"`` or ``exponential_backoff``,
        which have no effect there.
    :param kwargs: as for every sensor: ``poke_interval`` and ``timeout`` in seconds, ``mode``, ``soft_fail``,
        ...
    :return: a :class:`~airflow_kstreams.hooks.reports.NewDataResult`.

    >>> from datetime import timedelta
    >>> from airflow.sdk import DAG
    >>> from airflow_kstreams.sensors.new_data import NewDataSensor
    >>> with DAG("orders_when_it_pays", schedule="*/5 * * * *", max_active_runs=1):
    ...     enough = NewDataSensor(
    ...         task_id="enough_orders",
    ...         application_id="orders",
    ...         topics=["orders"],
    ...         min_records=1_000,
    ...         older_than=timedelta(minutes=15),
    ...         deferrable=True,
    ...     )
    """

    template_fields: Sequence[str] = (*ConditionSensor.template_fields, "topics", "min_records", "older_than")
    readers: ClassVar[Mapping[str, Reader]] = {
        **ConditionSensor.readers,
        "topics": topic_names,
        "min_records": number(1),
        "older_than": span,
    }

    def __init__(
        self,
        *,
        topics: Sequence[str] | str | None = None,
        min_records: int | str = 1,
        older_than: timedelta | float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics: Any = given(topics)
        self.min_records: Any = min_records
        self.older_than: Any = given(older_than)

    def _condition(self) -> NewData:
        span_ = self.older_than
        return NewData(
            application_id=self.application_id,
            topics=self.topics,
            min_records=self.min_records,
            older_than_ms=None if span_ is None else round(span_.total_seconds() * 1000),
        )
