"""Reports a failure that no session under a claim can write: spark-submit could not start, the driver was
killed or failed before it had claimed anything, the application file does not load.

The Airflow task that has failed reports it, as one attempt with its failure, such as the ledger keeps
(:mod:`airflow_kstreams.batch.ledger.history`). It writes one record of the metadata topic, with those of
earlier failures that no begin has seen yet. The next begin of a driver, or the finish, puts them into the
ledger and deletes the record, in the transaction that it makes in any case. Commands that look meanwhile read
both (:attr:`airflow_kstreams.batch.evidence.run_facts.RunFacts.histories`).

Rule: a report claims nothing. The record is written outside any transaction, with no transactional id, so it
fences no coordinator and no task, whether a driver is at work or is about to begin. It goes to the metadata
topic, where no record is found by its offset, and not to the ledger, whose writer names the offsets that its
records will get. It goes to a topic that the ledger knows as the application's own: no topic is made for it,
and no topic of others is written.

Invariant: no report decides anything. A driver that lives on although its task has reported its end keeps its
lease and its slice, finishes the run, and its own word about its end counts.

Crash argument: a report is one record, there or not. A begin or finish that dies before its commit leaves the
record, and the next one reads it again; after the commit the attempt is in the ledger and the record is gone.
Where a begin fails, and writes that, the attempt may be in both for a while: it is taken once, for one try of
a task makes one attempt at a part. Reports may be lost, as those of two tasks that report at the same moment,
or of one that reports between the read and the commit of a begin that had seen another: then the task's log
has them.

Not reported is a failure to reach Kafka or to log in there, and one before the application's first run has
begun. The task's log has them, and nothing else can.
"""

from __future__ import annotations

from contextlib import closing

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.ledger.history import Attempt, Failure, How, Part, RunHistory, short_name
from airflow_kstreams.batch.protocol.slice.metadata_records import PARTITION, reported_record
from airflow_kstreams.batch.run.lease.lease import Claimant
from airflow_kstreams.streams.errors import (
    AccessDeniedError,
    KafkaClientError,
    KilledError,
    ReportedError,
    RunBusyError,
    RunSupersededError,
    TaskFencedError,
)
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import Clock, ClusterPort

#: Errors of a caller that was asked to end, must wait, or has lost its work to another one.
_NO_FAILURES = (KilledError, RunBusyError, RunSupersededError, TaskFencedError)
_NAMES = frozenset(kind.__name__ for kind in _NO_FAILURES)


def is_to_be_reported(error: BaseException) -> bool:
    """Return whether a task reports an error: it is a failure, and Kafka may be reached."""
    if isinstance(error, _NO_FAILURES) or not isinstance(error, Exception):
        return False
    if isinstance(error, KafkaClientError):
        return isinstance(error, AccessDeniedError)
    return not (isinstance(error, ReportedError) and error.error_type in _NAMES)


def report_failure(  # noqa: PLR0913 - two have defaults
    cluster: ClusterPort,
    application_id: str,
    caller: Claimant,
    error: BaseException,
    *,
    part: Part,
    begun_ms: int,
    dag_id: str = "",
    clock: Clock | None = None,
) -> bool:
    """Report the failure of an Airflow task, unless its attempt has written its end itself.

    :param caller: the task, which has ended, and the driver that it has started, if any.
    :param error: the error that ended it.
    :param part: the part of the run that the task works on.
    :param begun_ms: time at which the task began, epoch milliseconds.
    :param dag_id: the DAG of the task.
    :return: False if nothing was to be reported: the run is finished, its history has the failure, or the
        application has not begun a run yet.
    :raises KStreamsError: it could not be reported.
    """
    clock = clock or SystemClock()
    topic = ProtocolTopics(application_id).metadata
    with (
        closing(cluster.admin()) as admin,
        closing(cluster.reader(group_id=application_id, small=True)) as reader,
    ):
        facts = RunFacts.read(
            cluster, application_id, admin=admin, reader=reader, unless_finished=caller.run_id, clock=clock
        )
        found = admin.describe_topics([topic])
        # The ledger reads what it is asked for.
        ledger = facts.ledger
        known = {} if ledger.own_topics is None else ledger.own_topics.ids
        if topic not in found or known.get(topic) != found[topic].topic_id:
            return False
        if ledger.unfinished_reset is not None or ledger.is_finished(caller.run_id):
            return False
        attempt = Attempt(
            part=part,
            owner=short_name(caller.owner),
            order=caller.order,
            begun_ms=begun_ms,
        ).ended(How.FAILED, clock.now_ms(), failure=Failure.of(error))
        run = RunHistory(run_id=caller.run_id, attempts=(attempt,), dag_id=short_name(dag_id))
        reported = facts.reported.with_run(run)
        if facts.histories == facts.histories.with_reported(reported, finished=ledger.is_finished):
            return False
        before = facts.reported.of(caller.run_id)
        if before is not None:
            reported = facts.reported.with_run(before.with_attempt(attempt))
    record = reported_record(application_id, reported.encode())
    with closing(cluster.writer(transactional_id=None)) as writer:
        writer.produce(record.topic, record.value, record.key, PARTITION, None, record.headers)
        writer.flush()
    return True
