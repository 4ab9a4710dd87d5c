"""Works out the consequences of more processors for a subtopology with state, and how far its
expansion is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.expand.growth import last_topology, prior_runs
from airflow_kstreams.batch.growing.expansion_rules import (
    Expansion,
    expanded,
    live,
    positions_of,
    read_by,
    refuse_unfit,
    sources_of,
    under_way,
)
from airflow_kstreams.batch.growing.state_copy import CopyWork
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.run.begin.groundwork import without_ruled_out
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.commands import abort_command, expand_command
from airflow_kstreams.streams.naming.topic_names import catch_up_group
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedSource:
    """The state of the copy of one changelog of one source.

    :param changelog: the source's partition of the changelog.
    :param added: numbers of the new processors that take keys from the source.
    :param position: T2, the offset up to which the changelog is copied; None before the first step.
    :param end: T1, the end of the changelog partition.
    :param told: metadata that the last step wrote beside the position; before the first step, one without
        counts.
    """

    changelog: TopicPartition
    added: tuple[int, ...]
    position: int | None
    end: int
    told: Expansion

    @property
    def lag(self) -> int:
        """The number of offsets between T2 and T1."""
        return self.end - (self.position or 0)


def copied_of(sources: Iterable[CopiedSource]) -> tuple[int, int]:
    """Return T2 and T1 of several changelogs together."""
    each = [*sources]
    return sum(one.position or 0 for one in each), sum(one.end for one in each)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorPlan:
    """More processors for a subtopology.

    :param application_id: id of the application.
    :param sub: plan of the subtopology.
    :param entry: recorded partition groups of the subtopology.
    :param after: processors that the subtopology is to have; None if it has that many already.
    :param sources: state of the copy of each changelog of each source.
    """

    application_id: str
    sub: SubtopologyPlan
    entry: GroupedPartitions
    after: Processors | None
    sources: tuple[CopiedSource, ...] = ()

    @property
    def before(self) -> int:
        """The number of processors now."""
        return len(self.entry.by_group)

    @property
    def begun_ms(self) -> int:
        """Time at which the first copy began, epoch milliseconds; 0 if none has, or that is not known."""
        return min((each.told.begun_ms for each in self.sources if each.told.begun_ms), default=0)

    @property
    def reads(self) -> list[TopicPartition]:
        """S1: the partitions that the new processors will read."""
        return [] if self.after is None else read_by(self.entry, self.after)

    @property
    def works(self) -> list[CopyWork]:
        """The copies to make, by source."""
        if self.after is None:
            return []
        return [
            CopyWork(sub=self.sub, entry=self.entry, after=self.after, source=source)
            for source in sorted(sources_of(self.after, self.before))
        ]


def plan_processors(session: CoordinatorSession, subtopology: int | None, count: int) -> ProcessorPlan:
    """Work out the consequences of more processors for a subtopology.

    :param subtopology: id of the subtopology; None where only one keeps state.
    :raises ConfigError: the application has no run yet, or no such subtopology; or another expansion of it is
        under way.
    :raises TopologyError: it cannot have that many, or a store cannot follow its keys.
    :raises KafkaClientError: the broker does not answer.
    """
    ledger = session.read_ledger(wait_ms=0)
    plan = last_topology(session, ledger)
    sub = _chosen(plan, subtopology)
    entry = _entry(session, plan, ledger, sub)
    if count == len(entry.by_group):
        return ProcessorPlan(application_id=plan.application_id, sub=sub, entry=entry, after=None)
    after = expanded(plan, sub, entry, count)
    refuse_unfit(plan, sub)
    offsets = _offsets(session, sub, entry)
    found = under_way(offsets, entry)
    if found is not None and found.after != after:
        raise ConfigError(
            f"subtopology {sub.id} of application {plan.application_id!r} is on its way to "
            f"{counted(found.after.count, 'processor')}, not to {count}",
            fix=f"go on with {expand_command(plan.application_id, sub.id, found.after.count)}; or give that "
            f"up first: {abort_command(plan.application_id)}",
        )
    return ProcessorPlan(
        application_id=plan.application_id,
        sub=sub,
        entry=entry,
        after=after,
        sources=tuple(_sources(session, sub, entry, after, offsets)),
    )


def expansions(session: CoordinatorSession, plan: TopologyPlan, ledger: Ledger) -> list[ProcessorPlan]:
    """Return the expansions that are under way.

    :param plan: topology plan of the last run.
    """
    found: list[ProcessorPlan] = []
    for sub in plan.subtopologies:
        entry = ledger.assignment.groups_of(sub.id, sub.changelogs.values())
        if entry is None or not entry.grown:
            continue
        offsets = _offsets(session, sub, entry)
        expansion = under_way(offsets, entry)
        if expansion is not None:
            found.append(
                ProcessorPlan(
                    application_id=plan.application_id,
                    sub=sub,
                    entry=entry,
                    after=expansion.after,
                    sources=tuple(_sources(session, sub, entry, expansion.after, offsets)),
                )
            )
    return found


def sources_now(session: CoordinatorSession, plan: ProcessorPlan) -> list[CopiedSource]:
    """Return the state of the copy of each changelog of each source now.

    :param plan: a plan with an expansion.
    """
    if plan.after is None:
        return []
    return _sources(session, plan.sub, plan.entry, plan.after, _offsets(session, plan.sub, plan.entry))


def _sources(
    session: CoordinatorSession,
    sub: SubtopologyPlan,
    entry: GroupedPartitions,
    after: Processors,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> list[CopiedSource]:
    """Return the state of the copy of each changelog of each source.

    :param offsets: committed offsets of the catch-up.
    """
    sources = sources_of(after, len(entry.by_group))
    partitions = positions_of(sub, sorted(sources))
    ends = session.admin.end_offsets(partitions, isolation="read_committed")
    not_begun = Expansion(before=len(entry.by_group), after=after, topic_id="", stepped_ms=0)
    found: list[CopiedSource] = []
    for tp in partitions:
        told = live(offsets.get(tp), entry, tp.topic)
        found.append(
            CopiedSource(
                changelog=tp,
                added=tuple(sources[tp.partition]),
                position=None if told is None else offsets[tp].offset,
                end=ends[tp],
                told=told or not_begun,
            )
        )
    return found


def _offsets(
    session: CoordinatorSession, sub: SubtopologyPlan, entry: GroupedPartitions
) -> Mapping[TopicPartition, CommittedOffset]:
    """Return the offsets up to which the state of a subtopology is copied, in this expansion or an earlier
    one.
    """
    partitions = positions_of(sub, range(len(entry.by_group)))
    return session.committed_so_far(partitions, group_id=catch_up_group(session.application_id))


def _chosen(plan: TopologyPlan, subtopology: int | None) -> SubtopologyPlan:
    """Return the subtopology that was asked for.

    :raises ConfigError: no such subtopology keeps state, or several do and none was named.
    """
    with_state = [sub for sub in plan.subtopologies if sub.changelogs]
    listed = ", ".join(f"{sub.id} (reads {', '.join(sub.sources)})" for sub in with_state)
    if subtopology is None and len(with_state) == 1:
        return with_state[0]
    chosen = [sub for sub in plan.subtopologies if sub.id == subtopology]
    if chosen:
        return chosen[0]
    if not with_state:
        raise ConfigError(
            f"application {plan.application_id!r} keeps no state: it has a task for each partition as it is",
            fix="give its topics more partitions: airflow-kstreams expand partitions",
        )
    asked = (
        "several subtopologies that keep state" if subtopology is None else f"no subtopology {subtopology}"
    )
    raise ConfigError(
        f"application {plan.application_id!r} has {asked}", fix=f"name one by --subtopology: {listed}"
    )


def _entry(
    session: CoordinatorSession, plan: TopologyPlan, ledger: Ledger, sub: SubtopologyPlan
) -> GroupedPartitions:
    """Return the recorded partition groups of a subtopology, with the kinds of growth that keys leave.

    :raises ConfigError: no run has recorded groups.
    :raises TopologyError: the keys of a topic fit no kind of growth.
    """
    entry = ledger.assignment.groups_of(sub.id, sub.changelogs.values())
    if entry is None or (sub.changelogs and not entry.changelogs):
        raise ConfigError(
            f"no run of application {plan.application_id!r} has processed a record of subtopology {sub.id} "
            "yet: it has no state, and no processors to be added to",
            fix="let a run with records finish first; an application that begins with more partitions begins "
            "with more processors",
        )
    prior = prior_runs(session, plan, ledger, entry.partitions)
    return without_ruled_out(plan, {sub.id: entry}, prior)[sub.id]
