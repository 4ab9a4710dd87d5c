"""Runs every check of an application."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib import import_module

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.inspect.doctor.findings import Finding, not_permitted, ok
from airflow_kstreams.batch.inspect.doctor.seen import DoctorView, Subject
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.needed_permissions import BROKERS_OWN
from airflow_kstreams.batch.protocol.topic_settings import internal_settings
from airflow_kstreams.batch.run.slice_request import matched_plan
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort

#: The modules of this folder whose function ``check`` yields the findings of what was seen, in the order in
#: which an operator would mend what they find.
CHECKS = (
    "broker_checks",
    "topic_checks",
    "global_table_checks",
    "key_checks",
    "growing_checks",
    "run_checks",
)


def diagnose(cluster: ClusterPort, subject: Subject, *, clock: Clock | None = None) -> list[Finding]:
    """Make every check.

    :raises KafkaClientError: the cluster cannot be reached, or does not let this user look at topics.
    """
    group_id = subject.plan.application_id
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=group_id)) as reader:
        return list(_findings(cluster, admin, reader, subject, clock or SystemClock()))


def _findings(
    cluster: ClusterPort, admin: AdminPort, reader: ReaderPort, subject: Subject, clock: Clock
) -> Iterator[Finding]:
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
    ledger = read_ledger(cluster, plan.application_id, admin=admin, reader=reader, wait_ms=0, clock=clock)
    seen = DoctorView(subject=subject, cluster=cluster, admin=admin, clock=clock, topics=found, ledger=ledger)
    for name in CHECKS:
        yield from import_module(f"{__package__}.{name}").check(seen)
