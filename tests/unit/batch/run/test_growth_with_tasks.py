"""What a run writes and reads for the protocol, counted at two sizes: no clock, only ratios.

Three subtopologies in a row, as many tasks each as there are partitions, a record on each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.spark.driver.driver import Driver
from airflow_kstreams.streams import KStreamBuilder, Topology
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("cost-grows-with-tasks")

APP = "app"
METADATA, LEDGER = ProtocolTopics(APP).protocol
SMALL, LARGE = 8, 32
STAGES = 3
#: The larger run is so many times as large; what has a constant part grows by less.
RATIO = LARGE / SMALL


def topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream("in").through("mid1").through("mid2").send_to("out")
    return builder.build()


@dataclass
class Counts:
    """What one client of the cluster asked for and got.

    :ivar fetched: records read, by topic.
    :ivar calls: port calls, by name, but for the reads of user topics, which depend on the data.
    """

    fetched: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    asked_committed: int = 0

    def call(self, name: str, client: object, effect: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "reader.committed":
            self.asked_committed += len(arguments[0])
        result = effect()
        if name == "reader.poll":
            for tp, records in result.records.items():
                self.fetched[tp.topic] += len(records)
        elif name not in ("reader.pause", "reader.resume"):
            self.calls[name] += 1
        return result

    @property
    def protocol(self) -> int:
        """Records of the protocol's topics that were read."""
        return self.fetched[METADATA] + self.fetched[LEDGER]


class Executors:
    """Runs tasks here, each with counts of its own.

    :ivar shipped: bytes that a launch ships in all, and of what its tasks have in common.
    """

    def __init__(self, app: Application, kafka: InMemoryKafka) -> None:
        self.app, self.kafka = app, kafka
        self.tasks: list[Counts] = []
        self.shipped: list[tuple[int, int]] = []

    def start(self) -> None: ...
    def slots(self) -> int:
        return 1

    def launch(self, slice_: Slice, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        common = len(msgspec.json.encode(without_partitions(slice_)))
        self.shipped.append((common + len(msgspec.json.encode(tasks)), common))
        reports = []
        for share in tasks:
            counts = Counts()
            self.tasks.append(counts)
            self.app.on = FaultyCluster(self.kafka, counts)
            reports.append(self.app.launched(slice_, share))
        return reports

    def launch_continuous(self, run: ContinuousRun, tasks: Sequence[TaskId]) -> list[TaskReport]:
        raise NotImplementedError

    def cancel(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Played:
    """One run, after another one."""

    kafka: InMemoryKafka
    written: list[Any]
    driver: Counts
    executors: Executors


@cache
def played(partitions: int) -> Played:
    kafka = InMemoryKafka()
    for topic in ("in", "mid1", "mid2", "out"):
        kafka.create_topic(topic, partitions=partitions)
    keys: dict[int, bytes] = {}
    for number in range(100 * partitions):
        keys.setdefault(partition_of_key(b"%d" % number, partitions, partitions), b"%d" % number)
    # No lease is renewed in between: how often is a matter of time.
    settings = {"lease.ms": 3_600_000}
    app = Application(application_id=APP, topology=topology(), settings=settings, on=kafka, clock=kafka.clock)
    app.run("before")
    written: list[Any] = []
    for partition, key in sorted(keys.items()):
        kafka.append("in", b"v", key, partition=partition)
    kafka.observe(lambda commit: written.extend(commit.records))
    counts, executors = Counts(), Executors(app, kafka)
    spec = RunSpec(application_id=APP, run_id="run", order=(0, 1), finish=True)
    summary = Driver(
        spec,
        topology(),
        settings=app.checked,
        cluster=FaultyCluster(kafka, counts),
        executors=executors,
        clock=kafka.clock,
    ).run()
    assert summary is not None
    assert len(kafka.records("out")) == len(keys) == partitions
    assert len(executors.tasks) == STAGES * partitions
    return Played(kafka=kafka, written=written, driver=counts, executors=executors)


def of_metadata(run: Played) -> list[Any]:
    return [record for record in run.written if record.topic() == METADATA]


def size(records: list[Any]) -> int:
    return sum(
        len(record.key() or b"")
        + len(record.value() or b"")
        + sum(len(name) + len(content or b"") for name, content in record.headers() or ())
        for record in records
    )


def test_metadata_grows_with_partitions_and_tasks() -> None:
    small, large = of_metadata(played(SMALL)), of_metadata(played(LARGE))
    assert len(large) <= RATIO * len(small)
    assert size(large) <= RATIO * size(small)
    stops, notifications, intermediate_stops = LARGE, 2 * LARGE, 2 * LARGE
    # Markers, one of them with the next generation, and tombstones of what the empty run before left.
    assert len(large) <= 2 * stops + notifications + intermediate_stops + 5


def test_drivers_reads_of_the_protocol_grow_with_partitions_and_tasks() -> None:
    small, large = played(SMALL).driver, played(LARGE).driver
    assert large.fetched[METADATA] <= RATIO * small.fetched[METADATA]
    # Each record is read once, and those of the run before.
    assert large.fetched[METADATA] <= len(of_metadata(played(LARGE))) + 2 * LARGE
    assert large.asked_committed <= RATIO * small.asked_committed
    few, many = (counts.calls - Counter({"writer.produce": 1 << 30}) for counts in (small, large))
    assert many == few, "the last run had no tasks to fence, so calls do not grow at all"


def test_tasks_read_the_same_whatever_the_number_of_tasks() -> None:
    small, large = played(SMALL).executors.tasks, played(LARGE).executors.tasks
    assert {task.fetched[METADATA] for task in (*small, *large)} == {0}
    assert max(task.fetched[LEDGER] for task in large) <= 16
    for subtopology in range(STAGES):
        few, many = small[subtopology * SMALL], large[subtopology * LARGE]
        assert many.calls == few.calls
        assert many.asked_committed == few.asked_committed == 1


def test_what_a_driver_ships_grows_with_tasks_alone() -> None:
    small, large = played(SMALL).executors.shipped, played(LARGE).executors.shipped
    for (few, common), (many, same) in zip(small, large, strict=True):
        assert same - common < 20, "what all tasks have in common has no part for each"
        assert (many - same) <= RATIO * 1.3 * (few - common), "numbers get longer"
        assert (many - same) / LARGE < 60, "bytes for a task"


@pytest.mark.parametrize("partitions", [SMALL, LARGE])
def test_no_record_grows_with_pairs(partitions: int) -> None:
    kinds = Counter(dict(r.headers() or ()).get("kstreams.kind") for r in of_metadata(played(partitions)))
    assert kinds[b"done"] == kinds[b"intermediate stop"] == (STAGES - 1) * partitions
    assert kinds[b"notification"] == 0
