"""Lists the applications of a cluster: those that have a ledger, each with its last run.

The end of each ledger is read, the ids in alphabetic order, until the time is over; the others are listed by
their ids.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.inspect.notebook_form import ShownInNotebooks
from airflow_kstreams.batch.inspect.runs.seen_runs import SeenRun, seen_run
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import Clock, ClusterPort

_ENDING = ProtocolTopics("").ledger
#: It leaves a part of 10 s to the cluster's first answer and to what shows the list.
_SECONDS = 5.0


class SeenApplication(msgspec.Struct, frozen=True, kw_only=True):
    """An application, as a list shows it.

    :param application_id: its id.
    :param finished: number of its finished runs; null if its ledger was not read.
    :param last: the run that finished last; null if none has, or the ledger was not read.
    :param works_on: the run for which a driver holds the lease; null if none does.
    :param failed: the run whose last attempt has failed, while no driver works on it; null if none has.
    """

    application_id: str
    finished: int | None = None
    last: SeenRun | None = None
    works_on: str | None = None
    failed: str | None = None


class SeenApplications(ShownInNotebooks, frozen=True, kw_only=True):
    """The applications of a cluster.

    :param applications: the applications that have a ledger, by their ids.
    :param not_seen: the ledgers that could not be read, and why.
    """

    applications: tuple[SeenApplication, ...]
    not_seen: tuple[str, ...] = ()


def read_applications(
    cluster: ClusterPort, *, only: Collection[str] | None = None, clock: Clock | None = None
) -> SeenApplications:
    """List the applications of a cluster.

    :param only: ids of the applications to list; None for all.
    :raises KafkaClientError: the broker does not answer.
    """
    clock = clock or SystemClock()
    end, found, not_seen = clock.monotonic_seconds() + _SECONDS, list[SeenApplication](), list[str]()
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=f"looks{_ENDING}")) as reader:
        topics = admin.topic_names()
        ids = sorted(name.removesuffix(_ENDING) for name in topics if name.endswith(_ENDING))
        if only is not None:
            ids = [each for each in ids if each in only]
        for number, app in enumerate(ids):
            if clock.monotonic_seconds() >= end:
                left = counted(len(ids) - number, "ledger")
                not_seen.append(f"the time was over: {left} could not be read, from that of {app} on")
                found += [SeenApplication(application_id=each) for each in ids[number:]]
                break
            try:
                ledger = read_ledger(cluster, app, admin=admin, reader=reader, wait_ms=0, clock=clock)
            except KStreamsError as error:
                # Another program's topic, or one that this user may not read, hides no other application.
                not_seen.append(f"{app}: {error.cause}")
                found.append(SeenApplication(application_id=app))
                continue
            last, lease, attempted = ledger.last(), ledger.held_lease, ledger.histories().last
            failed = (
                attempted is not None
                and attempted.failure is not None
                and lease is None
                and not ledger.is_finished(attempted.run_id)
            )
            found.append(
                SeenApplication(
                    application_id=app,
                    finished=ledger.past.finished,
                    last=None if last is None else seen_run(last),
                    works_on=None if lease is None else lease.works_on,
                    failed=attempted.run_id if failed and attempted is not None else None,
                )
            )
    return SeenApplications(applications=tuple(found), not_seen=tuple(not_seen))
