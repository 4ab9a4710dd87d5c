"""Grows topics, and gives state more processors, from a DAG."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_kstreams.batch.report.results import (
    PartitionsResult,
    ProcessorsResult,
    partitions_result,
    processors_result,
)
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.rendered import Reader, given, number, rate, text
from airflow_kstreams.operators.work.application_work import ApplicationOperator, ApplicationWork, Killable
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kstreams.batch.expand.processor_plan import CopiedSource

log = package_log(__name__)

#: Seconds between two log lines on the progress of the copies.
_TELL_SECONDS = 30.0

__all__ = ["ExpandPartitionsOperator", "ExpandProcessorsOperator"]


class ExpandPartitionsOperator(ApplicationOperator):
    """Gives a topic more partitions, as ``airflow-kstreams expand partitions`` does, if the application's
    state allows it (``docs/explanation/growing.md``).

    The task refuses growth that the next run would refuse before it changes anything, because a topic never
    loses partitions again. Runs may go on meanwhile. A repeated task leaves a topic that has this number of
    partitions as it is.

    :param application_id: the application that reads the topic. (templated)
    :param topic: name of the topic. (templated)
    :param partitions: total number of partitions that the topic gets. (templated)
    :param kafka_conn_id: connection to Kafka; its user may alter the topic. (templated)
    :param settings: application settings by their dotted names, as the runs have them. (templated)
    :param kwargs: arguments of every Airflow operator: ``task_id``, ``retries``, ...
    :return: a :class:`~airflow_kstreams.hooks.reports.PartitionsResult`.

    >>> from airflow.sdk import DAG
    >>> with DAG("more_partitions", schedule=None, params={"partitions": 24}) as dag:
    ...     grow = ExpandPartitionsOperator(
    ...         task_id="grow", application_id="orders", topic="orders", partitions="{{ params.partitions }}"
    ...     )
    >>> print(*dag.task_ids)
    grow
    """

    template_fields: Sequence[str] = (*ApplicationOperator.template_fields, "topic", "partitions")
    readers: ClassVar[Mapping[str, Reader]] = {
        **ApplicationOperator.readers,
        "topic": text,
        "partitions": number(1),
    }
    ui_color = "#d5f0d9"

    def __init__(
        self,
        *,
        topic: str,
        partitions: int | str,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.partitions: Any = partitions

    def execute(self, context: Context) -> PartitionsResult:
        """Grow the topic."""
        from airflow_kstreams.batch.expand.growth import grow_topic
        from airflow_kstreams.batch.report.growing import growth_notes

        with airflow_outcomes():
            work = ApplicationWork.on_live(self, context, "grows a topic")
            done = grow_topic(work.cluster(), work.settings, topic=self.topic, count=self.partitions)
        log.info("topic %s: %s before, %d now", done.topic, counted(done.before, "partition"), done.count)
        for note in growth_notes(done):
            log.info("%s", note)
        return partitions_result(done)


class ExpandProcessorsOperator(Killable, ApplicationOperator):
    """Gives a subtopology with state more processors, as ``airflow-kstreams expand processors`` does: copies
    the state of the keys that will move, while runs go on, until the next run can take over
    (``docs/explanation/growing.md``).

    The task ends when it has copied the state that it found; the begin of a run then takes over, and copies
    the entries that runs have added since. With ``wait`` the task goes on copying until a run has taken over.
    A retry goes on where the last try stopped, and succeeds at once when the processors are there. The task
    refuses an impossible number before it changes anything.

    :param application_id: id of the application. (templated)
    :param processors: total number of processors that the subtopology gets. (templated)
    :param subtopology: id of the subtopology; not needed where only one keeps state. (templated)
    :param rate: changelog records per second to read; without a limit unless given. (templated)
    :param parallel: number of old processors whose state the task copies at the same time. (templated)
    :param wait: whether to go on until a run has taken over. Such a task must not come before the run in its
        own DAG: each would wait for the other.
    :param kafka_conn_id: connection to Kafka; its user may alter and write the changelogs. (templated)
    :param settings: application settings by their dotted names, as the runs have them. (templated)
    :param kwargs: arguments of every Airflow operator: ``task_id``, ``retries``, ...
    :return: a :class:`~airflow_kstreams.hooks.reports.ProcessorsResult`.

    >>> from airflow.sdk import DAG
    >>> with DAG("more_processors", schedule=None, params={"processors": 24}) as dag:
    ...     grow = ExpandProcessorsOperator(
    ...         task_id="grow", application_id="orders", processors="{{ params.processors }}"
    ...     )
    >>> print(*dag.task_ids)
    grow
    """

    template_fields: Sequence[str] = (
        *ApplicationOperator.template_fields,
        "processors",
        "subtopology",
        "rate",
        "parallel",
    )
    readers: ClassVar[Mapping[str, Reader]] = {
        **ApplicationOperator.readers,
        "processors": number(1),
        "subtopology": number(0, optional=True),
        "rate": rate,
        "parallel": number(1),
    }
    ui_color = "#d5f0d9"
    _told = float("-inf")

    def __init__(
        self,
        *,
        processors: int | str,
        subtopology: int | str | None = None,
        rate: float | str | None = None,
        parallel: int | str = 4,
        wait: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.processors: Any = processors
        self.subtopology: Any = given(subtopology)
        self.rate: Any = given(rate)
        self.parallel: Any = parallel
        self.wait = wait

    def execute(self, context: Context) -> ProcessorsResult:
        """Copy the state."""
        from airflow_kstreams.batch.expand.processor_expansion import CatchUpOptions, ProcessorExpansion

        with airflow_outcomes():
            work = ApplicationWork.on_live(self, context, "gives state more processors")
            options = CatchUpOptions(rate=self.rate, parallel=self.parallel, follow=self.wait)
            with ProcessorExpansion(
                work.cluster(),
                work.settings,
                subtopology=self.subtopology,
                count=self.processors,
            ) as tool:
                done = tool.run(options, self._progress)
        if done.after is None:
            log.info("subtopology %d has %s", done.sub.id, counted(done.before, "processor"))
        else:
            log.info(
                "subtopology %d: state for %d instead of %s is copied; the next run that finds "
                "no more than acceptable.recovery.lag records left takes over",
                done.sub.id,
                done.after.count,
                counted(done.before, "processor"),
            )
        return processors_result(done)

    def _progress(self, found: Sequence[CopiedSource]) -> None:
        """Log the progress of the copies now and then; a task that was killed copies no more."""
        from airflow_kstreams.batch.expand.processor_plan import copied_of

        self.refuse_when_killed("all state was copied")
        now = time.monotonic()
        if now < self._told + _TELL_SECONDS:
            return
        self._told = now
        copied, total = copied_of(found)
        log.info("copied up to %s of %s", f"{copied:,}", counted(total, "changelog record"))
