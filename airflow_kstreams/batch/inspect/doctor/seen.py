"""Holds what the checks look at: the subject, and what was read of the cluster once for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, TopicDescription
from airflow_kstreams.streams.settings import ApplicationSettings

#: ``message.max.bytes`` of the client library.
CLIENT_MAX_BYTES = 1_000_000

_FIRST_GAP_MS = 24 * 3_600_000
_GAPS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The application that the checks look at.

    :param groups: asks the topology's own partition grouper; None when it has none.
    :param gap_ms: longest time between two runs; None to take it from the ledger.
    :param producer_max_bytes: the client's ``message.max.bytes``.
    """

    plan: TopologyPlan
    settings: ApplicationSettings
    groups: AskGroups | None = None
    gap_ms: int | None = None
    producer_max_bytes: int = CLIENT_MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorView:
    """The subject, and the cluster as it was read once for all checks.

    :param topics: the application's topics and the brokers' own that exist, by name.
    :param ledger: the application's.
    """

    subject: Subject
    cluster: ClusterPort
    admin: AdminPort
    clock: Clock
    topics: Mapping[str, TopicDescription]
    ledger: Ledger

    @property
    def plan(self) -> TopologyPlan:
        """The topology's."""
        return self.subject.plan

    @property
    def gap_ms(self) -> int:
        """Longest time between the beginnings of two runs that follow each other, of the last ones; a day
        before there were two.
        """
        if self.subject.gap_ms:
            return self.subject.gap_ms
        begun = [run.begun_ms for run in self.ledger.latest(_GAPS)]
        return max((later - earlier for earlier, later in pairwise(begun)), default=_FIRST_GAP_MS)
