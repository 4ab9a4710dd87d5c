"""What Kafka says of a run: how far it is, and what its tasks have done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_kstreams.batch.model import RunState, RunSummary, Slice, TaskReport
from airflow_kstreams.hooks.ledger import finished_run
from airflow_kstreams.hooks.results import RunResult, result_of_slice
from airflow_kstreams.streams.errors import ConfigError, RunError, UpstreamNotDoneError
from airflow_kstreams.streams.settings import ApplicationSettings

if TYPE_CHECKING:
    from airflow_kstreams.kafka.cluster import KafkaCluster


def read_run(
    cluster: KafkaCluster, application_id: str, run_id: str
) -> tuple[RunSummary | None, Slice | None]:
    """Read how far a run is.

    :return: its summary if it is finished, else its slice if it has begun.
    """
    from airflow_kstreams.batch.metadata import read_metadata

    finished = finished_run(cluster, application_id, run_id)
    if finished is not None:
        return finished, None
    # Without waiting for what open transactions hide: a slice overlooked here is found by the driver.
    folded = read_metadata(cluster, application_id, wait_ms=0)
    if folded.state is RunState.RUNNING and folded.slice is not None and folded.slice.run_id == run_id:
        return None, folded.slice
    return None, None


def unfinished_run(cluster: KafkaCluster, application_id: str) -> str | None:
    """Return the run that is under way and comes before every other one, None if there is none."""
    from airflow_kstreams.batch.metadata import read_metadata

    folded = read_metadata(cluster, application_id, wait_ms=0)
    return folded.slice.run_id if folded.state is RunState.RUNNING and folded.slice is not None else None


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


def nothing_left(cluster: KafkaCluster, slice_: Slice, subtopologies: Sequence[int]) -> bool:
    """Say whether subtopologies are at their stop offsets already.

    A look without any wait: what it overlooks is found by the driver, which then has nothing to do.
    """
    from airflow_kstreams.batch.metadata import read_metadata
    from airflow_kstreams.batch.stops import unfinished_groups

    folded = read_metadata(cluster, slice_.plan.topology.application_id, wait_ms=0)
    # What an earlier driver's task has in an open transaction is not waited for.
    reader = cluster.reader(group_id=slice_.plan.topology.application_id, isolation="read_uncommitted")
    try:
        return not any(
            unfinished_groups(slice_, subtopology, folded=folded, reader=reader)
            for subtopology in subtopologies
        )
    except UpstreamNotDoneError:
        return False
    finally:
        reader.close()


def refuse_unfinished(
    cluster: KafkaCluster, settings: ApplicationSettings, slice_: Slice, subtopologies: Sequence[int]
) -> None:
    """Refuse to call subtopologies processed that are not, whatever Spark's exit code says.

    :raises RunError: Kafka says that tasks are not at their stop offsets.
    """
    from airflow_kstreams.batch.coordinator import Coordinator

    coordinator = Coordinator(cluster, settings)
    try:
        for subtopology in subtopologies if not slice_.plan.empty else ():
            left = coordinator.unfinished(slice_, subtopology)
            if left:
                names = ", ".join(f"{subtopology}_{group}" for group in left)
                raise RunError(
                    f"Spark ended well, but tasks {names} of run {slice_.run_id!r} are not at their stop "
                    "offsets",
                    fix="read the driver's log for what ended it early; the retry resumes the run",
                    run_id=slice_.run_id,
                )
    finally:
        coordinator.close()


def progress_of(cluster: KafkaCluster, slice_: Slice, subtopologies: Sequence[int]) -> RunResult:
    """Describe a slice with what the tasks of some subtopologies have committed so far."""
    return result_of_slice(slice_, _reports(cluster, slice_, subtopologies))


def _reports(cluster: KafkaCluster, slice_: Slice, subtopologies: Sequence[int]) -> list[TaskReport]:
    from airflow_kstreams.batch.finish import task_reports
    from airflow_kstreams.batch.stops import partitions_of

    if slice_.plan.empty:
        return []
    topology = slice_.plan.topology
    topics = {topic for number in subtopologies for topic in topology.subtopology(number).sources}
    reader = cluster.reader(group_id=topology.application_id, isolation="read_uncommitted")
    try:
        committed = reader.committed([tp for topic in topics for tp in partitions_of(slice_, topic)])
    finally:
        reader.close()
    return list(task_reports(slice_, committed))
