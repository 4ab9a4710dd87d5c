"""One case of ``dev/bench scale`` in a process of its own: prints its cost as JSON."""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import RunFinished
from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.logs.fence import fence, written_topics
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.spark.driver.driver import Driver
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.ports import Clock, ClusterPort, TopicPartition, TopicSpec
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.testing import InMemoryKafka
from dev.benchmarks.scale import BROKER, Case, Cost
from dev.servers.embedded import Broker, free_port
from tests.support.kafka.in_process import Application
from tests.support.kafka.ledger_history import APP, LedgerHistory

#: No lease is renewed while a case is measured: how often is a matter of time, not of size.
_SETTINGS = {"lease.ms": 3_600_000, "processing.guarantee": "exactly_once"}

_MOST_REPEATS = 7


class Written:
    """Counts what is written to the protocol's topics."""

    def __init__(self) -> None:
        self.records = self.size = 0

    def call(self, name: str, client: object, effect: Any, arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        if name == "writer.produce" and arguments[0] in ProtocolTopics(APP).protocol:
            _, value, key, _, _, headers = arguments
            self.records += 1
            self.size += len(value or b"") + len(key or b"")
            self.size += sum(len(header) + len(content or b"") for header, content in headers or ())
        return effect()


class Executors:
    """Runs tasks in this process, one after the other, and takes their time."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self.seconds = 0.0

    def start(self) -> None:
        """Make ready."""

    def slots(self) -> int:
        """Return how many tasks run at once."""
        return 1

    def launch(self, slice_: Slice, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        """Run tasks to their stop offsets."""
        started = time.perf_counter()
        reports = [self._app.launched(slice_, share) for share in tasks]
        self.seconds += time.perf_counter() - started
        return reports

    def launch_continuous(self, run: ContinuousRun, tasks: Sequence[TaskId]) -> list[TaskReport]:
        """Run tasks without end, which no case does."""
        raise AssertionError("a case is a batch")

    def cancel(self) -> None:
        """Cancel what runs: nothing does."""

    def close(self) -> None:
        """End it all."""


def main() -> None:
    """Measure the case of the command line."""
    case = msgspec.json.decode(sys.argv[1], type=Case)
    with _cluster(case) as (cluster, clock):
        print(msgspec.json.encode(cost(case, cluster, clock)).decode())


@contextmanager
def _cluster(case: Case) -> Iterator[tuple[ClusterPort, Clock]]:
    if case.cluster != BROKER:
        kafka = InMemoryKafka()
        yield kafka, kafka.clock
        return
    with (
        tempfile.TemporaryDirectory(prefix="kstreams-scale-") as folder,
        Broker(port=free_port(), folder=Path(folder), heap="1g") as broker,
    ):
        settings = Application(application_id=APP, topology=_topology(1), settings=_SETTINGS).checked
        yield KafkaCluster({"bootstrap.servers": broker.bootstrap}, settings=settings), SystemClock()


def _topology(subtopologies: int) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    stream = builder.stream("in")
    for number in range(1, subtopologies):
        stream = stream.through(f"mid{number}")
    stream.send_to("out")
    return builder.build()


def cost(case: Case, cluster: ClusterPort, clock: Clock) -> Cost:
    """Measure one case on a cluster that has nothing yet."""
    partitions = max(1, case.tasks // case.subtopologies)
    _create_topics(cluster, case.subtopologies, partitions)
    topology = _topology(case.subtopologies)
    app = Application(application_id=APP, topology=topology, settings=_SETTINGS, on=cluster, clock=clock)
    run_ids = [f"measured {number}" for number in range(repeats(case))]
    sensed = {_past(case, app, cluster): True, "never": False}
    memory = _PeakGrowth()
    runs = []
    for run_id in run_ids:
        _publish(cluster, partitions)
        runs.append(_run(app, run_id, partitions=partitions, sensed={**sensed, run_id: True}))
    return Cost(
        **{name: median(run[name] for run in runs) for name in runs[0]},
        memory_mb=memory.grown_mb(),
        fence=_fencing(app, cluster, partitions, case.subtopologies),
    )


def repeats(case: Case) -> int:
    """Return how many runs a case takes the medians of: few, where each of them is long and so less noisy."""
    return min(_MOST_REPEATS, max(1, _MOST_REPEATS * 100 // case.tasks))


def _run(app: Application, run_id: str, *, partitions: int, sensed: Mapping[str, bool]) -> dict[str, float]:
    """Run once, and return the fields of a cost that each run has."""
    app.interceptor = written = Written()
    topology, clock = app.topology, app.clock or SystemClock()
    # What was made before has nothing to do with this run: collecting it must not be counted as its.
    gc.collect()
    started = time.perf_counter()
    coordinator = app.coordinator()
    coordinator.begin(run_id, topology.plan(APP), hold_lease=False)
    coordinator.close()
    capture = time.perf_counter() - started
    executors = Executors(app)
    started = time.perf_counter()
    summary = Driver(
        RunSpec(application_id=APP, run_id=run_id, order=(0, 1), finish=True),
        topology,
        settings=app.checked,
        cluster=app.cluster,
        executors=executors,
        clock=clock,
    ).run()
    drive = time.perf_counter() - started - executors.seconds
    if summary is None or summary.records_out != partitions:
        raise SystemExit(f"the run is wrong: {summary and summary.records_out} records out of {partitions}")
    started = time.perf_counter()
    with ClusterView(app.cluster, clock=clock) as view:
        for each, there in sensed.items():
            found = RunFinished(application_id=APP, run_id=each).evaluate(view)
            if (found is not None) != there:
                raise SystemExit(f"a sensor is wrong about {each!r}")
    return {
        "capture": capture,
        "drive": drive,
        "sense": time.perf_counter() - started,
        "tasks": executors.seconds,
        "written": written.records,
        "written_kb": written.size / 1024,
    }


class _PeakGrowth:
    """By how much this process grows at most, from the moment this is made: the kernel's own peak, since what
    samples (``memory.py``) misses runs of some milliseconds.
    """

    def __init__(self) -> None:
        gc.collect()
        # Lets the kernel forget the peak so far, see proc(5): it would hide what comes.
        Path("/proc/self/clear_refs").write_text("5")
        self._before_kb = self._peak_kb()

    def grown_mb(self) -> float:
        """Return the growth in MB."""
        return (self._peak_kb() - self._before_kb) / 1024

    @staticmethod
    def _peak_kb() -> int:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def _past(case: Case, app: Application, cluster: ClusterPort) -> str:
    """Let so many runs finish, and return the id of the first."""
    if isinstance(cluster, InMemoryKafka):
        history = LedgerHistory(kafka=cluster, offsets=0, topic_id="")
        history.finish_many(case.past)
        history.session.close()
        return history.finished[0]
    for number in range(case.past):
        app.run(f"run-{number}")
    return "run-0"


def _create_topics(cluster: ClusterPort, subtopologies: int, partitions: int) -> None:
    admin = cluster.admin()
    between = [f"mid{number}" for number in range(1, subtopologies)]
    specs = [TopicSpec(name=topic, partitions=partitions, configs={}) for topic in ("in", *between, "out")]
    admin.create_topics(specs)
    admin.close()


def _publish(cluster: ClusterPort, partitions: int) -> None:
    """Write a record to each partition, whose key stays in the partition of that number on its way."""
    writer = cluster.writer(transactional_id=None)
    left, number = set(range(partitions)), 0
    while left:
        key = b"%d" % number
        partition = partition_of_key(key, partitions, partitions)
        if partition in left:
            left.discard(partition)
            writer.produce("in", b"v", key, partition, None, None)
        number += 1
    writer.flush()
    writer.close()


def _fencing(app: Application, cluster: ClusterPort, partitions: int, subtopologies: int) -> float:
    ids = [f"{APP}-{sub}_{group}" for sub in range(subtopologies) for group in range(partitions)]
    admin = cluster.admin()
    # The first request of a client connects it.
    admin.end_offsets([TopicPartition("in", 0)], isolation="read_committed")
    started = time.perf_counter()
    fence(cluster, ids, admin=admin, topics=written_topics(app.topology.plan(APP), settings=app.checked))
    seconds = time.perf_counter() - started
    admin.close()
    return seconds


if __name__ == "__main__":
    main()
