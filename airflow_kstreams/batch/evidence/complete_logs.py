"""Checks that the topics by which runs know of earlier runs still hold all of it.

Rule: changelogs, ledger and metadata topic are the topics that they were, begin at offset 0, which compaction
does not move, and end no earlier than they did. What cannot be compared, because no run of a version that
keeps it has written it, is taken as it is. Each fact stands in another topic than the one that it is about::

    id of the metadata topic        ledger, its checkpoint
    id and end of the ledger        plan of the run that began last, in the metadata topic
    id of a changelog               ledger, its checkpoint, since it may hold state
    ends of a changelog             ledger, its checkpoint, when a run was finished last; while a run is
                                    under way, beside the committed offsets of each task, which looks at
                                    them itself: :mod:`airflow_kstreams.batch.task.restore`

A continuous run deletes the metadata topic, and a reset ends what is known of it; what a run recorded of
changelogs stays true after both, because logs only grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_kstreams.batch.ledger.facts import ChangelogEnds, GroupedPartitions, LoggedState
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs.data_loss import (
    Loss,
    changelog_deleted,
    changelog_truncated,
    not_whole,
    progress_taken_back,
    state_lost,
)
from airflow_kstreams.batch.protocol.logs.log_read import LogFacts, has_records
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState
from airflow_kstreams.batch.protocol.slice.slice import LedgerSeen
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import all_partitions, partitions_in
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    CommittedOffset,
    ReaderPort,
    TopicDescription,
    TopicPartition,
)


def ledger_seen(ledger: Ledger) -> LedgerSeen:
    """Return the ledger's id and end, which a run that begins records."""
    return LedgerSeen(topic_id=ledger.log.topic_id, end=ledger.log.end)


def find_truncated_ledger(application_id: str, ledger: Ledger, folded: Folded) -> list[Loss]:
    """Return the ways in which the ledger's topic is not whole, or is another topic."""
    topic = ProtocolTopics(application_id).ledger
    losses = _deleted(topic, ledger.log, application_id)
    if folded.slice is None:
        return losses
    run, seen = f"run {folded.slice.run_id!r}", folded.slice.plan.ledger
    if seen.topic_id != ledger.log.topic_id:
        text = f" is not the one that {run} began with: {_ids(ledger.log, seen.topic_id)}"
        losses.append(not_whole(topic, text, application_id=application_id))
    elif ledger.log.end < seen.end:
        text = f" ends at {ledger.log.end}, but when {run} began it ended at {seen.end}: it was truncated"
        losses.append(not_whole(topic, text, application_id=application_id))
    return losses


def find_truncated_metadata(application_id: str, ledger: Ledger, folded: Folded) -> list[Loss]:
    """Return the ways in which the metadata topic is not whole, or is another topic."""
    topic = ProtocolTopics(application_id).metadata
    losses = _deleted(topic, folded.log, application_id)
    before = "" if ledger.own_topics is None else ledger.own_topics.ids.get(topic, "")
    if before and before != folded.log.topic_id:
        text = f" is not the one that earlier runs wrote: {_ids(folded.log, before)}"
        losses.append(not_whole(topic, text, application_id=application_id))
    elif before and folded.state is RunState.NEW and not folded.cleared and ledger.reset is None:
        last = ledger.last()
        known = "a run has begun" if last is None else f"run {last.run_id!r} is finished"
        text = f" holds no run, but the ledger says that {known}: it was truncated"
        losses.append(not_whole(topic, text, application_id=application_id))
    return losses


def find_lost_state(plan: TopologyPlan, ledger: Ledger, found: Mapping[str, TopicDescription]) -> list[Loss]:
    """Return the changelogs that held state and are gone, or other topics now.

    :param found: the broker's description of each changelog that exists.
    """
    before = {topic: id_ for entry in ledger.assignment.current for topic, id_ in entry.changelogs.items()}
    losses: list[Loss] = []
    for topic in sorted(plan.changelogs.keys() & before.keys()):
        now = found[topic].topic_id if topic in found else "gone"
        if now != before[topic]:
            text = f"changelog {topic} is not the one that earlier runs wrote: its id is {now}, expected "
            losses.append(state_lost(plan, topic, text + before[topic], read=ledger.assignment.topics))
    return losses


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogLogs:
    """The ids, starts and ends of a topology's changelogs, read when no task can move them any more.

    :param ids: topic -> its id.
    :param starts: first offset of each partition.
    :param ends: high watermark of each partition.
    """

    ids: Mapping[str, str]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]

    @classmethod
    def read(cls, admin: AdminPort, ids: Mapping[str, str], tasks: Mapping[str, int]) -> ChangelogLogs:
        """Read the start and the end of every changelog partition.

        :param tasks: changelog topic -> its number of partitions.
        """
        partitions = all_partitions({topic: tasks[topic] for topic in sorted(ids)})
        return cls(
            ids=ids,
            starts=admin.start_offsets(partitions),
            ends=admin.end_offsets(partitions, isolation="read_uncommitted"),
        )

    def find_truncated(self, plan: TopologyPlan, ledger: Ledger) -> list[Loss]:
        """Return the changelogs whose records were deleted, or that were truncated since a run was
        finished.
        """
        losses: list[Loss] = []
        read = ledger.assignment.topics
        for tp, start in sorted(self.starts.items()):
            expected = self._recorded(ledger, tp)
            if start:
                losses.append(changelog_deleted(plan, tp, log_start=start, read=read))
            elif self.ends[tp] < expected:
                why = "when a run was last finished it ended at"
                losses.append(
                    changelog_truncated(
                        plan, tp, log_end=self.ends[tp], expected=expected, why=why, read=read
                    )
                )
        return losses

    def find_ahead(
        self,
        ledger: Ledger,
        committed: Mapping[TopicPartition, CommittedOffset],
        admin: AdminPort,
        reader: ReaderPort,
        *,
        clock: Clock,
    ) -> list[Loss]:
        """Return losses for the offsets that are older than the records in the changelogs of their tasks.

        Only the changelogs tell of the later commits of a run without an end: ledger and offsets that were
        restored from one backup agree with each other. A finished run has recorded the ends in the ledger, so
        no record before those is read.

        :param committed: committed offset of each source partition, read after this.
        :param reader: reader of committed records; its earlier assignment is lost.
        """
        spans: dict[TopicPartition, tuple[int, int]] = {}
        positions: dict[TopicPartition, dict[TopicPartition, int]] = {}
        for entry in ledger.assignment.current:
            if any(self.ids.get(topic) != id_ for topic, id_ in entry.changelogs.items()):
                continue
            topics = sorted(entry.changelogs)
            for number, group in enumerate(entry.by_group):
                of_group = {tp: committed[tp] for tp in partitions_in(group) if tp in committed}
                found = [OffsetMetadata.decode(at.metadata).changelog_ends for at in of_group.values()]
                for topic, known in zip(topics, _latest(found, len(topics)), strict=True):
                    at = TopicPartition(topic, number)
                    if known is None:
                        continue
                    start = max(known, self._recorded(ledger, at))
                    if start < self.ends.get(at, 0):
                        spans[at] = (start, self.ends[at])
                        positions[at] = {tp: offset.offset for tp, offset in of_group.items()}
        # No wait here: records of a transaction that is still open were not committed with an offset.
        stable = admin.end_offsets(spans, isolation="read_committed") if spans else {}
        read = {at: (known, min(end, stable[at])) for at, (known, end) in spans.items() if known < stable[at]}
        return [
            loss
            for at in sorted(has_records(reader, read, clock=clock) if read else ())
            for loss in progress_taken_back(
                positions[at],
                text=f"changelog {at} holds a record at or behind offset {spans[at][0]}, where it ended when "
                "the committed offsets of its task were committed",
            )
        ]

    def _recorded(self, ledger: Ledger, at: TopicPartition) -> int:
        """Return the end of a changelog partition when a run was last finished, 0 when that is not known."""
        state = None if ledger.changelog_ends is None else ledger.changelog_ends.changelogs.get(at.topic)
        ends = () if state is None or state.id != self.ids[at.topic] else state.ends
        return ends[at.partition] if at.partition < len(ends) else 0

    def as_finished(self) -> ChangelogEnds:
        """Return the ids and ends of the changelogs in the form that finish records."""
        by_topic: dict[str, list[int]] = {topic: [] for topic in self.ids}
        for tp in sorted(self.ends):
            by_topic[tp.topic].append(self.ends[tp])
        return ChangelogEnds(
            changelogs={topic: LoggedState(self.ids[topic], tuple(ends)) for topic, ends in by_topic.items()}
        )

    def beside_offsets(
        self, plan: TopologyPlan, grouped: Mapping[int, GroupedPartitions]
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the facts to commit beside the offset of each source partition: the ends of its task's
        changelogs, sorted by topic.

        :param grouped: subtopology id -> its partition groups.
        """
        found: dict[TopicPartition, tuple[int, ...]] = {}
        for sub in plan.subtopologies:
            changelogs = sorted(sub.changelogs.values())
            for number, group in enumerate(grouped[sub.id].by_group if changelogs else ()):
                ends = tuple(self.ends[TopicPartition(topic, number)] for topic in changelogs)
                found |= dict.fromkeys(partitions_in(group), ends)
        return found


def _latest(found: Sequence[tuple[int, ...]], count: int) -> Sequence[int | None]:
    """Return for each changelog the largest end that stands beside the offsets of one task, None
    without one.
    """
    known = [ends for ends in found if len(ends) == count]
    return [max(ends) for ends in zip(*known, strict=True)] if known else [None] * count


def _deleted(topic: str, log: LogFacts, application_id: str) -> list[Loss]:
    if not log.start:
        return []
    text = f": records before offset {log.start} were deleted"
    return [not_whole(topic, text, application_id=application_id, deleted=True)]


def _ids(log: LogFacts, before: str) -> str:
    return f"its id is {log.topic_id or 'gone'}, expected {before}"
