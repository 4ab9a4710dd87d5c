"""Gives a topic of an application more partitions, after a look at the consequences for the next begin.

The look asks the code that the next begin runs (``run/source_topics.py``, ``growing/grown_groups.py``), with
the new count in place of the topic's own. It claims, fences and writes nothing: what tasks commit meanwhile
moves positions forward, and the next begin looks again.

Rule: what the next begin would refuse is refused here, before the topic grows: a topic never loses partitions
again. History, groups and boundaries of a topic that has grown are begin's business, however it has grown.

Crash argument: the new count is asked for as a whole (``--to``), in one request. Before it nothing has
changed; after it, answered or not, the topic has so many partitions, and the same command finds that done. A
begin at the same time sees the topic either as it was or as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from airflow_kstreams.batch.evidence.known_applications import refuse_unknown_application
from airflow_kstreams.batch.evidence.prior_runs import PriorRuns, recall
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.growing.grown_groups import BlockedPartition, blocked_partitions, with_boundaries
from airflow_kstreams.batch.ledger.facts import Assignment
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs.log_read import LogBounds, log_bounds
from airflow_kstreams.batch.protocol.slice.metadata_records import check_keys
from airflow_kstreams.batch.run.begin.freeze import start_of
from airflow_kstreams.batch.run.begin.groundwork import without_ruled_out
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.source_topics import CheckedTopics, check_topics, group_found
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.commands import grow_topic_command
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import all_partitions, group_of_partition
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic, ancestors, fitting_kinds
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import ClusterPort, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartition:
    """A partition that the topic would gain.

    :param partition: topic and number of the new partition.
    :param group: number of the partition group, and of the task that reads it.
    :param ancestors: numbers of the partitions in which its keys lie until it exists.
    """

    partition: TopicPartition
    group: int
    ancestors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthPlan:
    """The consequences of more partitions for a topic.

    :param application_id: application on whose behalf the topic grows.
    :param topic: name of the topic.
    :param before: partition count of the topic now.
    :param count: partition count of the topic once it has grown.
    :param subtopology: the id of the subtopology that reads the topic.
    :param tasks: number of tasks of that subtopology, as many as before when it keeps state.
    :param grown: partition counts of the topic, and the kinds of growth that are possible; None where no
        state depends on its keys.
    :param new: the new partitions, where state depends on keys.
    :param waits: partitions that would wait if a run began now, with the ancestors that they wait for; the
        next begin will probably find fewer records to wait for.
    :param continuous: whether the application runs continuously: it reads new partitions when it starts next.
    """

    application_id: str
    topic: str
    before: int
    count: int
    subtopology: int
    tasks: int
    grown: GrownTopic | None = None
    new: tuple[NewPartition, ...] = ()
    waits: tuple[BlockedPartition, ...] = ()
    continuous: bool = False

    @property
    def done(self) -> bool:
        """Whether the topic has that many partitions already."""
        return self.before == self.count


def plan_growth(session: CoordinatorSession, topic: str, count: int) -> GrowthPlan:
    """Work out the consequences of more partitions for a topic.

    :param session: session of the application; its settings are those of the runs.
    :raises ConfigError: the application has no run yet, does not read the topic, or makes it itself.
    :raises TopologyError: the topic would lose partitions, or the next begin would refuse it.
    :raises KafkaClientError: the broker does not answer.
    """
    ledger = session.read_ledger(wait_ms=0)
    plan = last_topology(session, ledger)
    sub = _reader(plan, topic)
    recorded = ledger.assignment
    now = check_topics(session.admin, plan, session.settings, recorded=recorded)
    before = now.found[topic].partitions
    if count < before:
        raise TopologyError(
            f"topic {topic} has {counted(before, 'partition')}, and a topic never loses any: {count} was "
            "asked for",
            fix=f"ask for more than {before}",
        )
    prior = prior_runs(session, plan, ledger, now.counts)
    _refuse_other_kind(topic, without_ruled_out(plan, now.grouped, prior)[sub.id].grown.get(topic), count)
    would_be = {**now.found, topic: dataclasses.replace(now.found[topic], partitions=count)}
    after = group_found(session.admin, plan, session.settings, would_be, recorded=recorded)
    check_keys(plan, after.counts, {number: len(entry.by_group) for number, entry in after.grouped.items()})
    grouped = without_ruled_out(plan, after.grouped, prior)
    bounds = log_bounds(session.admin, _partitions(now.counts), settle_ms=0, clock=session.clock)
    _refuse_unknown_beginning(session, sub, topic, after, bounds, recorded)
    entry = grouped[sub.id]

    def position(tp: TopicPartition) -> int:
        return start_of(tp, bounds[tp], prior, session.settings) if tp in bounds else 0

    # The boundaries that a begin would set now; new partitions hold nothing.
    highs = {tp: bounds[tp].high if tp in bounds else 0 for tp in _partitions(after.counts)}
    bounded = with_boundaries(grouped, after.bound, highs=highs, position=position)
    waits = blocked_partitions(bounded, position)
    grown = entry.grown.get(topic)
    at = group_of_partition(entry.by_group)
    numbers = range(before, count) if grown is not None else ()
    return GrowthPlan(
        application_id=plan.application_id,
        topic=topic,
        before=before,
        count=count,
        subtopology=sub.id,
        tasks=len(entry.by_group),
        grown=grown,
        new=tuple(
            NewPartition(
                partition=TopicPartition(topic, number),
                group=at[TopicPartition(topic, number)],
                ancestors=tuple(sorted(ancestors(number, grown.history, grown.kinds))),
            )
            for number in numbers
            if grown is not None
        ),
        waits=tuple(each for each in waits if each.partition.topic == topic),
        continuous=ledger.current_continuous is not None,
    )


def grow_topic(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    *,
    topic: str,
    count: int | str,
    dry_run: bool = False,
) -> GrowthPlan:
    """Grow a topic, unless it has that many partitions already.

    :param cluster: the cluster where the application runs.
    :param settings: settings of the application, as its runs have them.
    :param count: the number of partitions to grow to, as an int or as text.
    :param dry_run: whether to change nothing; such a call claims nothing and disturbs no run.
    :return: the plan, with the partition count before.
    :raises ConfigError: as in :func:`plan_growth`, or the count is no whole number from 1.
    :raises TopologyError: as in :func:`plan_growth`.
    :raises KafkaClientError: the broker refuses, or does not answer in time; the same call again goes on.
    """
    wanted = _whole(topic, count)
    with closing(CoordinatorSession(cluster, settings)) as session:
        plan = plan_growth(session, topic, wanted)
        if not (plan.done or dry_run):
            session.admin.create_partitions(topic, wanted)
            app = plan.application_id
            log.info(
                "application %s: topic %s has grown from %d to %s",
                app,
                topic,
                plan.before,
                counted(wanted, "partition"),
            )
    return plan


def last_topology(session: CoordinatorSession, ledger: Ledger) -> TopologyPlan:
    """Return the topology of the last run.

    :raises ConfigError: there is no such run, the cluster has nothing of the application, or the topology
        has a partition grouper of its user's own.
    """
    app = session.application_id
    last = RunFacts(app, ledger, session.read_metadata(None, wait_ms=0)).last_work
    if last is None:
        refuse_unknown_application(session.admin, app)
        raise ConfigError(
            f"application {app!r} has no run yet, or was reset: nothing says which topics it reads",
            fix="correct the application's id or the address; or let it run once, whether anything is new or "
            f"not, and then grow its topics; or grow them with: {grow_topic_command('<topic>')}; and say "
            "what they began with: initial.partitions=TOPIC=N",
        )
    plan = last.plan.topology
    if plan.partition_grouper:
        raise ConfigError(
            f"application {app!r} has the partition grouper {plan.partition_grouper!r}, which decides itself "
            "where new partitions go, so no run would read the partitions that their keys came from first",
            fix="leave partition_grouper out; or, while the producers of the topic rest and all of it is "
            f"processed, grow it with: {grow_topic_command('<topic>')}",
        )
    return plan


def _reader(plan: TopologyPlan, topic: str) -> SubtopologyPlan:
    """Return the subtopology that reads a topic.

    :raises ConfigError: no subtopology reads the topic, or the engine makes it itself.
    """
    app = plan.application_id
    if topic in {*plan.repartition_topics, *plan.changelogs, *ProtocolTopics(app).protocol}:
        raise ConfigError(
            f"topic {topic!r} is an internal one of application {app!r}, whose runs make it and see to its "
            "partitions",
            fix="name the input topic that is to grow",
        )
    for sub in plan.subtopologies:
        if topic in sub.sources:
            return sub
    others = [each for each in plan.sources if each not in plan.repartition_topics]
    raise ConfigError(
        f"application {app!r} does not read topic {topic!r}"
        + (", it only writes it" if topic in plan.outputs else ""),
        fix=f"name one of {', '.join(others)}; no state of this application depends on the keys of others: "
        f"grow it with: {grow_topic_command(topic)}",
    )


def prior_runs(
    session: CoordinatorSession, plan: TopologyPlan, ledger: Ledger, counts: Mapping[str, int]
) -> PriorRuns:
    """Return the traces of earlier runs, as far as they are visible without waiting.

    :param counts: partition count of every source topic.
    """
    facts = RunFacts(session.application_id, ledger, session.read_metadata(plan, wait_ms=0))
    return dataclasses.replace(recall(plan, facts), committed=session.committed_so_far(_partitions(counts)))


def _partitions(counts: Mapping[str, int]) -> list[TopicPartition]:
    return sorted(all_partitions(counts))


def _refuse_other_kind(topic: str, grown: GrownTopic | None, count: int) -> None:
    """Refuse a count at which keys would leave their ancestors, as far as the topic's keys show.

    :raises TopologyError: the count is no multiple of the last one, and the topic does not grow by linear
        hashing.
    """
    if grown is None or {*grown.kinds} & {*fitting_kinds((*grown.history, count))}:
        return
    last, counts = grown.history[-1], " -> ".join(map(str, grown.history))
    raise TopologyError(
        f"topic {topic} has grown over {counts} partitions with Kafka's default partitioner, as its keys "
        f"show, and {count} is no multiple of {last}: keys would leave the partitions that their state "
        "belongs to",
        fix=f"grow it to a multiple of {last}: --to {(count // last + 1) * last}",
    )


def _refuse_unknown_beginning(
    session: CoordinatorSession,
    sub: SubtopologyPlan,
    topic: str,
    after: CheckedTopics,
    bounds: Mapping[TopicPartition, LogBounds],
    recorded: Assignment,
) -> None:
    """Refuse growth whose first count begin would not know: it would take the new count for the first one.

    :raises ConfigError: state depends on the topic's keys, no run has recorded its count, and it has records.
    """
    counted = recorded.topics.get(topic)
    known = (
        sub.id in after.bound
        or topic in session.settings.first_counts
        or not sub.changelogs
        or (counted is not None and counted.id == after.found[topic].topic_id)
    )
    written = [tp for tp, log_of in bounds.items() if tp.topic == topic and log_of.high]
    if known or not written:
        return
    count = len([tp for tp in bounds if tp.topic == topic])
    raise ConfigError(
        f"no run of application {session.application_id!r} has recorded how many partitions topic {topic} "
        "had when its producers began: the next one would take its new count for that, and keys would not be "
        "where it looks for them",
        fix=f"give this command, and the runs, the setting initial.partitions={topic}={count}, or the count "
        "that it began with",
    )


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
