"""Holds what a run must know of the runs before it; each run updates it, so that no run reads history.

For every topic that was ever read: where the run that read it last left it. Of the runs: how many have
finished, the last one, the last few that a reset took back, and the index by which any other is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from airflow_kstreams.batch.ledger.details import by_topic, times_by_topic
from airflow_kstreams.batch.ledger.index import IndexPage
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.parked import Parked
from airflow_kstreams.batch.protocol.offsets.task_report import group_of
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import PartitionTimes

#: How many of the runs that a reset took back are kept to be shown.
TAKEN_BACK_SHOWN = 10
_UNKNOWN = -1


class TopicLeft(msgspec.Struct, frozen=True, array_like=True):
    """A topic as the run that read it last left it.

    :param run_id: of that run.
    :param id: the topic's id then; empty if the run did not say.
    :param stops: stop offset by partition, -1 where it is not known; empty if runs that read the topic were
        all taken back.
    :param times: partition times at those offsets, by partition; partitions behind the last one have none.
    :param starts: start offset of the run by partition; empty of intermediate topics.
    """

    run_id: str
    id: str
    stops: tuple[int, ...] = ()
    times: tuple[PartitionTimes, ...] = ()
    starts: tuple[int, ...] = ()

    def stops_of(self, topic: str) -> dict[TopicPartition, int]:
        """Return the stops that are known, by partition."""
        return {
            TopicPartition(topic, number): stop for number, stop in enumerate(self.stops) if stop != _UNKNOWN
        }

    def read(self, topic: str) -> list[FrozenPartition]:
        """Return what the run read of the topic, if it was an input."""
        return [
            FrozenPartition(topic=topic, partition=number, start_offset=start, stop_offset=stop)
            for number, (start, stop) in enumerate(zip(self.starts, self.stops, strict=False))
            if start != _UNKNOWN
        ]

    def times_of(self, partition: TopicPartition) -> PartitionTimes | None:
        """Return the times of a partition, None where there are none."""
        found = self.times[partition.partition : partition.partition + 1]
        return found[0] if found and found[0] != PartitionTimes() else None


class PastRuns(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The runs before, as the checkpoint describes them.

    :param finished: how many have finished and were not taken back.
    :param last: the entry of the one that finished last.
    :param last_at: the offset of that entry, -1 without one.
    :param chained_from: entries at smaller offsets may name one that was taken back as the one before them.
    :param taken_back: entries of runs that a reset took back and that have not finished again, the last few,
        oldest first.
    :param left: by topic.
    :param index: root of the index of all entries.
    :param details_written: how often details were written; says which slot is next.
    :param details_pieces: the most pieces that details were split into.
    :param parked: what the last run left parked, less what a reset gave up, see
        :data:`~airflow_kstreams.batch.protocol.offsets.parked.Parked`.
    :param none_parked_at: the offset of the entry of the last run that left nothing parked, -1 if there is
        none: what earlier runs left is all processed.
    """

    finished: int = 0
    last: RunSummary | None = None
    last_at: int = -1
    chained_from: int = 0
    taken_back: tuple[RunSummary, ...] = ()
    left: dict[str, TopicLeft] = {}
    index: IndexPage = IndexPage()
    details_written: int = 0
    details_pieces: int = 0
    parked: dict[str, dict[int, int | None]] = {}
    none_parked_at: int = -1

    def with_finished(self, summary: RunSummary, entry: RunSummary, at: int) -> PastRuns:
        """Return the same after one more run.

        :param summary: with its details.
        :param entry: its entry in the ledger.
        :param at: the offset of the entry.
        """
        parked: dict[str, dict[int, int | None]] = {}
        for task in summary.tasks:
            for node, count in task.parked.items():
                parked.setdefault(node, {})[group_of(task.task_id)] = count
        return msgspec.structs.replace(
            self,
            finished=self.finished + 1,
            last=entry,
            last_at=at,
            taken_back=tuple(run for run in self.taken_back if run.run_id != summary.run_id),
            left={**self.left, **topics_left(summary)},
            parked=parked,
            none_parked_at=self.none_parked_at if parked else at,
        )

    def with_parked(self, parked: Parked) -> PastRuns:
        """Return the same once a reset has looked at what is parked, and given up a part of it or all."""
        return msgspec.structs.replace(
            self,
            parked={node: dict(by_group) for node, by_group in sorted(parked.items())},
            none_parked_at=self.none_parked_at if parked else self.last_at,
        )


def topics_left(summary: RunSummary) -> dict[str, TopicLeft]:
    """Return how a run left the topics that it read.

    :param summary: with its details.
    """
    times = times_by_topic(summary)
    starts = by_topic({part.topic_partition: part.start_offset for part in summary.inputs}, _UNKNOWN)
    return {
        topic: TopicLeft(
            summary.run_id,
            summary.topic_ids.get(topic, ""),
            stops,
            times.get(topic, ()),
            starts.get(topic, ()),
        )
        for topic, stops in by_topic(summary.stops, _UNKNOWN).items()
    }


def shown(taken_back: Sequence[RunSummary]) -> tuple[RunSummary, ...]:
    """Return the last few of the runs that were taken back, in the order in which they had finished."""
    return tuple(sorted(taken_back, key=lambda run: run.finished_ms)[-TAKEN_BACK_SHOWN:])


def left_without(
    left: Mapping[str, TopicLeft], taken_back: Collection[str], others: Iterable[RunSummary]
) -> dict[str, TopicLeft]:
    """Return how topics are left once runs were taken back: as the run before those left them.

    :param left: as it was.
    :param taken_back: ids of the runs.
    :param others: runs that stay, the last one first; with their details, as far as those have not expired.
    """
    found = dict(left)
    wanted = {topic for topic, entry in left.items() if entry.run_id in taken_back}
    for topic in wanted:
        found[topic] = TopicLeft("", left[topic].id)
    for run in others:
        if not wanted:
            break
        known = topics_left(run)
        counts = {read.topic: read.partitions for read in run.reads}
        for topic in wanted & run.source_topics:
            unknown = TopicLeft(run.run_id, left[topic].id, (_UNKNOWN,) * counts.get(topic, 0))
            found[topic] = known.get(topic, unknown)
        wanted -= run.source_topics
    return found
