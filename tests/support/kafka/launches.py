"""What a driver does for a task that is run without one: it holds the lease, and ships the task's share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec

from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.fold import LeaseOf, LeaseState, last_lease, lease_record
from airflow_kstreams.batch.protocol.logs.log_read import OpenTransactionError
from airflow_kstreams.batch.protocol.slice.metadata import Folded, read_metadata
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    PARTITION,
    MetadataRecord,
    intermediate_stop_record,
)
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import (
    TaskShare,
    frozen_at,
    partitions_of,
    shares_of,
    to_freeze,
)
from airflow_kstreams.streams.ports import Clock, ClusterPort

#: How long a hidden end of the metadata topic is waited for; a task that died may have left it.
_HIDDEN_MS = 2_000


@contextmanager
def lease_held(cluster: ClusterPort, slice_: Slice, clock: Clock) -> Iterator[None]:
    """Hold the lease of a slice's driver meanwhile, if that has let it go, or there was none yet; another's
    stays as it is.
    """
    app = slice_.plan.topology.application_id
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=app)) as reader:
        lease = last_lease(app, admin=admin, reader=reader, clock=clock)
    mine = LeaseOf(slice_.run_id, slice_.generation, continuous=False)
    if slice_.generation == 0 and (lease is None or not lease.expires_ms):
        lease = Lease(
            owner_run_id=slice_.run_id,
            order=(0, 0),
            owner="driver",
            generation=0,
            expires_ms=0,
            lease_ms=60_000,
        )
    if lease is None or mine.state_of(lease) is not LeaseState.RELEASED:
        yield
        return
    held = msgspec.structs.replace(lease, expires_ms=clock.now_ms() + 60_000)
    _write(cluster, [lease_record(app, held)])
    try:
        yield
    finally:
        _write(cluster, [lease_record(app, lease)])


def share_of(cluster: ClusterPort, slice_: Slice, subtopology: int, group: int, clock: Clock) -> TaskShare:
    """Return a task's share, for which the stops of what it reads are frozen if they were not.

    :raises UpstreamNotDoneError: it is too early.
    """
    folded = _folded(cluster, slice_, clock)
    waiting = to_freeze(folded, slice_, subtopology)
    if waiting:
        with closing(cluster.admin()) as admin:
            ends = admin.end_offsets(waiting, isolation="read_uncommitted")
            stops = frozen_at(slice_, ends, admin.end_epochs(waiting))
        _write(cluster, [intermediate_stop_record(slice_, stop) for stop in stops])
        folded = _folded(cluster, slice_, clock)
    (share,) = shares_of(slice_, subtopology, [group], folded=folded)
    return share


def _folded(cluster: ClusterPort, slice_: Slice, clock: Clock) -> Folded:
    app = slice_.plan.topology.application_id
    try:
        folded = read_metadata(cluster, app, wait_ms=_HIDDEN_MS, clock=clock)
    except OpenTransactionError:
        folded = read_metadata(cluster, app, wait_ms=0, clock=clock)
    if folded.slice is not None and folded.slice.run_id == slice_.run_id:
        return folded
    # Whatever its driver saw before the slice was over; the task is refused for that.
    between = partitions_of(slice_, slice_.plan.topology.intermediates)
    return Folded(state=folded.state, intermediate_stops=dict.fromkeys(between, 0))


def _write(cluster: ClusterPort, records: list[MetadataRecord]) -> None:
    with closing(cluster.writer(transactional_id=None)) as writer:
        for record in records:
            writer.produce(record.topic, record.value, record.key, PARTITION, None, record.headers)
        writer.flush()
