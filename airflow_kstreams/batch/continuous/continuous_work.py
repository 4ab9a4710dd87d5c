"""Gives a task of a continuous run its work: the run that the ledger names, everything from the committed
offsets on, without end.
"""

from __future__ import annotations

from airflow_kstreams.batch.continuous.endless_end import EndlessEnd
from airflow_kstreams.batch.evidence.rewritten import find_other_records
from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.protocol.logs.data_loss import data_loss
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import task_partitions
from airflow_kstreams.batch.protocol.topics import refuse_other_topics
from airflow_kstreams.batch.task.task_slice import TaskSlice
from airflow_kstreams.batch.task.work import TaskAssignment, TaskSetup
from airflow_kstreams.streams.errors import DataLossError, TaskFencedError
from airflow_kstreams.streams.ports import AdminPort, Clock, CommittedOffset, ReaderPort, TopicPartition
from airflow_kstreams.streams.records.record_queue import UNBOUNDED
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId


class ContinuousWork:
    """The work of a task of a continuous run: endless."""

    def share(self, setup: TaskSetup, reader: ReaderPort, admin: AdminPort) -> tuple[Slice, TaskSlice]:
        """Look the run up in the ledger, and where the task goes on.

        :raises TaskFencedError: the run is not this driver's any more.
        :raises DataLossError: records it must read are gone, or its committed offsets are.
        """
        ledger = read_ledger(setup.cluster, setup.settings.application_id, admin=admin, clock=setup.clock)
        run = current_run(ledger, setup.assignment)
        return run.slice, continuous_share(run, setup.assignment.task_id, reader, admin, clock=setup.clock)

    def end(self, task: StreamTask, admin: AdminPort) -> EndlessEnd:
        """Return where the task's reading ends: nowhere."""
        return EndlessEnd(task, admin)


def current_run(ledger: Ledger, assignment: TaskAssignment) -> ContinuousRun:
    """Return the continuous run, if the ledger still says that it is this driver's.

    :raises TaskFencedError: the driver that launched the task does not own the application any more.
    """
    assignment.refuse_unless_in_force(ledger.lease, continuous=True)
    run = ledger.current_continuous
    if run is None or (run.run_id, run.generation) != (assignment.run_id, assignment.generation):
        found = "none" if run is None else f"{run.run_id!r} generation {run.generation}"
        raise TaskFencedError(
            f"task {assignment.task_id} belongs to the continuous run {assignment.run_id!r} generation "
            f"{assignment.generation}, but the ledger names {found}",
            fix="nothing: the driver that owns the application launches its tasks itself",
            task_id=str(assignment.task_id),
        )
    return run


def continuous_share(
    run: ContinuousRun, task_id: TaskId, reader: ReaderPort, admin: AdminPort, *, clock: Clock
) -> TaskSlice:
    """Work out what a task of a continuous run reads: everything from its committed offsets on.

    :param reader: of the application's group; what it was assigned before is lost.
    :raises DataLossError: records it must read are gone, its committed offsets are, or the log was truncated
        before them and has grown again.
    """
    partitions = task_partitions(run.slice, task_id.subtopology, task_id.group)
    refuse_other_topics(admin, run.slice, {partition.topic for partition in partitions})
    committed = reader.committed(partitions)
    starts = admin.start_offsets(partitions)
    ends = admin.end_offsets(partitions, isolation="read_uncommitted")
    for partition in partitions:
        _refuse_gap(
            partition, committed.get(partition), starts[partition], ends[partition], run_id=run.run_id
        )
    others = find_other_records(
        admin,
        reader,
        {tp: OffsetMetadata.decode(at.metadata).last_record for tp, at in committed.items()},
        committed={tp: at.offset for tp, at in committed.items()},
        logs={tp: (starts[tp], ends[tp]) for tp in partitions},
        clock=clock,
    )
    if others:
        raise data_loss(others, run.plan.topology.application_id, run_id=run.run_id)
    return TaskSlice(
        bounds={partition: (committed[partition].offset, UNBOUNDED) for partition in partitions},
        committed=committed,
    )


def _refuse_gap(
    partition: TopicPartition, committed: CommittedOffset | None, start: int, end: int, *, run_id: str
) -> None:
    if committed is not None and start <= committed.offset <= end:
        return
    what = (
        "there is no committed offset" if committed is None else f"the committed offset is {committed.offset}"
    )
    raise DataLossError(
        f"{partition}: {what}, but the log holds [{start}, {end}); continuous run {run_id!r} cannot go on "
        "there",
        fix="restore the topic, or stop the run and accept the gap with: kafka-consumer-groups.sh "
        "--bootstrap-server <broker> --group <application id> --topic "
        f"{partition.topic}:{partition.partition} --reset-offsets --to-earliest --execute",
        run_id=run_id,
    )
