"""Writes a ledger anew from what can be read of it: ``airflow-kstreams reset --repair-ledger``.

One transaction of the coordinator writes, for each key whose last record cannot be read, the value of the
last one that can be, or a tombstone; behind the entry of a run also those of all later runs, to keep their
order; then a checkpoint, with all of the index, and the last lease. The command says what is given up
(:mod:`airflow_kstreams.batch.ledger.salvage`).

Crash argument: the transaction is seen whole or not at all, and the command may be run again. A ledger of
which all can be read is left as it is.
"""

from __future__ import annotations

from airflow_kstreams.batch.evidence.known_applications import unknown_application
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord
from airflow_kstreams.batch.reset.reset_plan import ResetPlan, ResetRequest
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.errors import KafkaClientError, RunBusyError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics


def plan_repair(session: CoordinatorSession, request: ResetRequest) -> ResetPlan:
    """Return what :func:`repair` would do.

    :raises ConfigError: the application has no ledger, or the topic is another program's.
    """
    app = request.application_id
    topics = session.admin.topic_names()
    if ProtocolTopics(app).ledger not in topics:
        raise unknown_application(app, topics)
    if _whole(session):
        return ResetPlan(request=request)
    ledger, found = session.salvage_ledger()
    return ResetPlan(request=request, repaired=True, lost=found.given_up, lease=ledger.held_lease)


def refuse_repair(plan: ResetPlan) -> None:
    """Refuse a repair while a driver may be at work.

    :raises RunBusyError: a driver has not released its lease, and force was not asked for.
    """
    if plan.repaired and plan.lease is not None and not plan.request.force:
        app = plan.request.application_id
        raise RunBusyError(
            f"the ledger of application {app!r} cannot be written anew: {plan.lease.owner} has not released "
            f"its lease for run {plan.lease.owner_run_id!r}",
            fix="stop it first; if it is not at work any more, add --force",
        )


def repair(session: CoordinatorSession, request: ResetRequest) -> ResetPlan:
    """Write the ledger anew under the coordinator's claim, and return what was done.

    :raises ConfigError: the application has no ledger, or the topic is another program's.
    :raises RunBusyError: a driver has not released its lease, and force was not asked for.
    :raises KafkaClientError: the broker does not answer; the same command may be run again.
    """
    plan = plan_repair(session, request)
    refuse_repair(plan)
    if not plan.repaired:
        return plan
    ledger, found = session.salvage_ledger()
    topic = ProtocolTopics(request.application_id).ledger
    again = [MetadataRecord(topic, value, key, None) for key, value in found.again.items()]
    session.write(again, ledger=LedgerChange(ledger=ledger), lease=ledger.lease)
    session.read_ledger().all_runs()
    return plan


def _whole(session: CoordinatorSession) -> bool:
    """Return whether runs read the ledger, and every entry in it."""
    try:
        session.read_ledger().all_runs()
    except KafkaClientError as error:
        if error.kafka_code not in ("BAD_LEDGER", "TORN_LEDGER"):
            raise
        return False
    return True
