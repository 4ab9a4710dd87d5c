"""Takes over from processors with whose keys new processors have caught up ("partition and processor
expansion").

Rule: a begin takes an expansion over when (a) no task is at work, (b) every partition that the new
processors will read waits for no other one any more: what its ancestors held before it has been read, by
the processor that has the state, (c) runs have found that producers know these partitions: else they would
write moving keys where no processor looks for them, and (d) each copy is behind T1 by no more than
``acceptable.recovery.lag`` offsets. It fences the old owners, which the groundwork has done, the new ones
and the catch-up; copies what is left, T2 to T1; and goes on with the new groups, which are written with the
slice. Otherwise the run goes on as before, and says why.

The last part is copied here, and not by the first attempts of the new tasks: T1 cannot move now, and a task
with nothing to read would never make its attempt. The limit bounds what it costs.

Crash argument: until begin's transaction nothing has changed but the changelogs of processors that no run has
yet, and the offsets of the catch-up; the next begin, or catch-up, goes on there. After it, the groups are
those of the new processors, and what a catch-up had begun counts no more. A catch-up that is alive is fenced;
one that comes later sees the new groups when it has claimed its id, because it reads the ledger after that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import msgspec
import tenacity

from airflow_kstreams.batch.growing.expansion_rules import (
    Expansion,
    add_partitions,
    expanded,
    first_sources,
    live,
    positions_of,
    read_by,
    refuse_unfit,
    under_way,
)
from airflow_kstreams.batch.growing.grown_groups import Bound, in_use, last_found, with_processors
from airflow_kstreams.batch.growing.state_copy import CopyWork, StateCopy
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.protocol.logs.fence import fence
from airflow_kstreams.streams.errors import (
    AccessDeniedError,
    TaskFencedError,
    TopologyError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.commands import abort_command, expand_command
from airflow_kstreams.streams.naming.topic_names import catch_up_group
from airflow_kstreams.streams.partitioning.partition_groups import named
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, CommittedOffset, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)

#: Number of sources that are copied side by side.
_PARALLEL = 8
#: Number of times that a source is claimed whose producer may not be used again.
_CLAIMS = 3


class TakeoverCoordinator(Protocol):
    """The questions that a takeover asks the coordinator whose begin it is part of."""

    @property
    def cluster(self) -> ClusterPort: ...

    @property
    def admin(self) -> AdminPort: ...

    @property
    def settings(self) -> ApplicationSettings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def application_id(self) -> str: ...

    def committed_so_far(
        self, partitions: Collection[TopicPartition], *, group_id: str
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group, without waiting for open transactions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeovers:
    """The outcome of a begin for the expansions that were under way.

    :param grouped: subtopology id -> groups of the processors that there are now.
    :param expansions: subtopology id -> the expansion that this begin took over.
    :param warnings: a line for each expansion that was taken over, and one with the reason for each that was
        not.
    """

    grouped: Mapping[int, GroupedPartitions]
    expansions: Mapping[int, Expansion]
    warnings: tuple[str, ...] = ()


def take_over(
    coordinator: TakeoverCoordinator,
    plan: TopologyPlan,
    grouped: Mapping[int, GroupedPartitions],
    bound: Bound,
    committed: Mapping[TopicPartition, CommittedOffset],
) -> Takeovers:
    """Take over every expansion that has caught up.

    :param grouped: subtopology id -> its groups, as this begin finds them.
    :param bound: subtopology id -> its groups, as earlier runs have recorded them.
    :param committed: committed offsets of all source partitions, read when no task can move them.
    :raises KafkaClientError: the broker did not answer, or refused.
    """
    now, taken, warnings = dict(grouped), dict[int, Expansion](), list[str]()
    for sub in plan.subtopologies:
        entry, before = grouped[sub.id], bound.get(sub.id)
        # A topic that has gained nothing leaves no room for more processors.
        if before is None or not entry.grown or min(entry.partitions.values()) <= len(entry.by_group):
            continue
        try:
            copied = _copied_so_far(coordinator, positions_of(sub, first_sources(entry)))
            expansion = under_way(copied, entry)
            if expansion is None:
                continue
            offered = _Candidate(
                coordinator=coordinator, plan=plan, sub=sub, entry=entry, expansion=expansion
            )
            late = offered.not_yet(before, committed) or offered.copy_rest()
        except AccessDeniedError as error:
            # The user that runs the application may be another one than expands it, and may not see how far
            # the copy is, or not copy.
            warnings.append(
                f"whether subtopology {sub.id} is to have more processors is unknown: {error.cause}"
            )
            continue
        if late:
            warnings.append(
                f"subtopology {sub.id} goes on with {counted(expansion.before, 'processor')}, not "
                f"{expansion.after.count} yet: {late}"
            )
            continue
        taken[sub.id] = expansion
        now[sub.id] = msgspec.structs.replace(
            with_processors(entry, expansion.after),
            moved_from=tuple(sorted({*entry.moved_from, *sub.changelogs.values()})),
        )
        warnings.append(
            f"subtopology {sub.id} has {counted(expansion.after.count, 'processor')} from this run on, "
            f"{expansion.before} before: give Spark a core for each"
        )
    return Takeovers(grouped=now, expansions=taken, warnings=tuple(warnings))


def _copied_so_far(
    coordinator: TakeoverCoordinator, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, CommittedOffset]:
    """Return the offsets of the catch-up, without waiting for open transactions of one that is running."""
    return coordinator.committed_so_far(partitions, group_id=catch_up_group(coordinator.application_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """An expansion that may be taken over.

    :param entry: partition groups of the subtopology now.
    """

    coordinator: TakeoverCoordinator
    plan: TopologyPlan
    sub: SubtopologyPlan
    entry: GroupedPartitions
    expansion: Expansion

    def not_yet(self, before: GroupedPartitions, committed: Mapping[TopicPartition, CommittedOffset]) -> str:
        """Return the reason why this begin cannot take the expansion over; empty if it can.

        :param before: recorded partition groups of the subtopology.
        :param committed: committed offsets of the source partitions.
        """
        app, settings = self.plan.application_id, self.coordinator.settings
        try:
            refuse_unfit(self.plan, self.sub)
            after = expanded(self.plan, self.sub, self.entry, self.expansion.after.count)
        except TopologyError as error:
            return f"{error.cause}; give the expansion up with: {abort_command(app)}"
        if after != self.expansion.after:
            return f"its topics have grown in another way since; give it up with: {abort_command(app)}"
        if settings.keeps_to_interval:
            return "runs with autostop.at=interval wait for no partition's ancestors"
        reads = read_by(self.entry, after)
        waits = {tp for tp in reads if self._waits(tp, before, committed)}
        waits |= self._just_begun(reads, before)
        if waits:
            return f"{named(waits)} must not be read before the partitions that their keys came from are"
        last = {topic: last_found(before, topic) for topic in {tp.topic for tp in reads}}
        if unused := {tp for tp in reads if not in_use(before.grown[tp.topic], tp.partition, last[tp.topic])}:
            return (
                f"no run has found anything in {named(unused)}, or in what its topic gained then or later: "
                "producers still write the keys to the partitions that they came from, where new processors "
                "do not look"
            )
        partitions = positions_of(self.sub, self.expansion.sources)
        told = _copied_so_far(self.coordinator, partitions)
        found = {tp: at for tp, at in told.items() if live(at, self.entry, tp.topic) is not None}
        ends = self.coordinator.admin.end_offsets(partitions, isolation="read_committed")
        go_on = f"go on with: {expand_command(app, self.sub.id, after.count)}"
        if missing := [tp for tp in partitions if tp not in found and ends[tp]]:
            return f"nothing is copied of {named(missing)} yet; {go_on}"
        behind = {tp: ends[tp] - at.offset for tp, at in found.items()}
        limit = settings.acceptable_recovery_lag
        if late := [tp for tp in behind if behind[tp] > limit]:
            most = max(late, key=behind.__getitem__)
            return (
                f"the copy of {most} is {counted(behind[most], 'record')} behind, acceptable.recovery.lag "
                f"is {limit}; {go_on}"
            )
        return ""

    def copy_rest(self) -> str:
        """Fence the producers that may write, copy up to T1, and return the obstacle; empty if
        there is none.
        """
        coordinator, sub, expansion = self.coordinator, self.sub, self.expansion
        add_partitions(coordinator.admin, sub, expansion.after.count)
        added = [f"{coordinator.application_id}-{sub.id}_{number}" for number in expansion.added]
        fence(coordinator.cluster, added, admin=coordinator.admin, topics=[*sub.changelogs.values()])
        sources = expansion.sources
        with ThreadPoolExecutor(max_workers=min(_PARALLEL, len(sources))) as pool:
            return next(filter(None, pool.map(self._copied, sources)), "")

    def _waits(
        self,
        tp: TopicPartition,
        before: GroupedPartitions,
        committed: Mapping[TopicPartition, CommittedOffset],
    ) -> bool:
        """Whether records of a partition's keys may still lie unread where the keys were before."""
        if tp.partition >= before.partitions.get(tp.topic, 0):
            return True
        boundaries = self.entry.boundaries.get(str(tp), {})
        ancestors = {TopicPartition(tp.topic, number): offset for number, offset in boundaries.items()}
        return any(
            parent not in committed or committed[parent].offset < offset
            for parent, offset in ancestors.items()
        )

    def _just_begun(
        self, reads: Collection[TopicPartition], before: GroupedPartitions
    ) -> set[TopicPartition]:
        """Return the partitions in which no run has found a record, and which hold records by now."""
        empty = {*before.found_empty}
        found = [tp for tp in reads if str(tp) in empty]
        ends = self.coordinator.admin.end_offsets(found, isolation="read_uncommitted") if found else {}
        return {tp for tp, end in ends.items() if end}

    def _copied(self, source: int) -> str:
        work = CopyWork(sub=self.sub, entry=self.entry, after=self.expansion.after, source=source)
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(TransactionAbortedError),
            stop=tenacity.stop_after_attempt(_CLAIMS),
            reraise=True,
        )
        try:
            return again(self._copied_once, work)
        except TaskFencedError:
            return f"a catch-up has just claimed the state of processor {source}"
        except TopologyError as error:
            return error.cause

    def _copied_once(self, work: CopyWork) -> str:
        coordinator = self.coordinator
        with StateCopy(coordinator.cluster, coordinator.settings, work, clock=coordinator.clock) as copy:
            copy.claim()
            ends = copy.ends()
            if anew := [tp for tp in copy.anew(ends) if ends[tp]]:
                return (
                    f"the copy of {named(anew)} must begin anew, deletions may be gone; "
                    f"{expand_command(coordinator.application_id, self.sub.id, work.after.count)}"
                )
            for records in copy.copy(ends):
                log.debug("processor %d: %s copied", work.source, counted(records, "more record"))
        return ""
