"""Makes every check of an application that a cluster can answer.

The checks look at one subject, and at facts of the cluster that were read once for all of them. They write
nothing, and none needs another, so they may be made side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import pairwise

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.metadata_owner import refuse_others_metadata
from airflow_kstreams.batch.inspect.doctor.looks import (
    DoctorLook,
    Finding,
    Looking,
    error,
    in_turn,
    not_permitted,
    ok,
)
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.needed_permissions import BROKERS_OWN, run_permissions
from airflow_kstreams.batch.protocol.topics import internal_settings
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.batch.run.source_topics import matched_plan
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.naming.commands import set_topic_command
from airflow_kstreams.streams.naming.permissions import Permission
from airflow_kstreams.streams.partitioning.partition_groups import first_few
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, TopicDescription
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_port import TablesPort

#: ``message.max.bytes`` of the client library.
CLIENT_MAX_BYTES = 1_000_000
_FIRST_GAP_MS = 24 * 3_600_000
#: How many of the last runs the checks look at.
WATCHED_RUNS = 50
#: The modules of this folder whose function ``check`` yields findings, and what each looks at, in the order
#: in which an operator would mend what they find.
CHECKS = {
    "broker_checks": "settings of brokers",
    "topic_checks": "settings of topics",
    "retention_checks": "input retention",
    "permission_checks": "permissions",
    "clock_checks": "clocks",
    "growing_checks": "growth",
    "run_checks": "runs",
    "table_checks": "tables",
}


def diagnose(
    cluster: ClusterPort, subject: Subject, *, clock: Clock | None = None, looking: Looking = in_turn
) -> list[Finding]:
    """Make every check.

    :param looking: makes the looks.
    :raises KafkaClientError: the cluster cannot be reached, or does not let this user look at topics; as far
        as ``looking`` raises it.
    """
    with closing(cluster.admin()) as admin:
        looks = partial(_looks, cluster, admin, subject, clock or SystemClock())
        return looking(DoctorLook(check="topics and ledger", findings=looks))


def _looks(
    cluster: ClusterPort, admin: AdminPort, subject: Subject, clock: Clock
) -> Iterator[Finding | DoctorLook]:
    plan = matched_plan(subject.plan, admin, subject.settings)
    subject = replace(subject, plan=plan)
    user_topics = {*plan.sources, *plan.outputs, *plan.globals}
    found = dict(admin.describe_topics({*user_topics, *internal_settings(plan)}))
    yield ok("broker", "answers")
    for pattern, matches in plan.patterns.items():
        yield ok("patterns", f"{pattern} matches {', '.join(matches)}")
    try:
        found |= admin.describe_topics(BROKERS_OWN)
    except KafkaClientError as refused:
        yield not_permitted("the brokers' own topics", refused)
    app = plan.application_id
    try:
        with closing(cluster.reader(group_id=app)) as reader:
            ledger = read_ledger(cluster, app, admin=admin, reader=reader, wait_ms=0, clock=clock)
            refuse_others_metadata(
                cluster, ledger, app, topics=lambda: plan.sources, admin=admin, reader=reader, clock=clock
            )
            latest = tuple(ledger.latest(WATCHED_RUNS))
    except ConfigError as theirs:
        # No other check makes sense for an application whose ledger or metadata topic is another program's.
        yield error("topics", "topic-of-another", theirs.cause, theirs.fix)
        return
    seen = DoctorView(
        subject=subject,
        cluster=cluster,
        admin=admin,
        clock=clock,
        topics=found,
        ledger=ledger,
        latest=latest,
    )
    for module, check in CHECKS.items():
        yield DoctorLook(check=check, findings=partial(import_module(f"{__package__}.{module}").check, seen))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The application that the checks look at.

    :param groups: calls the topology's own partition grouper; None when it has none.
    :param gap_ms: longest time between two runs; None to take it from the ledger.
    :param producer_max_bytes: the client's ``message.max.bytes``.
    :param needs: gives the permissions that this user needs; those of runs unless given.
    :param tables: opens the tables that it writes to; None if it was not said where they are.
    :param first_run: whether no run of the application has begun yet, so that its id may be unknown.
    """

    plan: TopologyPlan
    settings: ApplicationSettings
    groups: AskGroups | None = None
    gap_ms: int | None = None
    producer_max_bytes: int = CLIENT_MAX_BYTES
    tables: TablesPort | None = None
    first_run: bool = False
    needs: Callable[[TopologyPlan, ApplicationSettings], Sequence[Permission]] = run_permissions


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorView:
    """The subject, and the cluster as it was read once for all checks.

    :param topics: topic -> its description, for the application's topics and the brokers' own that exist.
    :param ledger: ledger of the application. The reader by which it finds earlier runs is closed.
    :param latest: the runs that finished last, at most :data:`WATCHED_RUNS`, the last one at the end.
    """

    subject: Subject
    cluster: ClusterPort
    admin: AdminPort
    clock: Clock
    topics: Mapping[str, TopicDescription]
    ledger: Ledger
    latest: Sequence[RunSummary]

    @property
    def plan(self) -> TopologyPlan:
        """The plan of the topology."""
        return self.subject.plan

    @property
    def gap_ms(self) -> int:
        """Longest time between the beginnings of two runs that follow each other, of the last ones; a day
        before there were two.
        """
        if self.subject.gap_ms:
            return self.subject.gap_ms
        begun = [run.begun_ms for run in self.latest]
        return max((later - earlier for earlier, later in pairwise(begun)), default=_FIRST_GAP_MS)


def names(topics: Iterable[str]) -> str:
    """Return the first few names, and the number of the others."""
    return first_few(sorted(topics))


def number(configs: Mapping[str, str], name: str) -> int | None:
    """Return a setting as a number, None if the broker does not give it."""
    try:
        return int(configs[name])
    except (KeyError, ValueError):
        return None


def set_topic(topic: str, **configs: str) -> str:
    """Return the command that changes a topic's settings.

    :param configs: settings to change, with underscores for dots: ``retention_ms="1000"``.
    """
    return set_topic_command(topic, {name.replace("_", "."): value for name, value in configs.items()})


def for_each(topics: Iterable[str], command: Callable[[str], str]) -> str:
    """Return the command for each topic, to be executed one after the other."""
    return "; then ".join(map(command, sorted(topics)))
