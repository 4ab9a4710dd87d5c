"""Finds records that earlier runs left parked, for begin and reset, and refuses a topology that would not
process them.

Which source is newer, and why: :mod:`airflow_kstreams.batch.protocol.offsets.parked`. A retry topic
that is not among the recorded changelogs was deleted by a reset, or never was: what stands beside offsets of
it is void.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.growing.expansion_rules import Expansion
from airflow_kstreams.batch.ledger.facts import Assignment, GroupedPartitions
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.offsets.parked import (
    Parked,
    may_park,
    parked_total,
    retry_nodes,
    retry_topic,
)
from airflow_kstreams.streams.errors import OrphanedRecordsError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.commands import give_up_command
from airflow_kstreams.streams.partitioning.partition_groups import group_of_partition, named, partitions_in
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition


def parking_partitions(recorded: Assignment, application_id: str) -> list[TopicPartition]:
    """Return the source partitions of tasks that have had retry topics, beside whose offsets the counts of
    parked records are committed.
    """
    return sorted(
        {
            tp
            for entry in recorded.current
            if retry_nodes(application_id, entry.changelogs)
            for group in entry.by_group
            for tp in partitions_in(group)
        }
    )


def parked_left(
    facts: RunFacts, committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[str, dict[int, int | None]]:
    """Return the parked records by node and group. If the offsets of a task give no number, it is unknown
    once a run has begun after the last one that the ledger has as finished.

    :param committed: committed offsets of at least the :func:`parking_partitions`.
    """
    ledger, begun_since = facts.ledger, facts.begun_since
    found: dict[str, dict[int, int | None]] = {}
    for entry in ledger.assignment.current:
        nodes = retry_nodes(facts.application_id, entry.changelogs)
        for number, group in enumerate(entry.by_group if nodes else ()):
            told = _told(committed[tp] for tp in partitions_in(group) if tp in committed)
            for node in nodes:
                count: int | None
                if told is None:
                    count = None if begun_since else ledger.past.parked.get(node, {}).get(number, 0)
                else:
                    count = None if told.parked is None else told.parked.get(node, 0)
                if count != 0:
                    found.setdefault(node, {})[number] = count
    return found


def beside_offsets(
    plan: TopologyPlan, grouped: Mapping[int, GroupedPartitions], parked: Parked
) -> dict[TopicPartition, dict[str, int] | None]:
    """Return the counts that begin commits beside the offset of each source partition: the records that its
    task has parked, by node; None where the number is not known.

    :param grouped: subtopology id -> its partition groups.
    """
    found: dict[TopicPartition, dict[str, int] | None] = {}
    for sub in plan.subtopologies:
        nodes = retry_nodes(plan.application_id, sub.changelogs.values()) if may_park(sub) else []
        for number, group in enumerate(grouped[sub.id].by_group):
            counts = {node: parked[node][number] for node in nodes if number in parked.get(node, {})}
            known = {node: count for node, count in counts.items() if count is not None}
            for tp in partitions_in(group):
                found[tp] = known if len(known) == len(counts) else None
    return found


def parked_by_either(plan: TopologyPlan, parked: Parked, expansions: Mapping[int, Expansion]) -> Parked:
    """Return the parked records after records have moved with their keys: a processor that had some, and
    those that took keys from it, have an unknown number now.
    """
    found = {node: dict(by_group) for node, by_group in parked.items()}
    for sub, expansion in expansions.items():
        for node in retry_nodes(plan.application_id, plan.subtopology(sub).changelogs.values()):
            by_group = found.get(node, {})
            for source, added in expansion.sources.items():
                if source in by_group:
                    by_group.update(dict.fromkeys((source, *added)))
    return found


def refuse_orphaned(
    ledger: Ledger, plan: TopologyPlan, grouped: Mapping[int, GroupedPartitions], parked: Parked
) -> None:
    """Refuse a topology that would never process the parked records.

    :param grouped: subtopology id -> its partition groups.
    :raises OrphanedRecordsError: a node with parked records is gone, its task would not be there, or later
        records of their keys would come to another task.
    """
    for node, by_group in sorted(parked.items()):
        topic = retry_topic(plan.application_id, node)
        if topic not in plan.changelogs:
            why = f"the topology has no node {node!r} with a retry topic any more"
            raise _orphaned(ledger, plan, node, parked, why)
        sub = plan.changelogs[topic]
        now = grouped[sub].by_group
        if max(by_group) >= len(now):
            tasks = counted(len(now), "task")
            why = f"the {tasks} of subtopology {sub} would leave out task {sub}_{max(by_group)}"
            raise _orphaned(ledger, plan, node, parked, why)
        at = group_of_partition(now)
        for entry in ledger.assignment.current:
            before = entry.by_group if topic in entry.changelogs else ()
            moved = {
                tp: (number, at[tp])
                for number, group in enumerate(before)
                if number in by_group
                for tp in partitions_in(group)
                if at.get(tp, number) != number
            }
            if moved:
                why = f"later records of their keys would come to other tasks: {named(moved)} would move"
                raise _orphaned(ledger, plan, node, parked, why)


def _told(offsets: Iterable[CommittedOffset]) -> OffsetMetadata | None:
    """Return the metadata beside the offsets of a task; None if a person set them all, or they are gone."""
    told = [OffsetMetadata.decode(offset.metadata) for offset in offsets]
    return max((each for each in told if each.run_id), key=lambda each: each.commits, default=None)


def _orphaned(
    ledger: Ledger, plan: TopologyPlan, node: str, parked: Parked, why: str
) -> OrphanedRecordsError:
    app, topic = plan.application_id, retry_topic(plan.application_id, node)
    count = parked_total(parked)[node]
    number = "an unknown number of records" if count is None else counted(count, "record")
    last = ledger.last()
    before = "" if last is None else f" of run {last.run_id!r}, {last.topology_hash[:12]},"
    return OrphanedRecordsError(
        f"node {node!r} of application {app!r} has parked {number}, in {topic} partition "
        f"{', '.join(map(str, sorted(parked[node])))}, which would never be processed: {why}",
        fix=f"run the topology{before} until the application's status shows that nothing is parked, and "
        f"change it then; or give these records up for good: {give_up_command(app, [topic])}",
        node=node,
        count=count,
    )
