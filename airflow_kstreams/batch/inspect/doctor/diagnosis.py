"""Makes every check, in the order in which a person would mend what they find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.inspect.doctor.broker_checks import check_broker, check_transactions
from airflow_kstreams.batch.inspect.doctor.findings import Finding, error, ok, warning
from airflow_kstreams.batch.inspect.doctor.run_checks import (
    check_losses,
    check_state,
    check_transactions_open,
    longest_gap_ms,
    record_times,
)
from airflow_kstreams.batch.inspect.doctor.topic_checks import (
    Expectations,
    Topics,
    check_internal,
    check_outputs,
    check_replication,
    check_retention,
)
from airflow_kstreams.batch.protocol.ledger import read_ledger
from airflow_kstreams.batch.protocol.log_read import OpenTransactionError
from airflow_kstreams.batch.protocol.metadata import read_metadata
from airflow_kstreams.batch.protocol.permissions import BROKERS_OWN
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.batch.run.prior_runs import unless_void
from airflow_kstreams.batch.run.topics import check_topics, internal_configs
from airflow_kstreams.streams.errors import KafkaClientError, TopologyError
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings

#: ``message.max.bytes`` of the client library.
CLIENT_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What to look at.

    :param groups: asks the topology's own partition grouper; None when it has none.
    :param gap_ms: longest time between two runs; None to take it from the ledger.
    :param producer_max_bytes: the client's ``message.max.bytes``.
    """

    plan: TopologyPlan
    settings: ApplicationSettings
    groups: AskGroups | None = None
    gap_ms: int | None = None
    producer_max_bytes: int = CLIENT_MAX_BYTES


def diagnose(cluster: ClusterPort, subject: Subject, *, clock: Clock | None = None) -> list[Finding]:
    """Make every check.

    :raises KafkaClientError: the cluster cannot be reached, or does not let this user look at topics.
    """
    clock = clock or SystemClock()
    with ExitStack() as clients:
        admin = cluster.admin()
        clients.callback(admin.close)
        return list(_findings(cluster, admin, subject, clock))


def _findings(cluster: ClusterPort, admin: AdminPort, subject: Subject, clock: Clock) -> Iterator[Finding]:
    plan, app = subject.plan, subject.plan.application_id
    internal = internal_configs(plan)
    found = dict(admin.describe_topics({*plan.sources, *plan.outputs, *internal}))
    yield ok("broker", "answers")
    try:
        found |= admin.describe_topics(BROKERS_OWN)
    except KafkaClientError as refused:
        yield from _not_permitted("the brokers' own topics", refused)
    ledger = read_ledger(cluster, app, admin=admin, wait_ms=0, clock=clock)
    gap_ms = subject.gap_ms or longest_gap_ms(ledger)
    try:
        configs = admin.broker_configs()
    except KafkaClientError as refused:
        yield from _not_permitted("the broker's settings", refused)
    else:
        yield from check_broker(configs, {name: topic.topic_id for name, topic in found.items()})
        yield from check_transactions(subject.settings, admin, configs, gap_ms)
    try:
        check_topics(admin, plan, groups=subject.groups, recorded=ledger.assignment)
    except TopologyError as refused_topics:
        yield error("topics", refused_topics.cause, refused_topics.fix)
    else:
        yield ok("topics", "inputs and outputs exist, partition counts and groups fit")
    topic_configs, unseen = _configs(admin, list(found))
    if unseen:
        yield from _not_permitted(f"the settings of {len(unseen)} topics", unseen[0])
    topics = Topics(
        found=found,
        configs=topic_configs,
        inputs=plan.inputs,
        intermediates=tuple(t for t in plan.intermediates if t not in plan.repartition_topics),
        outputs=plan.outputs,
        internal=internal,
        brokers_own=BROKERS_OWN,
    )
    expected = Expectations(
        gap_ms=gap_ms,
        producer_max_bytes=subject.producer_max_bytes,
        times=record_times(ledger, plan, now_ms=clock.now_ms()),
    )
    yield from check_replication(topics)
    yield from check_retention(topics, expected)
    yield from check_outputs(topics, expected)
    yield from check_internal(topics)
    yield from check_transactions_open(cluster, admin, plan, found, clock)
    yield from _of_runs(cluster, admin, subject, clock)


def _of_runs(cluster: ClusterPort, admin: AdminPort, subject: Subject, clock: Clock) -> Iterator[Finding]:
    plan, app = subject.plan, subject.plan.application_id
    reader = cluster.reader(group_id=app)
    try:
        # Read again, after all that may have taken its time.
        ledger = read_ledger(cluster, app, admin=admin, reader=reader, wait_ms=0, clock=clock)
        try:
            folded = read_metadata(
                cluster, app, admin=admin, reader=reader, topics=plan.sources, wait_ms=1, clock=clock
            )
        except OpenTransactionError as hidden:
            yield warning("metadata topic", hidden.cause, hidden.fix)
            folded = read_metadata(
                cluster, app, admin=admin, reader=reader, topics=plan.sources, wait_ms=0, clock=clock
            )
        folded = unless_void(folded, ledger)
        yield from check_state(folded, ledger, now_ms=clock.now_ms())
        yield from check_losses(admin, reader, plan, folded, ledger, clock)
    finally:
        reader.close()


def _configs(
    admin: AdminPort, names: list[str]
) -> tuple[Mapping[str, Mapping[str, str]], list[KafkaClientError]]:
    """Return the settings of topics, and why some are missing."""
    configs: dict[str, Mapping[str, str]] = {}
    unseen: list[KafkaClientError] = []
    for name in sorted(names):
        try:
            configs[name] = admin.topic_configs(name)
        except KafkaClientError as refused:
            if refused.is_retriable:
                raise
            unseen.append(refused)
    return configs, unseen


def _not_permitted(what: str, refused: KafkaClientError) -> Iterator[Finding]:
    if refused.is_retriable:
        raise refused
    yield warning("permissions", f"{what} cannot be looked at: {refused.cause}", refused.fix)
