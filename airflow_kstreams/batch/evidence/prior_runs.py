"""Gathers what earlier runs left behind, from three places that can each be lost without the others, and
finds logs that no longer hold what those runs read.

1. The group's committed offsets: the truth while they are there. They expire (``offsets.retention.minutes``),
   and the broker drops those of a topic that is deleted.
2. The metadata topic: the stop offsets and the plan of the run that was finished last.
3. The ledger: how the newest finished run that read a topic left it, with stops, topic ids and times; or what
   a reset left, if nothing has run since.

Where 1 is silent, 2 and 3 say where the last run stopped, which is as good, because nothing is committed
between two runs. It is not as good when the ledger knows of a run that took the lease and never finished,
while the metadata topic says nothing: that run may have committed anything, and nothing says what. The same
holds after a continuous run, which has no stops. Contradictions between the three are the business of
:mod:`airflow_kstreams.batch.evidence.contradictions`.

A log may have been truncated below the committed offset and have grown past it again, which offsets alone do
not show. Rule: with each committed offset stands the last record that was read before it, by offset and
leader epoch. What lies between the two was markers and aborted records, and stays so. Another epoch at that
offset, nothing there, or a record between it and the committed offset is the work of another leader, which
took records under offsets that had been given before; the run would skip them.

Where retention or a person deleted the record nothing can be compared, and where compaction may have removed
it its absence says nothing. Records of a message format without epochs and offsets that another tool
committed are not compared, nor is a batch that cannot be unpacked, which an operator had reading go past.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.ledger.facts import Acceptance
from airflow_kstreams.batch.ledger.past_runs import TopicLeft
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, rewritten
from airflow_kstreams.batch.protocol.logs.log_read import POSITION_LOST, LogBounds, where_readable
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState
from airflow_kstreams.batch.protocol.slice.slice import partition_named
from airflow_kstreams.streams.bounded_read import BoundedRead, Spans
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, CommittedOffset, ReaderPort, TopicPartition
from airflow_kstreams.streams.records.record_queue import LastRecord, PartitionTimes, last_of

#: Records of one fetch; a span holds one record, unless the log is another one.
_FETCH_RECORDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorRuns:
    """Holds the traces that earlier runs left in Kafka.

    :param committed: committed offsets of the application's consumer group.
    :param last_stops: partition -> the offset at which the last run that read its topic stopped, inputs and
        intermediates.
    :param topic_ids: topic -> the id that the last run froze.
    :param times: partition -> its times at that stop.
    :param read: topic -> the number of its partitions that the last run read.
    :param unfinished_run: a run whose progress only committed offsets can tell: one that was under way when
        the metadata topic was lost, or the last continuous one; empty if there is none.
    :param continuous: whether the unfinished run was a continuous one.
    :param no_slice: whether the metadata topic holds no slice, finished or not, and no reset explains that.
    :param foreign_run: whether a run that another program began is under way. A partition without committed
        offset may then be part of its slice, so the first-run policy, which is for our own runs, does not
        count.
    :param last_is_ours: whether a run of ours, or a reset, was the last to work on the application, so that
        every offset since carries our text; another program may have begun runs in the bare format.
    :param reset_by_hand: whether a person set the offset of every input, and so began the application anew.
    :param accepted: partition -> the offset from which an operator lets reading go on since.
    :param purged: topics of which runs delete the records that they have read.
    """

    committed: Mapping[TopicPartition, CommittedOffset]
    last_stops: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    times: Mapping[TopicPartition, PartitionTimes] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)
    unfinished_run: str = ""
    continuous: bool = False
    no_slice: bool = False
    foreign_run: bool = False
    last_is_ours: bool = False
    reset_by_hand: bool = False
    accepted: Mapping[TopicPartition, Acceptance] = field(default_factory=dict)
    purged: Collection[str] = ()
    _decoded: dict[TopicPartition, OffsetMetadata] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def remembered(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which runs have read a partition, None when no source tells it."""
        if partition in self.committed:
            return self.committed[partition].offset
        if self.unfinished_run:
            return None
        if partition in self.accepted:
            return self.accepted[partition].offset
        return self.last_stops.get(partition)

    def was_read(self, partition: TopicPartition) -> bool:
        """Whether some run has read a partition, as far as any source tells."""
        return partition.partition < self.read.get(partition.topic, 0)

    @property
    def know_anything(self) -> bool:
        """Whether runs have left a trace of any topic."""
        return bool(self.last_stops) or any(self.read.values())

    def set_by_a_person(self, partition: TopicPartition) -> bool:
        """Whether the committed offset is not of a run: a person set it, and accepted the topic as it is."""
        return partition in self.committed and not self.run_of(partition)

    def accepts(self, partition: TopicPartition, log_of: LogBounds) -> bool:
        """Whether a person lets reading go on at the committed offset: by our command, or at or before the
        start of the log, which skips no record that exists.
        """
        if not self.set_by_a_person(partition):
            return False
        at, known = self.committed[partition].offset, self.accepted.get(partition)
        return at <= log_of.start or (known is not None and known.offset == at)

    def run_of(self, partition: TopicPartition) -> str:
        """Return the run that has committed a partition's offset; empty if a person has set it."""
        return self._metadata(partition).run_id

    def lost_slice(self, finished: Callable[[str], bool]) -> str:
        """Return the run that had begun and whose stop offsets no topic holds any more; empty if there is
        none.

        Begin commits the start of every partition under the run's id, so that offsets say which has begun.

        :param finished: returns whether the ledger has a run as finished.
        """
        if not self.no_slice:
            return ""
        if self.unfinished_run and not self.continuous:
            return self.unfinished_run
        begun = {self.run_of(tp) for tp in self.committed} - {""}
        return min((run_id for run_id in begun if not finished(run_id)), default="")

    def times_of(self, partition: TopicPartition) -> PartitionTimes:
        """Return a partition's times at the offset at which the next slice starts.

        They travel with the committed offset. If the offset expired, or a person moved it forward, the times
        stay those of the last run: the records read before are still the past. If a person moved it back, the
        times begin anew.
        """
        if partition in self.committed and not self.set_by_a_person(partition):
            return self._metadata(partition).times
        last = self.accepted[partition].offset if partition in self.accepted else None
        at = self.committed[partition].offset if partition in self.committed else last
        if at is not None and at == last:
            return self.accepted[partition].times
        moved_back = (self.remembered(partition) or 0) < self.last_stops.get(partition, 0)
        return PartitionTimes() if moved_back else self.times.get(partition, PartitionTimes())

    def last_record(self, partition: TopicPartition) -> LastRecord:
        """Return the last record before a partition's committed offset; unknown without one, after another
        tool's commit, and of versions that kept none.
        """
        return self._metadata(partition).last_record if partition in self.committed else LastRecord()

    def metadata_of(self, partition: TopicPartition) -> OffsetMetadata | None:
        """Return the metadata that a run has committed beside a partition's offset; None where the offset is
        gone, or a person set it.
        """
        if partition not in self.committed or self.set_by_a_person(partition):
            return None
        return self._metadata(partition)

    def ruled_out(self, partition: TopicPartition) -> tuple[GrowthKind, ...]:
        """Return the kinds of growth that keys of a partition exclude, as its tasks found."""
        return self._metadata(partition).ruled_out if partition in self.committed else ()

    def _metadata(self, partition: TopicPartition) -> OffsetMetadata:
        # Begin asks for several parts of it, of every partition.
        found = self._decoded.get(partition)
        if found is None:
            found = self._decoded[partition] = OffsetMetadata.decode(self.committed[partition].metadata)
        return found


def recall(plan: TopologyPlan, facts: RunFacts) -> PriorRuns:
    """Gather the facts that the ledger and the metadata topic have of a topology's sources; committed offsets
    are read later.
    """
    ledger, metadata = facts.ledger, facts.metadata
    if ledger.current_continuous is not None:
        run = ledger.current_continuous
        return PriorRuns(
            committed={},
            last_stops={partition_named(name): at for name, at in run.starts.items()},
            topic_ids=run.plan.topic_ids,
            read=run.plan.partitions,
            unfinished_run=run.run_id,
            continuous=True,
            last_is_ours=True,
            accepted=ledger.accepted,
        )
    topics = plan.sources
    newest = ledger.left(topics)
    # Partition counts of the run whose groups stand in the ledger, finished or not, and of those that
    # finished.
    read = {topic: count for entry in ledger.assignment.current for topic, count in entry.partitions.items()}
    read |= {topic: len(left.stops) for topic, left in newest.items()}
    if ledger.reset is not None:
        # The reset's record has every position, and no run has begun since.
        stops = {tp: offset for tp, offset in ledger.reset.stops.items() if tp.topic in topics}
        untouched = {
            at for topic, left in newest.items() for at in left.stops_of(topic).items() & stops.items()
        }
        return PriorRuns(
            committed={},
            last_stops=stops,
            topic_ids=ledger.reset.topic_ids,
            times=_times(newest, {tp for tp, _ in untouched}),
            read=read | ledger.reset.read,
            foreign_run=facts.foreign_run,
            last_is_ours=not facts.foreign_run,
            accepted=ledger.accepted,
        )
    stops = {}
    topic_ids: dict[str, str] = {}
    for topic, left in newest.items():
        stops |= left.stops_of(topic)
        if left.id and left.stops:
            topic_ids[topic] = left.id
    if metadata.slice is not None and metadata.state is RunState.FINISHED:
        topic_ids |= metadata.slice.plan.topic_ids
        read |= metadata.slice.plan.partitions
    if metadata.state is RunState.FINISHED:
        stops |= _finished_stops(metadata, plan.intermediates, prior=stops)
    return PriorRuns(
        committed={},
        last_stops=stops,
        topic_ids=topic_ids,
        times=_times(newest, stops),
        read=read,
        unfinished_run=facts.lost_run,
        continuous=ledger.lease is not None and ledger.lease.continuous,
        no_slice=metadata.state is RunState.NEW,
        foreign_run=facts.foreign_run,
        last_is_ours=metadata.slice is not None,
        accepted=ledger.accepted,
    )


def with_committed(
    prior: PriorRuns,
    committed: Mapping[TopicPartition, CommittedOffset],
    plan: TopologyPlan,
    topic_ids: Mapping[str, str],
    *,
    partitions: Collection[TopicPartition],
) -> PriorRuns:
    """Add the committed offsets, and leave out the facts that they and the topics make void.

    A person who set the offset of every input has reset the application, even if a run was under way before.
    A repartition topic holds nothing between two runs, so that nothing is lost if it is created again.

    :param topic_ids: topic -> its id now.
    :param partitions: all partitions of the source topics now.
    """
    accepted = {
        tp: each
        for tp, each in prior.accepted.items()
        if tp.topic in plan.sources and each.topic_id == topic_ids[tp.topic]
    }
    prior = dataclasses.replace(
        prior,
        committed=committed,
        accepted=accepted,
        purged=plan.repartition_topics,
    )
    inputs = [tp for tp in partitions if tp.topic in plan.inputs]
    if inputs and all(map(prior.set_by_a_person, inputs)):
        prior = dataclasses.replace(prior, unfinished_run="", no_slice=False, reset_by_hand=True)
    if prior.unfinished_run:
        return prior
    again = {
        topic
        for topic in plan.repartition_topics
        if prior.topic_ids.get(topic, topic_ids[topic]) != topic_ids[topic]
    }
    return dataclasses.replace(
        prior,
        committed={tp: offset for tp, offset in committed.items() if tp.topic not in again},
        last_stops={tp: stop for tp, stop in prior.last_stops.items() if tp.topic not in again},
        read={topic: count for topic, count in prior.read.items() if topic not in again},
        topic_ids={topic: id_ for topic, id_ in prior.topic_ids.items() if topic not in again},
    )


def _times(
    newest: Mapping[str, TopicLeft], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, PartitionTimes]:
    """Return the times that stand in the ledger, of these partitions."""
    found = {tp: newest[tp.topic].times_of(tp) for tp in partitions if tp.topic in newest}
    return {tp: times for tp, times in found.items() if times is not None}


def _finished_stops(
    folded: Folded, intermediates: Collection[str], prior: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the stops of the run that the metadata topic says was finished last.

    Of intermediate topics it has the reported offsets only; the ledger has the offsets up to which they were
    read in the end.

    :param prior: stop offsets by the ledger.
    """
    stops: dict[TopicPartition, int] = {}
    reported: dict[TopicPartition, int] = {}
    if folded.slice is not None:
        reported = {partition_named(n): o for n, o in folded.slice.plan.intermediate_starts.items()}
        if not folded.torn:
            # The ledger knows it if an operator had reading go on past a stop.
            frozen = {part.topic_partition: part.stop_offset for part in folded.slice.inputs}
            stops = {tp: max(stop, prior.get(tp, 0)) for tp, stop in frozen.items()}
    for intermediate, offset in folded.reached.items():
        reported[intermediate] = max(reported.get(intermediate, 0), offset)
    # What reads as the stop of an intermediate partition is a notification whose key looks like one.
    stops |= {tp: stop for tp, stop in folded.foreign_stops.items() if tp.topic not in intermediates}
    return stops | {tp: max(offset, prior.get(tp, 0)) for tp, offset in reported.items()}


def find_rewritten(
    admin: AdminPort,
    reader: ReaderPort,
    bounds: Mapping[TopicPartition, LogBounds],
    prior: PriorRuns,
    *,
    clock: Clock,
) -> list[Loss]:
    """Return the partitions whose log is not the one that runs have read; nothing is read without an epoch.

    :param reader: reader of committed records; its earlier assignment is lost.
    :param bounds: first and last offsets of the logs of partitions without losses
        (:func:`~airflow_kstreams.batch.run.begin.freeze.find_losses`).
    """
    return find_other_records(
        admin,
        reader,
        {tp: prior.last_record(tp) for tp in bounds if prior.remembered(tp)},
        committed={tp: at.offset for tp, at in prior.committed.items()},
        logs={tp: (log_of.start, log_of.stable) for tp, log_of in bounds.items()},
        clock=clock,
    )


def find_other_records(
    admin: AdminPort,
    reader: ReaderPort,
    last: Mapping[TopicPartition, LastRecord],
    *,
    committed: Mapping[TopicPartition, int],
    logs: Spans,
    clock: Clock,
) -> list[Loss]:
    """Return the partitions that hold other records before their committed offset than those that were read.

    After the last record that was read none came before the offset, only what readers do not get; so one that
    is there now tells also where that last record is deleted.

    :param reader: reader of committed records; its earlier assignment is lost.
    :param last: last record before each committed offset; a partition where it is not known is not read.
    :param committed: committed offset of each partition.
    :param logs: first offset and last stable offset of each log.
    """
    known = {tp: of for tp, of in sorted(last.items()) if of.known}
    spans = {tp: (max(of.offset, logs[tp][0]), min(committed[tp], logs[tp][1])) for tp, of in known.items()}
    found = where_readable(reader, spans, lambda some: _read(admin, reader, some, clock=clock))
    absent = {tp for tp, records in found.items() if not records and known[tp].offset >= logs[tp][0]}
    compacted = _compacted(admin, {tp.topic for tp in absent})
    losses: list[Loss] = []
    for tp, records in found.items():
        other = next((record for record in records if record != known[tp]), None)
        if other is None and (tp not in absent or tp.topic in compacted):
            continue
        losses.append(rewritten(tp, position=committed[tp], expected=known[tp], found=other))
    return losses


def _read(
    admin: AdminPort, reader: ReaderPort, spans: Spans, *, clock: Clock
) -> dict[TopicPartition, list[LastRecord]]:
    """Return the records in each span, without the partitions whose span was deleted meanwhile."""
    while True:
        found: dict[TopicPartition, list[LastRecord]] = {tp: [] for tp in spans}
        try:
            for fetched in BoundedRead(reader, spans, clock=clock, max_records=_FETCH_RECORDS):
                for tp, records in fetched.items():
                    found[tp] += map(last_of, records)
        except KafkaClientError as error:
            left = _still_there(admin, spans) if error.kafka_code in POSITION_LOST else spans
            if len(left) == len(spans):
                raise
            spans = left
        else:
            return found


def _still_there(admin: AdminPort, spans: Spans) -> Spans:
    starts = admin.start_offsets(spans)
    return {tp: span for tp, span in spans.items() if span[0] >= starts[tp]}


def _compacted(admin: AdminPort, topics: Collection[str]) -> set[str]:
    if not topics:
        return set()
    configs = admin.topic_configs(topics)
    for refused in configs.refused.values():
        raise refused
    return {topic for topic, found in configs.found.items() if "compact" in found.get("cleanup.policy", "")}
