"""A whole run without Spark: begin, every task in turn, finish, in this process; on the real broker, or on
any cluster, with or without an interceptor of its port calls.

What an application does beyond runs stands on this one: ``reset_scene`` and ``continuous_scene``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.run.tables.merge_plan import MakeMerges
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.work import OpenRows, SliceWork, TaskAssignment, TaskSetup
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.calls.call import MakeCaller
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_port import TablesPort
from airflow_kstreams.testing import FaultyCluster
from airflow_kstreams.testing.faults import Interceptor
from tests.support.kafka.launches import lease_held, share_of


@dataclass(kw_only=True)
class Application:
    """One application on a broker.

    :param settings: by dotted name; exactly_once unless given.
    :param client: client settings besides the address.
    :param on: another cluster than the broker, with its clock.
    :param interceptor: of the application's port calls; none unless given.
    :param launching: the cluster as the driver sees it that launches the tasks; without the interceptor
        unless given.
    :param make_caller: makes what runs the calls of asynchronous nodes; a loop and threads unless given.
    :param tables: opens the tables that it writes to.
    :param open_rows: opens what takes a task's rows for a table.
    :param make_merges: merges small files of a run before it lands.
    """

    application_id: str
    topology: Topology
    bootstrap: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    on: ClusterPort | None = None
    clock: Clock | None = None
    interceptor: Interceptor | None = None
    launching: ClusterPort | None = None
    make_caller: MakeCaller | None = None
    tables: TablesPort | None = None
    open_rows: OpenRows | None = None
    make_merges: MakeMerges | None = None

    @property
    def checked(self) -> ApplicationSettings:
        """The checked settings."""
        return ApplicationSettings.parse(
            self.application_id, {"processing.guarantee": "exactly_once", **self.settings}
        )

    @property
    def cluster(self) -> ClusterPort:
        """The cluster, as the application sees it."""
        inner = self._inner
        return inner if self.interceptor is None else FaultyCluster(inner, self.interceptor)

    @property
    def _inner(self) -> ClusterPort:
        ours = {"bootstrap.servers": self.bootstrap, **self.client}
        return self.on or KafkaCluster(ours, settings=self.checked)

    def coordinator(self) -> Coordinator:
        """Make a coordinator, as capture, a driver and finish do."""
        return Coordinator(
            self.cluster, self.checked, clock=self.clock, tables=self.tables, make_merges=self.make_merges
        )

    def begin(
        self,
        run_id: str,
        order: tuple[int, int] = (0, 1),
        interval_ms: tuple[int, int] | None = None,
        *,
        coordinator: Coordinator | None = None,
    ) -> Slice:
        """Begin a run as a driver does.

        :param coordinator: keeps the lease; without one the lease is let go, as a crashed driver's would have
            expired.
        """
        ours = coordinator or self.coordinator()
        try:
            begun = ours.begin(
                run_id,
                self.topology.plan(self.application_id),
                order=order,
                owner=f"driver of {run_id}",
                hold_lease=True,
                interval_ms=interval_ms,
                groups=partial(self.topology.partition_groups, self.application_id),
            )
            if coordinator is None:
                ours.lease.release()
        finally:
            if coordinator is None:
                ours.close()
        assert begun.slice is not None, f"run {run_id} is finished: {begun.finished}"
        return begun.slice

    def task(self, slice_: Slice, subtopology: int, group: int) -> TaskReport:
        """Run one task of a slice, as its driver would launch it."""
        driver, clock = self.launching or self._inner, self.clock or SystemClock()
        with lease_held(driver, slice_, clock):
            return self.launched(slice_, share_of(driver, slice_, subtopology, group, clock))

    def launched(self, slice_: Slice, share: TaskShare) -> TaskReport:
        """Run one task of a slice that a driver has launched, which holds the lease."""
        setup = TaskSetup(
            topology=self.topology,
            assignment=TaskAssignment(
                task_id=TaskId(subtopology=share.subtopology, group=share.group),
                run_id=slice_.run_id,
                generation=slice_.generation,
            ),
            cluster=self.cluster,
            settings=self.checked,
            clock=self.clock or SystemClock(),
            make_caller=self.make_caller,
            open_rows=self.open_rows,
        )
        return TaskRunner(setup, SliceWork(without_partitions(slice_), share)).run()

    def tasks(self, slice_: Slice, subtopologies: Iterable[int] | None = None) -> list[TaskReport]:
        """Run every task of a slice in topological order, or those of some subtopologies."""
        return [
            self.task(slice_, task_id.subtopology, task_id.group)
            for task_id in tasks_of(slice_)
            if subtopologies is None or task_id.subtopology in subtopologies
        ]

    def seal(self, slice_: Slice, order: tuple[int, int] = (0, 9)) -> None:
        """Seal the list of a slice's files, as a driver does after its last task."""
        landing = slice_.plan.topology.landing
        assert landing is not None
        with closing(self.coordinator()) as driver:
            taken = self.begin(slice_.run_id, order, coordinator=driver)
            assert not driver.unfinished(taken, landing.id)

    def finish(self, run_id: str) -> RunSummary:
        """Finish a run."""
        coordinator = self.coordinator()
        try:
            return coordinator.finish(run_id)
        finally:
            coordinator.close()

    def run(
        self, run_id: str, order: tuple[int, int] = (0, 1), interval_ms: tuple[int, int] | None = None
    ) -> RunSummary:
        """Begin, process, finish."""
        slice_ = self.begin(run_id, order, interval_ms)
        self.tasks(slice_)
        if self.make_merges is not None and slice_.plan.targets:
            self.seal(slice_)
        return self.finish(run_id)


def tasks_of(slice_: Slice) -> list[TaskId]:
    """Return every task, in topological order; none if there is nothing to read."""
    if slice_.plan.empty:
        return []
    return [
        TaskId(subtopology=sub.id, group=group)
        for sub in slice_.plan.topology.subtopologies
        if not sub.lands
        for group in range(slice_.plan.tasks[str(sub.id)])
    ]
