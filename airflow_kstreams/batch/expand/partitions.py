"""Gives a topic of an application more partitions.

Rule: what the next begin would refuse is refused here, before the topic grows: a topic never loses partitions
again. What follows from growth is begin's business, whoever has grown the topic: history, groups, boundaries.

Crash argument: the new count is asked for as a whole (``--to``), in one request. Before it nothing has
changed; after it, answered or not, the topic has so many partitions, and the same command finds that done. A
begin at the same time sees the topic either as it was or as it is.
"""

from __future__ import annotations

import logging
from typing import Self

from airflow_kstreams.batch.expand.growth_plan import GrowthPlan, plan_growth
from airflow_kstreams.batch.run.session import CoordinatorSession
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)


class PartitionExpansion:
    """One topic that is to grow; a context manager that closes its clients.

    :param cluster: where the application is.
    :param settings: of the application, as its runs have them.
    :param topic: which one.
    :param count: how many partitions it is to have: a whole number, or its text.
    :raises ConfigError: it is none.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        settings: ApplicationSettings,
        *,
        topic: str,
        count: int | str,
        clock: Clock | None = None,
    ) -> None:
        self._topic, self._count = topic, _whole(topic, count)
        self._session = CoordinatorSession(cluster, settings, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def plan(self) -> GrowthPlan:
        """Return what :meth:`run` would do. Changes nothing, claims nothing, disturbs no run.

        :raises ConfigError: as :func:`plan_growth`.
        :raises TopologyError: as :func:`plan_growth`.
        """
        return plan_growth(self._session, self._topic, self._count)

    def run(self) -> GrowthPlan:
        """Grow the topic, unless it has so many partitions already.

        :return: as it was planned, with the partition count before.
        :raises ConfigError: as :func:`plan_growth`.
        :raises TopologyError: as :func:`plan_growth`.
        :raises KafkaClientError: the broker refuses, or does not answer in time; the same again goes on.
        """
        plan = self.plan()
        if not plan.done:
            self._session.admin.create_partitions(self._topic, self._count)
            log.info(
                "application %s: topic %s has grown from %d to %d partitions",
                plan.application_id,
                self._topic,
                plan.before,
                self._count,
            )
        return plan


def _whole(topic: str, count: int | str) -> int:
    try:
        found = int(count)
    except ValueError:
        found = 0
    if found < 1:
        raise ConfigError(
            f"topic {topic} cannot have {count!r} partitions", fix="say how many it is to have in all"
        )
    return found
