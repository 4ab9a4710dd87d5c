"""What Kafka says of a run: how far it is, and what its tasks have done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.report.results import RunResult, result_of_slice
from airflow_kstreams.streams.errors import (
    ConfigError,
    RecordsParkedError,
    RunError,
    UpstreamNotDoneError,
)

if TYPE_CHECKING:
    from airflow_kstreams.batch.ledger.ledger import Ledger
    from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
    from airflow_kstreams.batch.protocol.slice.metadata import Folded
    from airflow_kstreams.kafka.cluster import KafkaCluster
    from airflow_kstreams.streams.ports import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a run is, from one look at ledger and metadata.

    :param finished: its summary; None if it is not finished.
    :param slice: its slice; None if it is finished, or has not begun as far as can be seen.
    :param folded: what the metadata topic says.
    :param held: whether a driver of this run has not let go of its lease: it is at work, or it has died.
        Drivers of other Airflow tasks of the run would have to wait for that lease, so a driver of a higher
        try has to relieve it.
    """

    folded: Folded
    finished: RunSummary | None = None
    slice: Slice | None = None
    held: bool = False

    @property
    def earlier(self) -> str | None:
        """Another run, which is under way and is finished before this one begins."""
        other = self.folded.slice if self.folded.state is RunState.RUNNING else None
        return other.run_id if other is not None and other is not self.slice else None

    @classmethod
    def read(
        cls, cluster: KafkaCluster, application_id: str, run_id: str, *, certain: bool = False
    ) -> Standing:
        """Look at a run.

        :param certain: whether to wait, bounded, for what open transactions hide. Without that a slice or a
            finished task may be overlooked, which the driver then finds.
        :raises KafkaClientError: the broker does not answer, or the wait was in vain.
        """
        from airflow_kstreams.batch.ledger.ledger import read_ledger
        from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS
        from airflow_kstreams.batch.protocol.slice.metadata import Folded, read_metadata

        wait_ms = OPEN_TRANSACTION_TIMEOUT_MS if certain else 0
        with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=application_id)) as reader:
            ledger = read_ledger(cluster, application_id, admin=admin, reader=reader, wait_ms=0)
            if (done := ledger.find(run_id)) is not None:
                return cls(folded=Folded(state=RunState.FINISHED), finished=ledger.detailed(done))
            folded = read_metadata(cluster, application_id, admin=admin, reader=reader, wait_ms=wait_ms)
        found = folded.slice
        ours = folded.state is RunState.RUNNING and found is not None and found.run_id == run_id
        return cls(folded=folded, slice=found if ours else None, held=_is_held(ledger, run_id))

    def unfinished(
        self, cluster: KafkaCluster, subtopologies: Sequence[int], *, certain: bool = False
    ) -> Sequence[str]:
        """Name the tasks that are not at their stop offsets, or have not notified, of the first of some
        subtopologies that has such.

        :param subtopologies: their ids, in topology order.
        :param certain: whether to wait, bounded, for offsets that are in open transactions.
        :return: tasks as ``<subtopology>_<group>``; none without a slice, or of an empty one.
        :raises UpstreamNotDoneError: a subtopology that was not asked for is not done.
        """
        from airflow_kstreams.batch.protocol.slice.stops import unfinished_groups

        slice_ = self.slice
        if slice_ is None or slice_.plan.empty:
            return []
        isolation: Isolation = "read_committed" if certain else "read_uncommitted"
        group_id = slice_.plan.topology.application_id
        with closing(cluster.reader(group_id=group_id, isolation=isolation)) as reader:
            for subtopology in subtopologies:
                left = unfinished_groups(slice_, subtopology, folded=self.folded, reader=reader)
                if left:
                    return [f"{subtopology}_{group}" for group in left]
        return []

    def nothing_left(self, cluster: KafkaCluster, subtopologies: Sequence[int]) -> bool:
        """Say whether a driver would have nothing to do for some subtopologies: neither records to process
        nor another driver to relieve.
        """
        try:
            return not self.held and not self.unfinished(cluster, subtopologies)
        except UpstreamNotDoneError:
            return False


def _is_held(ledger: Ledger, run_id: str) -> bool:
    lease = ledger.held_lease
    return lease is not None and not lease.continuous and lease.owner_run_id == run_id


def subtopologies_of(slice_: Slice, subtopology: int | None) -> Sequence[int]:
    """Return the subtopologies to run, in topology order.

    :param subtopology: the only one that was asked for; None for all.
    :raises ConfigError: the topology has no such one.
    """
    ids = [sub.id for sub in slice_.plan.topology.subtopologies]
    if subtopology is None:
        return ids
    if subtopology not in ids:
        raise ConfigError(
            f"application {slice_.plan.topology.application_id!r} has no subtopology {subtopology}",
            fix=f"use one of {', '.join(map(str, ids))} (airflow-kstreams describe shows them)",
        )
    return [subtopology]


def subtopology_id(subtopology: int | str | None) -> int | None:
    """Return a subtopology's id, which a template renders as text.

    :raises ConfigError: it is no number.
    """
    if subtopology is None:
        return None
    try:
        return int(subtopology)
    except (TypeError, ValueError):
        raise ConfigError(
            f"subtopology is {subtopology!r}, not a number",
            fix="use an id that airflow-kstreams describe shows",
        ) from None


def refuse_unfinished(cluster: KafkaCluster, standing: Standing, subtopologies: Sequence[int]) -> None:
    """Refuse to call subtopologies processed that are not, whatever Spark's exit code says.

    :param standing: a certain one.
    :raises UpstreamNotDoneError: a subtopology before them is not done.
    :raises RunError: Kafka says that tasks are not at their stop offsets.
    """
    left = standing.unfinished(cluster, subtopologies, certain=True)
    if left and standing.slice is not None:
        run_id = standing.slice.run_id
        raise RunError(
            f"Spark ended well, but tasks {', '.join(left)} of run {run_id!r} are not at their stop offsets",
            fix="read the driver's log for what ended it early; the retry resumes the run",
            run_id=run_id,
        )


def refuse_parked(cluster: KafkaCluster, run: RunSummary) -> None:
    """Refuse a finished run as long as records that it left parked are not processed.

    :raises RecordsParkedError: some are; the text says where, and when they are due.
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


def progress_of(cluster: KafkaCluster, slice_: Slice, subtopologies: Sequence[int]) -> RunResult:
    """Describe a slice with what the tasks of some subtopologies have committed so far."""
    from airflow_kstreams.batch.run.record_audit import counts_of

    tasks = _tasks(cluster, slice_, subtopologies)
    topology = slice_.plan.topology
    return result_of_slice(
        slice_,
        [committed.report() for committed in tasks.values()],
        subtopologies=[topology.subtopology(number) for number in subtopologies],
        counts=counts_of(topology, tasks),
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
    with closing(cluster.reader(group_id=topology.application_id, isolation="read_uncommitted")) as reader:
        committed = reader.committed([tp for topic in topics for tp in partitions_of(slice_, topic)])
    return task_metadata(slice_, committed)
