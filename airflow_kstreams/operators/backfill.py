"""Processes one past interval once more, in one task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_kstreams.hooks.rendered import Reader, given, interval_ms, moment, optional_text
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.operators.work.run_settings import RunIdentity
from airflow_kstreams.streams.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["BackfillOperator"]


class BackfillOperator(RunTopologyOperator):
    """Processes one past interval once more, beside the live application: begins, processes and finishes a
    run of an application of its own (``docs/explanation/backfill.md``).

    It serves DAGs that name the interval themselves, such as one that is triggered with a time in its conf.
    For the intervals of a schedule, ``airflow backfill create`` needs no task of its own.

    A retry, and a dag run that is cleared, go on with the run that was begun, or find it finished. Another
    dag run processes the interval again, in an application ``<application_id>-backfill-<12 hex>`` of its own.
    A topology that keeps state needs ``backfill_in_order`` and a name: all intervals of that name share the
    state of ``<application_id>-backfill-<name>``, and each must begin where the ones before have ended.

    :param application_id: id of the live application. (templated)
    :param application: path of the application file, which defines ``topology()``. (templated)
    :param backfill_outputs: the topic to write in place of each one that the topology writes, and for each
        table, under ``table:<name>``, the identifier or URI of another one, or its own. (templated)
    :param replace: ``interval`` to replace what the tables have of the interval, in one snapshot each; by
        default rows are added beside what is there (setting ``backfill.replace``).
    :param interval_start: first moment of the interval, a ``datetime`` or ISO 8601 text, in UTC unless it has
        a zone; by default the start of the dag run's data interval. (templated)
    :param interval_end: first moment past the interval; given together with the start. (templated)
    :param backfill_name: name of the backfill, in characters that topic names allow; by default the one in
        the dag run conf under ``backfill``. (templated)
    :param backfill_in_order: whether the intervals are processed in order and share their state.
    :param kwargs: arguments of :class:`~airflow_kstreams.operators.run_topology.RunTopologyOperator`, except
        ``finish`` and ``subtopology``. The events of ``outlets`` say that the run is a backfill.
    :return: a :class:`~airflow_kstreams.hooks.reports.RunResult`.

    >>> from airflow.sdk import DAG
    >>> with DAG("orders_again", schedule=None, params={"day": "2026-01-31", "next": "2026-02-01"}) as dag:
    ...     again = BackfillOperator(
    ...         task_id="again",
    ...         application_id="orders",
    ...         application="/opt/spark_apps/orders.py",
    ...         backfill_outputs={"large-orders": "large-orders-backfilled"},
    ...         interval_start="{{ params.day }}",
    ...         interval_end="{{ params.next }}",
    ...     )
    >>> print(*dag.task_ids)
    again
    """

    template_fields: Sequence[str] = (
        "interval_start",
        "interval_end",
        "backfill_name",
        *(name for name in RunTopologyOperator.template_fields if name != "subtopology"),
    )
    readers: ClassVar[Mapping[str, Reader]] = {
        **RunTopologyOperator.readers,
        "interval_start": moment,
        "interval_end": moment,
        "backfill_name": optional_text,
    }

    def __init__(  # noqa: PLR0913 - most have defaults
        self,
        *,
        application_id: str,
        application: str,
        backfill_outputs: Mapping[str, str] | str,
        interval_start: datetime | str | None = None,
        interval_end: datetime | str | None = None,
        backfill_name: str = "",
        backfill_in_order: bool = False,
        replace: str = "",
        **kwargs: Any,
    ) -> None:
        if refused := {"finish", "subtopology"} & kwargs.keys():
            raise TypeError(
                f"BackfillOperator takes no {min(refused)}: it processes and finishes a whole run"
            )
        super().__init__(
            application_id=application_id,
            application=application,
            backfill_outputs=backfill_outputs,
            backfill_in_order=backfill_in_order,
            finish=True,
            **kwargs,
        )
        self.interval_start: Any = given(interval_start)
        self.interval_end: Any = given(interval_end)
        self.backfill_name = backfill_name
        self.backfill_replace = replace

    @property
    def _for_backfills(self) -> bool:
        return True

    @property
    def _interval_timetable(self) -> Any:
        """The DAG's timetable, unless the interval is given."""
        return None if self.interval_start or self.interval_end else super()._interval_timetable

    def _identity(self, context: Context) -> RunIdentity:
        """Return the run of this interval; a dag run may have several.

        :raises ConfigError: one end of the interval is missing, or the two make no interval.
        """
        self.read_rendered()
        run = RunIdentity.of(context)
        run = dataclasses.replace(run, backfill=True, backfill_name=self.backfill_name or run.backfill_name)
        if not self.interval_start and not self.interval_end:
            return run
        start = _in_utc("interval_start", self.interval_start)
        end = _in_utc("interval_end", self.interval_end)
        return dataclasses.replace(
            run,
            run_id=f"{run.run_id}__{start.isoformat()}__{end.isoformat()}",
            interval_ms=interval_ms(start, end),
        )


def _in_utc(name: str, found: datetime | None) -> datetime:
    if found is None:
        raise ConfigError(
            f"{name} is left out, and the other end of the interval is given",
            fix="give both ends of the interval as ISO 8601, e.g. 2026-01-31T12:00:00+00:00",
        )
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
