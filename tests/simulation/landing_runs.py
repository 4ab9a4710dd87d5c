"""Three runs of a topology that writes to two tables, played by one process after the other; something
happens at a chosen call of a port, of Kafka's or of a table's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.work import OpenRows, SliceWork, TaskAssignment, TaskSetup
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import KafkaClientError, RunBusyError
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.specs import IcebergTable
from airflow_kstreams.streams.tables.table_port import TablesPort
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from airflow_kstreams.testing.faults import FaultyTables, Interceptor
from airflow_kstreams.testing.in_memory_tables import InMemoryTables
from tests.simulation.crash_points import Died, one_after_the_other
from tests.support.tables.packed_rows import packed_merges, packing, unpacked
from tests.support.tables.sending import send_to_table

APPLICATION_ID = "landing"
RUNS = ("run-1", "run-2", "run-3")
TABLES = ("lake.raw", "lake.again")
_LAUNCHES = 3


@dataclass(frozen=True)
class Line:
    """A row."""

    text: str


@cache
def topology() -> Topology:
    """``in`` -> table; ``in`` -> a topic between -> another table."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(Line))
    lines = builder.stream("in")
    send_to_table(lines, IcebergTable(TABLES[0], row=Line))
    send_to_table(lines.through("mid"), IcebergTable(TABLES[1], row=Line))
    return builder.build()


class LandingRuns:
    """One play.

    :param process: makes the interceptor of a new process, given its name.
    :ivar sent: the texts that arrived.
    :ivar on_way: the run that is played.
    """

    def __init__(self, process: Callable[[str], Interceptor]) -> None:
        self._process = process
        self.settings = ApplicationSettings.parse(
            APPLICATION_ID,
            {
                "processing.guarantee": "exactly_once",
                "commit.every.records": 2,
                "commit.interval.ms": 1,
                "transaction.timeout.ms": 10_000,
                "lease.ms": 10_000,
                "settle.ms": 200,
            },
        )
        self.kafka = InMemoryKafka()
        for topic, partitions in {"in": 2, "mid": 1}.items():
            self.kafka.create_topic(topic, partitions=partitions)
        self.tables = InMemoryTables()
        self.sent: list[str] = []
        self.on_way = ""
        self._numbers = itertools.count(1)

    def topology(self) -> Topology:
        """Return the topology."""
        return topology()

    def open_rows(self, tables: TablesPort) -> OpenRows:
        """Return what opens the rows of a task."""
        return packing(tables)

    def run(self) -> None:
        """Play the runs, each process again if it died. The second one is finished by its driver."""
        with one_after_the_other():
            for run_id in RUNS:
                self.on_way = run_id
                self.arrive(0, 1, 1, 1) if run_id != RUNS[1] else self.arrive(1)
                for body in (self.capture, self.drive, self.finish):
                    self._until_done(partial(body, run_id))

    def arrive(self, *partitions: int) -> None:
        """Records arrive on these partitions; in the last run, which takes what is left, none comes late."""
        for partition in partitions:
            text = str(next(self._numbers))
            self.sent.append(text)
            self.kafka.append("in", f'{{"text":"{text}"}}'.encode(), b"k", partition=partition)

    def arrive_late(self) -> None:
        """Records arrive while a run is under way."""
        if self.on_way != RUNS[-1]:
            self.arrive(0, 1)

    def capture(self, run_id: str, try_number: int) -> None:
        """Begin a run, as the capture operator does."""
        coordinator = self.coordinator(f"capture {run_id}")
        coordinator.begin(run_id, self.topology().plan(APPLICATION_ID), hold_lease=False)
        coordinator.close()

    def drive(self, run_id: str, try_number: int) -> None:
        """Process a run, as a driver does."""
        coordinator = self.coordinator(f"driver {run_id}")
        plan = self.topology().plan(APPLICATION_ID)
        begun = coordinator.begin(run_id, plan, order=(0, try_number), hold_lease=True)
        if begun.slice is not None:
            for sub in begun.slice.plan.topology.subtopologies:
                for _ in range(_LAUNCHES):
                    if shares := coordinator.unfinished(begun.slice, sub.id):
                        coordinator.lease.renew()
                        self.launch(begun.slice, shares)
            if run_id == RUNS[1]:
                coordinator.finish(run_id)
        coordinator.close()

    def finish(self, run_id: str, try_number: int = 1) -> RunSummary:
        """Finish a run, as the finish operator does."""
        coordinator = self.coordinator(f"finish {run_id}")
        summary = coordinator.finish(run_id)
        coordinator.close()
        return summary

    def coordinator(self, name: str) -> Coordinator:
        """Return the coordinator of a new process."""
        process = self._process(name)
        tables = FaultyTables(self.tables, process)
        return Coordinator(
            FaultyCluster(self.kafka, process),
            self.settings,
            clock=self.kafka.clock,
            tables=tables,
            make_merges=packed_merges(tables),
        )

    def wrong(self, *, expired: bool = False, dropped: str = "") -> str:
        """Return what is wrong with what is in the tables; empty if nothing is.

        :param dropped: a run that may have begun anew after it was dropped.
        :param expired: whether snapshots may have been forgotten, the oldest first.
        """
        for name in TABLES:
            rows = Counter(row[0] for row in self.tables.rows(name, unpacked))
            if rows != Counter(self.sent):
                return f"{name} lost {Counter(self.sent) - rows}, doubled {rows - Counter(self.sent)}"
            snapshots = self.tables.state(name).line()
            said = [each.snapshot.summary.get("kstreams.run-id") for each in snapshots]
            runs = [run for run in said if run is not None][::-1]
            while runs.count(dropped) > 1:
                runs.remove(dropped)
            if runs != [*RUNS][-len(runs) if expired and runs else 0 :]:
                return f"{name} has snapshots of {runs}"
        return ""

    def files(self, name: str) -> list[str]:
        """Return the names of the files that are in a table, without what makes them different."""
        return sorted(path.rpartition("/")[2].partition("-")[0] for path in self.tables.state(name).files)

    def launch(self, slice_: Slice, shares: Sequence[TaskShare]) -> None:
        """Run tasks; one that dies is left as it is."""
        for share in shares:
            task_id = TaskId(subtopology=share.subtopology, group=share.group)
            process = self._process(f"task {task_id}, {slice_.run_id}")
            runner = TaskRunner(
                TaskSetup(
                    topology=self.topology(),
                    assignment=TaskAssignment(
                        task_id=task_id, run_id=slice_.run_id, generation=slice_.generation
                    ),
                    cluster=FaultyCluster(self.kafka, process),
                    settings=self.settings,
                    clock=self.kafka.clock,
                    open_rows=self.open_rows(FaultyTables(self.tables, process)),
                ),
                SliceWork(without_partitions(slice_), share),
            )
            # The driver hears of a task's death and asks Kafka what is left.
            try:
                runner.run()
            except Died:
                continue

    def _until_done(self, body: Callable[[int], object]) -> None:
        for try_number in (1, 2):
            try:
                body(try_number)
            except (Died, RunBusyError):
                continue
            except KafkaClientError as error:
                if not error.is_retriable:
                    raise
                continue
            return
        raise AssertionError("only one process dies, or loses a race")
