"""Finds records between two subtopologies that runs have written and no run has read, and that no task of a
topology would read.

A slice that was dropped, and a continuous run that ended, leave such records. The next run of the same code
reads them. Code that does not read their topic any more would lose them in silence, and code that has
another branch behind a topic of that name would take them for its own.

Rule: of each topic between subtopologies that a topology does not read, or which it feeds from other topics
(:attr:`~airflow_kstreams.streams.plan.TopologyPlan.fed_by`), no record is left unread that lies at
or behind the committed offset, and before

- the log's end, in a repartition topic, which is known by its id: only the application writes it;
- the stop that was frozen for its readers, in a topic of the user's own (``through``). Tasks that have not
  notified leave none: they are fenced, and the log's end is taken then. What others write later is theirs.

Who knows those stops: the slice that is under way, and after it was dropped the record of the reset, which
lasts until a run has finished; a run that has finished leaves nothing unread. A continuous run freezes no
stops: the log's end is taken, once its tasks are fenced.

An input that the code does not read any more may hold unread records, too: the next ones, and dead letters
that a replay has brought back. A topic of the user's, which keeps them, may go unread; begin says how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.evidence.topic_owners import fed_before, known_topics
from airflow_kstreams.batch.protocol.logs.log_read import log_bounds
from airflow_kstreams.batch.protocol.slice.slice import partition_named
from airflow_kstreams.batch.protocol.slice.stops import partitions_of
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import AccessDeniedError, TopologyError
from airflow_kstreams.streams.naming.commands import reset_command
from airflow_kstreams.streams.naming.topic_names import BETWEEN_ENDINGS
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import TopicDescription, TopicPartition


def refuse_unread(session: CoordinatorSession, plan: TopologyPlan, facts: RunFacts) -> None:
    """Refuse a topology that would leave records behind.

    :param facts: facts of the last run, whose tasks are fenced.
    :raises TopologyError: records would be left; the text names the topics, the number of records at most,
        and the two ways out.
    """
    ids = known_topics(facts).ids
    fed = {topic: fed_before(facts.ledger, topic, ids.get(topic, "")) for topic in plan.fed_by}
    other = {topic: before for topic, before in fed.items() if before and before != plan.fed_by[topic]}
    unread = _unread(session, facts, read={*plan.sources} - {*other})
    if not unread:
        return
    listed = ", ".join(
        f"{count} in {topic}" + (_made_of(other[topic], plan.fed_by[topic]) if topic in other else "")
        for topic, count in sorted(unread.items())
    )
    command = reset_command(plan.application_id, "--unread-topics", ",".join(sorted(unread)))
    raise TopologyError(
        f"earlier runs of application {plan.application_id!r} have left records between their subtopologies "
        f"that no task of its topology reads as what they are: {listed}",
        fix="let the code of before run once more, in batches, which brings them to the end, and deploy "
        f"then; or give them up: {command} (with --dry-run it says how many)",
    )


def last_sources(facts: RunFacts) -> Collection[str] | None:
    """Return the topics that the application's last run reads; None where no run is known."""
    last, entry = facts.last_work, facts.ledger.newest_entry
    if last is not None:
        return last.plan.topology.sources
    return None if entry is None else entry.source_topics


def dropped_inputs(session: CoordinatorSession, plan: TopologyPlan, facts: RunFacts) -> tuple[str, ...]:
    """Return warnings that name the topics that the last run reads and a topology does not, and count, by
    their offsets, the records that stay unread there.

    :param facts: facts of the last run, whose tasks are fenced.
    """
    dropped = {*(last_sources(facts) or ())} - {*plan.sources}
    topics = sorted(dropped - _own_between(known_topics(facts).ids))
    if not topics:
        return ()
    try:
        found = session.admin.describe_topics(topics)
        partitions = described_partitions(found, _same(facts, found))
        starts = session.admin.start_offsets(partitions)
        ends = session.admin.end_offsets(partitions, isolation="read_uncommitted")
    except AccessDeniedError as refused:
        return (
            f"no task reads {', '.join(topics)} any more; whether records stay unread there could not be "
            f"looked at: {refused.cause}",
        )
    read_to = facts.ledger.left_at(topics)
    read_to |= {tp: at.offset for tp, at in session.committed(partitions).items()}
    unread: Counter[str] = Counter()
    for tp in partitions:
        unread[tp.topic] += max(0, ends[tp] - max(starts[tp], read_to.get(tp, 0)))
    return tuple(
        f"no task reads topic {topic} any more: records stay unread there, {count} at most, any dead letters "
        "that were brought back included; code that reads the topic again goes on with them"
        for topic, count in sorted(unread.items())
        if count
    )


def _made_of(before: Collection[str], now: Collection[str]) -> str:
    return f" (made of {', '.join(before)}, where the topology puts what is made of {', '.join(now)})"


def written_to(facts: RunFacts) -> dict[TopicPartition, int | None]:
    """Return the end of the records that runs have written to the user's own topics between subtopologies,
    for partitions in which some may be unread.

    :return: partition -> the offset, or None for the log's end once all tasks are fenced.
    """
    found: dict[TopicPartition, int | None] = {}
    if facts.ledger.reset is not None:
        found = {partition_named(name): to for name, to in facts.ledger.reset.written_to.items()}
    continuous = facts.ledger.current_continuous
    last = facts.under_way if continuous is None else continuous.slice
    if last is None or last.plan.empty:
        return found
    topology = last.plan.topology
    between = {*topology.intermediates} - {*topology.repartition_topics}
    stops = facts.metadata.intermediate_stops
    return found | {tp: stops.get(tp) for tp in partitions_of(last, between)}


def count_records(
    session: CoordinatorSession, spans: Mapping[TopicPartition, tuple[int, int | None]]
) -> dict[str, int]:
    """Count the records of parts of logs, by topic; topics without any are left out. What an open transaction
    hides counts as if each of its offsets held one.

    :param spans: partition -> ``[from, to)``, where a ``to`` of None is the log's end.
    """
    bounds = log_bounds(session.admin, spans, settle_ms=session.settings.settle_ms, clock=session.clock)
    seen: dict[TopicPartition, tuple[int, int]] = {}
    found: Counter[str] = Counter()
    for tp, (start, to) in spans.items():
        log_of = bounds[tp]
        first = max(start, log_of.start)
        stop = log_of.high if to is None else min(to, log_of.high)
        seen[tp] = (first, min(stop, log_of.stable))
        found[tp.topic] += max(0, stop - max(first, log_of.stable))
    with session.reading:
        for fetched in BoundedRead(session.reader, seen, clock=session.clock):
            for tp, records in fetched.items():
                found[tp.topic] += len(records)
    return {topic: count for topic, count in found.items() if count}


def _unread(session: CoordinatorSession, facts: RunFacts, *, read: Collection[str]) -> dict[str, int]:
    """Count the unread records of topics that are not read any more, by topic."""
    stops = {tp: to for tp, to in written_to(facts).items() if tp.topic not in read}
    ids = known_topics(facts).ids
    own = _own_between(ids) - {*read}
    topics = own | {tp.topic for tp in stops}
    if not topics:
        return {}
    found = session.admin.describe_topics(topics)
    same = _same(facts, found)
    partitions = [tp for tp in described_partitions(found, same) if tp.topic in own or tp in stops]
    read_to = facts.ledger.left_at(topics)
    read_to |= {tp: at.offset for tp, at in session.committed(partitions).items()}
    return count_records(session, {tp: (read_to.get(tp, 0), stops.get(tp)) for tp in partitions})


def _own_between(ids: Collection[str]) -> set[str]:
    return {topic for topic in ids if topic.endswith(BETWEEN_ENDINGS)}


def _same(facts: RunFacts, found: Mapping[str, TopicDescription]) -> list[str]:
    """Return the topics that are not known to have been made anew since the last run."""
    before = {**facts.ledger.topic_ids, **known_topics(facts).ids}
    return [name for name, now in found.items() if before.get(name, now.topic_id) == now.topic_id]
