"""Freezes the stops of intermediate topics for the owner of a slice.

They are frozen as proven in :mod:`airflow_kstreams.batch.protocol.slice.stops`.
Only the owner of the lease writes them. Should another coordinator have claimed the coordinator's id between
the look at the topic and the write, the write fails; if the lease is ours still, that one only looked. It is
not known whether a write that failed came through: so before anything is written again, the id is claimed
anew, which settles it, and the topic is looked at once more. A stop that is there stays.
"""

from __future__ import annotations

from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState
from airflow_kstreams.batch.protocol.slice.metadata_records import intermediate_stop_record
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import frozen_at, to_freeze
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.lease.lease import CoordinatorLease
from airflow_kstreams.streams.errors import (
    KafkaClientError,
    KStreamsError,
    TaskFencedError,
    TransactionAbortedError,
    UpstreamNotDoneError,
)
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)
_WRITES = 3
#: After these errors it is not known whether a write came through; a read after another claim tells.
DOUBTFUL = (TaskFencedError, TransactionAbortedError, KafkaClientError)


def frozen_upstream(
    session: CoordinatorSession, lease: CoordinatorLease, slice_: Slice, subtopology_id: int
) -> Folded:
    """Freeze the stops of the intermediate topics that a subtopology reads, unless they are frozen.

    :return: the content of the metadata topic after that.
    :raises UpstreamNotDoneError: a subtopology before this one is not done, or the metadata topic holds
        another slice.
    :raises RunSupersededError: another driver owns the slice.
    """
    for writes_left in reversed(range(_WRITES)):
        folded = session.read_metadata(None)
        _refuse_other_slice(folded, slice_)
        waiting = to_freeze(folded, slice_, subtopology_id)
        if not waiting:
            break
        ends = session.admin.end_offsets(waiting, isolation="read_uncommitted")
        try:
            stops = frozen_at(slice_, ends, session.admin.end_epochs(waiting))
            lease.write([intermediate_stop_record(slice_, stop) for stop in stops])
        except KStreamsError as error:
            doubtful = isinstance(error, DOUBTFUL) and error.is_retriable
            if not writes_left or not doubtful or lease.held is None:
                raise
            log.info("run %s: the stops are read again: %s", slice_.run_id, error.cause)
            lease.reclaim()
        else:
            log.info("run %s: the stops of %s are frozen", slice_.run_id, counted(len(waiting), "partition"))
            return session.read_metadata(None)
    return folded


def _refuse_other_slice(folded: Folded, slice_: Slice) -> None:
    """Refuse to judge a slice by a metadata topic that holds another one."""
    found = folded.slice
    if found is None or folded.state is RunState.NEW or found.run_id != slice_.run_id:
        what = "no slice" if found is None else f"run {found.run_id!r}, {folded.state.value}"
        raise UpstreamNotDoneError(
            f"run {slice_.run_id!r} is not finished, but the metadata topic holds {what}",
            fix="nothing if another driver took the run over; else begin it again, which says what to do",
            run_id=slice_.run_id,
        )
