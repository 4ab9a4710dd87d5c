"""Finds committed offsets that another program moved forward, over records that no run has read.

Every program that commits to the application's group moves the offsets at which it reads: a console consumer
with the application's id, a mistaken ``--to-latest``. Records before such an offset would never be processed.

Rule: an offset that carries no text of ours and lies beyond the last known offset of the partition, and
beyond the start of its log, is refused. The last known offset is, from the strongest on,

- the offset that an operator accepted by ``airflow-kstreams reset --accept``, if the topic has the same id;
- within a slice or a continuous run, the offset at which it started;
- else the offset at which the last run, or a reset, left the partition;
- the start of the log, for a partition that came later to a topic that runs have read, and for a topic that
  was made anew since.

Legal are offsets that skip no record that exists, and offsets that prove nothing: an offset at or before the
start of the log (retention, ``--to-earliest``) or before the last known one (it reads again, and the run
warns); every offset of a topic of which no run has left a trace (an application that is moved to this
engine); and those beside runs that another program began in the bare format, whose offsets carry no text.

Here the rule is applied between two runs;
:func:`~airflow_kstreams.batch.evidence.contradictions.find_moved_under_way` applies it within one.

Invariant: an acceptance stands in two places, in the ledger, and as a text of ours beside the committed
offset. Begin, which reads the ledger, goes by the ledger, also after the offset expired. A task, which does
not, goes by the text: begin commits every start under its run, so that a text of an acceptance is one of this
slice.

Begin and the doctor warn of members of the group, before they have moved anything.

Crash argument: the command writes the ledger's record and the offsets in one transaction of the coordinator,
after it has claimed the coordinator's id and fenced the tasks of the last run. A crash before the commit
leaves both places as they were, a crash after it leaves both written, and a repetition with the same offsets
changes nothing. An acceptance ends in the transaction that makes it history: the finish of a run that reads
the partition, a reset, the start of a continuous run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_kstreams.batch.evidence.prior_runs import PriorRuns
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, moved_forward
from airflow_kstreams.batch.protocol.logs.log_read import LogBounds
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.ports import AdminPort, GroupMember, TopicPartition


def find_moved_between_runs(
    bounds: Mapping[TopicPartition, LogBounds], prior: PriorRuns, topic_ids: Mapping[str, str]
) -> list[Loss]:
    """Return the committed offsets that another program moved forward since the last run.

    :param bounds: first and last offsets of the log of each partition whose slice starts at the committed
        offset, without partitions whose offset lies beyond the log.
    :param topic_ids: topic -> its id now.
    """
    losses: list[Loss] = []
    if not prior.last_is_ours:
        return losses
    for tp, log_of in sorted(bounds.items()):
        if tp not in prior.committed or not prior.set_by_a_person(tp):
            continue
        last, by = _last_known(tp, prior, made_anew=_made_anew(tp, prior, topic_ids))
        at = prior.committed[tp].offset
        if last is not None and at > max(last, log_of.start):
            endless = prior.unfinished_run if prior.continuous else ""
            losses.append(moved_forward(tp, start=max(last, log_of.start), to=at, by=by, run=endless))
    return losses


def say_members(members: Sequence[GroupMember], application_id: str) -> str:
    """Return a sentence on the members of a group, which may move its offsets: runs assign partitions, and
    join no group.
    """
    named = ", ".join(map(str, members[:3])) + (", ..." if members[3:] else "")
    return (
        f"consumer group {application_id} has {counted(len(members), 'member')}, which may move the "
        f"offsets of the application: {named}"
    )


def member_warnings(admin: AdminPort, application_id: str) -> tuple[str, ...]:
    """Return a warning of the members of the application's group, or that they cannot be looked at."""
    try:
        members = admin.group_members(application_id)
    except KafkaClientError as refused:
        return (f"the members of consumer group {application_id} could not be looked at: {refused.cause}",)
    if not members:
        return ()
    return (f"{say_members(members, application_id)}; stop them, or give them another group.id",)


def _last_known(tp: TopicPartition, prior: PriorRuns, *, made_anew: bool) -> tuple[int | None, str]:
    """Return the last offset of a partition that is known to be of a run or an acceptance, and a phrase that
    says by what; None where no run has left a trace.
    """
    if tp in prior.accepted:
        return prior.accepted[tp].offset, "the ledger says that an operator had reading go on at"
    if made_anew:
        return 0, "the topic was created again since the last run, and its log starts at"
    if tp in prior.last_stops:
        endless = prior.unfinished_run if prior.continuous else ""
        by = f"continuous run {endless!r} started at" if endless else "runs have read the partition up to"
        return prior.last_stops[tp], by
    if prior.know_anything:
        return 0, "no run has read the partition, whose log starts at"
    return None, ""


def _made_anew(tp: TopicPartition, prior: PriorRuns, topic_ids: Mapping[str, str]) -> bool:
    before = prior.topic_ids.get(tp.topic)
    return before is not None and before != topic_ids[tp.topic]
