"""Reads from Kafka the state of a run and the progress of its tasks, and refuses an operator's end that does
not fit them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow_kstreams.batch.ledger.run_summary import RunSummary, summary_so_far
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.errors import RecordsParkedError, RunError, UpstreamNotDoneError
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.streams.plan import refuse_unknown_subtopology

if TYPE_CHECKING:
    from airflow_kstreams.batch.evidence.run_facts import RunFacts
    from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
    from airflow_kstreams.kafka.cluster import KafkaCluster
    from airflow_kstreams.streams.ports import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A run as one look at Kafka finds it.

    :param run_id: id of the run.
    :param facts: facts that the application's ledger and metadata topic gave when they were read.
    :param finished: the run's summary; None if it is not finished.
    """

    run_id: str
    facts: RunFacts
    finished: RunSummary | None = None

    @classmethod
    def read(
        cls, cluster: KafkaCluster, application_id: str, run_id: str, *, certain: bool = False
    ) -> FoundRun:
        """Read the state of a run.

        :param certain: whether to wait, bounded, for records that open transactions hide. Without that a
            slice or a finished task may be overlooked, which the driver then finds.
        :raises KafkaClientError: the broker does not answer, or transactions stayed open for too long.
        """
        from airflow_kstreams.batch.evidence.run_facts import RunFacts
        from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS
        from airflow_kstreams.batch.protocol.slice.metadata import RunState

        wait_ms = OPEN_TRANSACTION_TIMEOUT_MS if certain else 0
        with (
            closing(cluster.admin()) as admin,
            closing(cluster.reader(group_id=application_id, small=True)) as reader,
        ):
            look = partial(
                RunFacts.read,
                cluster,
                application_id,
                admin=admin,
                reader=reader,
                unless_finished=run_id,
                ledger_wait_ms=wait_ms,
                metadata_wait_ms=wait_ms,
            )
            facts = look()
            done = facts.ledger.find(run_id)
            if certain and done is None and facts.state is RunState.FINISHED and facts.run_id == run_id:
                facts = look()  # it finished between the look at the ledger and the one at the metadata topic
                done = facts.ledger.find(run_id)
            return cls(
                run_id=run_id,
                facts=facts,
                finished=None if done is None else facts.ledger.detailed(done),
            )

    @property
    def slice(self) -> Slice | None:
        """The run's slice; None if it is finished, or has not begun as far as can be seen."""
        slice_ = self.facts.under_way
        return None if slice_ is None or slice_.run_id != self.run_id else slice_

    @property
    def earlier(self) -> str | None:
        """Another run, which is under way and is finished before this one begins."""
        slice_ = self.facts.under_way
        return None if slice_ is None or slice_.run_id == self.run_id else slice_.run_id

    @property
    def held(self) -> bool:
        """Whether a driver of this run has not released its lease: it is at work, or it has died. Drivers of
        other Airflow tasks of the run would wait for that lease, so a driver of a higher try has to replace
        it.
        """
        lease = self.facts.ledger.held_lease
        return lease is not None and not lease.continuous and lease.owner_run_id == self.run_id

    def unfinished(
        self, cluster: KafkaCluster, subtopologies: Sequence[int], *, certain: bool = False
    ) -> Sequence[str]:
        """Name the tasks that are not at their stop offsets, or have not notified, of the first of some
        subtopologies that has such.

        :param subtopologies: ids of the subtopologies, in topology order.
        :param certain: whether to wait, bounded, for offsets that are in open transactions.
        :return: ids of the tasks as ``<subtopology>_<group>``; none without a slice, or for an empty one.
        :raises UpstreamNotDoneError: a subtopology that was not asked for is not done.
        """
        from airflow_kstreams.batch.protocol.slice.stops import unfinished_groups

        slice_ = self.slice
        if slice_ is None or slice_.plan.empty:
            return []
        isolation: Isolation = "read_committed" if certain else "read_uncommitted"
        group_id = slice_.plan.topology.application_id
        with closing(cluster.reader(group_id=group_id, isolation=isolation, small=True)) as reader:
            for subtopology in subtopologies:
                left = unfinished_groups(slice_, subtopology, folded=self.facts.metadata, reader=reader)
                if left:
                    return [f"{subtopology}_{group}" for group in left]
        return []

    def nothing_left(self, cluster: KafkaCluster, subtopologies: Sequence[int]) -> bool:
        """Return whether a driver would have nothing to do for some subtopologies: neither records to process
        nor another driver to relieve.
        """
        try:
            return not self.held and not self.unfinished(cluster, subtopologies)
        except UpstreamNotDoneError:
            return False


def subtopologies_of(slice_: Slice, subtopology: int | None) -> Sequence[int]:
    """Return the subtopologies to run, in topology order.

    :param subtopology: id of the only one to run; None for all.
    :raises ConfigError: the topology has no such subtopology.
    """
    ids = [sub.id for sub in slice_.plan.topology.subtopologies]
    if subtopology is None:
        return ids
    refuse_unknown_subtopology(slice_.plan.topology.application_id, subtopology, ids)
    return [subtopology]


def refuse_unfinished(cluster: KafkaCluster, found: FoundRun, subtopologies: Sequence[int]) -> None:
    """Refuse to call subtopologies processed that are not, even if Spark ended well.

    :param found: the run, found by a look that waited for open transactions.
    :raises UpstreamNotDoneError: a subtopology before them is not done.
    :raises RunError: Kafka says that tasks are not at their stop offsets.
    """
    left = found.unfinished(cluster, subtopologies, certain=True)
    if left and found.slice is not None:
        run_id = found.run_id
        raise RunError(
            f"Spark ended well, but tasks {', '.join(left)} of run {run_id!r} are not at their stop offsets",
            fix="read the driver's log for what ended it early; the retry resumes the run",
            run_id=run_id,
        )


def refuse_parked(cluster: KafkaCluster, run: RunSummary) -> None:
    """Refuse a finished run as long as records that it left parked are not processed.

    :raises RecordsParkedError: some are not; the text names their nodes, and the time at which they are due.
    """
    from airflow_kstreams.batch.inspect.conditions import still_parked
    from airflow_kstreams.batch.ledger.ledger import read_ledger

    still = still_parked(read_ledger(cluster, run.application_id, wait_ms=0), run) if run.parked else ""
    if still:
        raise RecordsParkedError(
            f"run {run.run_id!r} of application {run.application_id!r} is finished and all that it wrote is "
            f"committed, but {still}",
            fix="let the next run come, which works on them first, then retry or clear this task, which "
            "looks again; or set allow_parked=True",
            run_id=run.run_id,
        )


def so_far(cluster: KafkaCluster, slice_: Slice, subtopologies: Sequence[int]) -> RunSummary:
    """Describe a slice with what the tasks of some subtopologies have committed so far, in all attempts."""
    from airflow_kstreams.batch.run.finish import counts_of

    tasks = _tasks(cluster, slice_, subtopologies)
    topology = slice_.plan.topology
    reports = [committed.report() for committed in tasks.values()]
    return summary_so_far(
        slice_,
        reports,
        counts_of(topology, tasks) if reports else RecordCounts(),
        subtopologies=[topology.subtopology(number) for number in subtopologies],
    )


def _tasks(
    cluster: KafkaCluster, slice_: Slice, subtopologies: Sequence[int]
) -> Mapping[str, OffsetMetadata]:
    from airflow_kstreams.batch.protocol.slice.stops import partitions_of
    from airflow_kstreams.batch.run.finish import task_metadata

    if slice_.plan.empty:
        return {}
    topology = slice_.plan.topology
    topics = {topic for number in subtopologies for topic in topology.subtopology(number).sources}
    with closing(
        cluster.reader(group_id=topology.application_id, isolation="read_uncommitted", small=True)
    ) as reader:
        committed = reader.committed(partitions_of(slice_, topics))
    return task_metadata(slice_, committed)
