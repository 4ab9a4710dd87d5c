"""Explains why a task cannot read on: records that are gone, or a last stable offset that does not move.

A reader never resets its position by itself (``auto.offset.reset=error``), so a log that starts beyond it
makes it fail; a log that ends before the stop offset just gives nothing more. Both are looked into here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller

from airflow_kstreams.batch.protocol.logs.data_loss import data_loss, end_transactions, rewritten_under_way
from airflow_kstreams.batch.protocol.logs.log_read import POSITION_LOST, ages
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.topics import refuse_other_topics
from airflow_kstreams.batch.task.work import refuse_slice_loss
from airflow_kstreams.streams.errors import KafkaClientError, StopOffsetUnreachableError
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, Record, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

#: Partition -> (offset to read next, stop offset).
Spans = Mapping[TopicPartition, tuple[int, int]]

_offset_of = methodcaller("offset")

#: Error codes of a client whose topic is gone, or is another topic of that name.
TOPIC_LOST = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailures:
    """Explains the failures of one task's reader.

    :param task: id of the task for messages.
    :param end_epochs: leader epoch at each log's end when its stop was frozen, where it is known.
    """

    cluster: ClusterPort
    admin: AdminPort
    slice_: Slice
    task: str
    settings: ApplicationSettings
    clock: Clock
    end_epochs: Mapping[TopicPartition, int]

    def refuse_replaced(self, topics: Collection[str]) -> None:
        """Check that the topics are still those that the run began with.

        :raises DataLossError: a topic was created again, so that records read from it may be those of another
            topic.
        """
        if topics:
            refuse_other_topics(self.admin, self.slice_, topics)

    def refuse_loss(self, spans: Spans) -> None:
        """Check that the records still to be read are there.

        :raises DataLossError: records are gone.
        """
        if spans:
            refuse_slice_loss(self.admin, self.slice_, spans)

    def refuse_rewritten(
        self, fetched: Mapping[TopicPartition, Sequence[Record]], stops: Mapping[TopicPartition, int]
    ) -> None:
        """Check that fetched records were in the log when its stop was frozen. Epochs only grow along a
        log, so the last record below the stop tells it of all.

        :param fetched: records by partition, in offset order.
        :raises DataLossError: the records are others: the log was truncated below the stop, and has grown
            again.
        """
        for partition, records in fetched.items():
            known = self.end_epochs.get(partition)
            if known is None or _epoch(records[-1]) <= known:
                continue
            below = bisect_left(records, stops[partition], key=_offset_of)
            if below and _epoch(records[below - 1]) > known:
                found = next(record for record in records if _epoch(record) > known)
                raise data_loss(
                    [
                        rewritten_under_way(
                            partition,
                            stop=(stops[partition], known),
                            found=(found.offset(), _epoch(found)),
                            run=(self.slice_.plan.topology.application_id, self.slice_.run_id),
                        )
                    ],
                    self.slice_.plan.topology.application_id,
                    run_id=self.slice_.run_id,
                )

    def explain(self, error: KafkaClientError, spans: Spans) -> KafkaClientError:
        """Return the error to raise for one of the reader.

        :raises DataLossError: the reader's position is not in the log any more.
        """
        if error.kafka_code in TOPIC_LOST:
            self.refuse_replaced({partition.topic for partition in spans})
        if error.kafka_code not in POSITION_LOST:
            return error
        self.refuse_loss(spans)
        # Records that are gone were read already; the reader was still to leave them alone. Another reader is
        # not asked for them.
        return KafkaClientError(error.cause, fix=error.fix, kafka_code=error.kafka_code, retriable_code=True)

    def unreachable(self, spans: Spans) -> StopOffsetUnreachableError:
        """Build the error of a task that got no record for too long."""
        stable = self.admin.end_offsets(sorted(spans), isolation="read_committed")
        high = self.admin.end_offsets(sorted(spans), isolation="read_uncommitted")
        held = {tp: stable[tp] for tp in sorted(spans) if stable[tp] < min(high[tp], spans[tp][1])}
        old = (
            ages(self.cluster, held, group_id=self.settings.application_id, clock=self.clock) if held else {}
        )
        details = "; ".join(
            f"{tp}: position {position}, last stable offset {stable[tp]}, high watermark {high[tp]}, "
            f"stop {stop}" + (f", a transaction at the last stable offset {old[tp]}" if tp in old else "")
            for tp, (position, stop) in sorted(spans.items())
        )
        return StopOffsetUnreachableError(
            f"task {self.task} of run {self.slice_.run_id!r} got no record for "
            f"{self.settings.run_stall_timeout_ms} ms: {details}",
            fix=f"{end_transactions(held)}; then retry the run: its slice is kept",
            run_id=self.slice_.run_id,
        )


def _epoch(record: Record) -> int:
    epoch = record.leader_epoch()
    return -1 if epoch is None else epoch
