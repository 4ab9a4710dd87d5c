"""A run of many tasks on a Spark cluster: gates in the middle of its subtopologies, where it stands, what is
right, and where its time goes.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
from confluent_kafka import Consumer, TopicPartition

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.partitioning import partition_of_key
from dev.benchmarks import machine
from dev.benchmarks.memory import PeakMemory
from tests.support.spark.driver_process import DriverProcess
from tests.support.spark.gated_scene import Scene
from tests.support.spark.run_times import in_order, seconds_of_run
from tests.support.spark.spark_cluster import WORKERS, submit_arguments

APPLICATION = Path(__file__).parents[2] / "applications" / "many_stages.py"
#: Records with such numbers look whether there is a gate.
_GATES_EVERY = 100
#: As many Spark tasks has a job on few slots.
_SPARK_TASKS = 100
_CLIENT_SECONDS = 60.0
_RUN_SECONDS = 1_200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a run is.

    :param records: of each run.
    """

    subtopologies: int
    partitions: int
    records: int

    @property
    def tasks(self) -> int:
        """How many tasks a run has."""
        return self.subtopologies * self.partitions

    @property
    def keys(self) -> tuple[int, int]:
        """How many keys its inputs and its results have."""
        return self.records, self.records // 2 + 1


@dataclass(kw_only=True)
class Attempt:
    """One driver, from its start to its end.

    :param run_id: of its run.
    """

    run_id: str
    driver: DriverProcess
    started: float = field(default_factory=time.time)
    ended: float = 0.0
    memory: PeakMemory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = PeakMemory(self.driver.pid)
        self.memory.__enter__()

    def end(self, code: int) -> None:
        """Wait for the driver's end."""
        assert self.driver.wait(_RUN_SECONDS) == code, self.driver.output()[-6000:]
        self._over()

    def kill(self) -> None:
        """Kill the driver."""
        self.driver.kill()
        self._over()

    def launched(self) -> dict[int, int]:
        """Return how many tasks of which subtopologies the driver has launched, when it did so last."""
        found = re.findall(r"subtopology (\d+): launching (\d+) task", self.driver.output())
        return {int(subtopology): int(tasks) for subtopology, tasks in found}

    def seconds(self) -> dict[str, float]:
        """Return where its time has gone."""
        return seconds_of_run(self.driver.output(), started=self.started, ended=self.ended)

    def _over(self) -> None:
        self.ended = time.time()
        self.memory.__exit__(None, None, None)


@dataclass(kw_only=True)
class LargeScene:
    """The scene of one size."""

    size: Size
    scene: Scene

    def launch(self, master: str) -> dict[str, str]:
        """Return the environment of drivers on a cluster, besides what every scene gives them."""
        stages = {"KSTREAMS_TEST_STAGES": str(self.size.subtopologies)}
        submit = submit_arguments(master, self.scene.environment | stages)
        return {"MASTER": master, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": submit, **stages}

    def start(self, run_id: str) -> Attempt:
        """Start a driver for a run."""
        return Attempt(run_id=run_id, driver=self.scene.start(run_id))

    @property
    def between(self) -> list[str]:
        """The topics of the user's own between subtopologies."""
        return [f"{self.scene.source}-{number}" for number in range(self.size.subtopologies - 2)]

    @property
    def topics(self) -> list[str]:
        """All that subtopologies read, in their order."""
        return [self.scene.source, *self.between, f"{self.scene.application_id}-numbers-repartition"]

    def gates(self, subtopology: int) -> list[Path]:
        """Arm a gate for each slot in the middle of a subtopology's tasks, so that nothing goes on when all
        are reached; returns the files that say so.
        """
        spark_tasks = min(self.size.partitions, _SPARK_TASKS)
        by_spark_task = {
            self._partition(subtopology, number) % spark_tasks: number
            for number in range(0, self.size.records, _GATES_EVERY)
        }
        middle = sorted(by_spark_task, key=lambda spark_task: abs(spark_task - spark_tasks // 2))
        return [
            self.scene.arm(f"stage-{subtopology}", by_spark_task[spark_task])
            for spark_task in middle[:WORKERS]
        ]

    def interrupted(self, subtopology: int) -> int:
        """Fail unless a subtopology is in its middle; return how many of its tasks may have to run again."""
        told: dict[str, bytes | None] = {}
        for row in self.scene.consume_all(f"{self.scene.application_id}-metadata"):
            told[row.key.decode()] = row.value
        topic = self.topics[subtopology]
        stops = {n: int(told[f"{topic}_{n}"] or 0) for n in range(self.size.partitions)}
        committed = self.committed([topic])
        done = sum(committed[f"{topic}-{n}"] >= stop > 0 for n, stop in stops.items())
        left = sum(committed[f"{topic}-{n}"] < stop for n, stop in stops.items())
        assert done, f"no task of subtopology {subtopology} has done anything"
        assert left, f"the tasks of subtopology {subtopology} are done"
        return self.size.partitions - done

    def expected(self, rows: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, list[int]]:
        """The oracle: which numbers of what was published belong to which key of the result."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for _, value in rows:
            numbers[value["to"]].append(value["n"])
        return dict(numbers)

    def collected(self) -> dict[str, list[int]]:
        """Which numbers came, by key of the result, each as often as it came."""
        latest = {row.key: row.value for row in self.scene.consume_all(self.scene.target)}
        return {key.decode(): sorted(msgspec.json.decode(value)) for key, value in latest.items()}

    def committed(self, topics: Collection[str]) -> dict[str, int]:
        """Return the committed offsets of all partitions."""
        with self._consumer() as consumer:
            partitions = [TopicPartition(topic, n) for topic in topics for n in range(self.size.partitions)]
            found = consumer.committed(partitions, timeout=_CLIENT_SECONDS)
            return {f"{at.topic}-{at.partition}": at.offset for at in found}

    def ends(self, topics: Collection[str]) -> dict[str, int]:
        """Return where all partitions end."""
        with self._consumer() as consumer:
            return {
                f"{topic}-{n}": consumer.get_watermark_offsets(
                    TopicPartition(topic, n), timeout=_CLIENT_SECONDS
                )[1]
                for topic in topics
                for n in range(self.size.partitions)
            }

    def report(self, attempts: Sequence[Attempt], peaks: Mapping[str, float]) -> str:
        """Say where the time of some drivers went, and how much memory there was in use at most."""
        parts = [attempt.seconds() for attempt in attempts]
        names = in_order(name for part in parts for name in part)
        size = self.size
        lines = [
            f"\n{size.subtopologies} subtopologies x {size.partitions:,} partitions: {size.tasks:,} tasks, "
            f"{size.records:,} records; {machine.describe()}",
            _row("seconds", [attempt.run_id for attempt in attempts]),
            *(_row(name, [f"{part[name]:.1f}" if name in part else "" for part in parts]) for name in names),
            _row("in all", [f"{sum(part.values()):.1f}" for part in parts]),
        ]
        memory = {"driver": max(attempt.memory.megabytes for attempt in attempts), **peaks}
        lines += [*self._about_tasks(attempts), "at most, with what they have started:"]
        return "\n".join([*lines, *(f"{name}: {megabytes:,.0f} MB" for name, megabytes in memory.items())])

    def _about_tasks(self, attempts: Sequence[Attempt]) -> Iterator[str]:
        """Say what the tasks of each subtopology took themselves; Spark and their ends took the rest."""
        cluster = KafkaCluster({"bootstrap.servers": self.scene.bootstrap})
        ledger = read_ledger(cluster, self.scene.application_id)
        for attempt in attempts:
            run = ledger.find(attempt.run_id)
            if run is None or run.generation > 1 or run.empty:
                continue
            tasks, parts = ledger.detailed(run).tasks, attempt.seconds()
            for number in range(self.size.subtopologies):
                own = sum(task.seconds for task in tasks if task.task_id.startswith(f"{number}_"))
                yield (
                    f"{attempt.run_id}, subtopology {number}: {parts[f'subtopology {number}']:.1f} s, "
                    f"{own / WORKERS:.1f} s of them {self.size.partitions:,} tasks' own on {WORKERS} slots; "
                    f"{min(self.size.partitions, _SPARK_TASKS)} Spark tasks"
                )

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.scene.bootstrap,
                "group.id": self.scene.application_id,
                "isolation.level": "read_uncommitted",  # what is open is not waited for
                "enable.auto.commit": False,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def _partition(self, subtopology: int, number: int) -> int:
        """Return in which partition a subtopology finds a record."""
        key = f"{subtopology - 1}-{number}"
        if subtopology == 0:
            key = f"key-{number % self.size.keys[0]}"
        elif subtopology == self.size.subtopologies - 1:
            key = f"to-{number % self.size.keys[1]}"
        return partition_of_key(key.encode(), self.size.partitions, self.size.partitions)


@contextmanager
def peak_memory(processes: dict[str, int]) -> Iterator[dict[str, float]]:
    """Yield a dictionary that holds the peaks of processes and their descendants, in MB, after the block.

    :param processes: id by name.
    """
    peaks: dict[str, float] = {}
    with ExitStack() as stack:
        watches = {
            name: stack.enter_context(PeakMemory(pid))
            for name, pid in processes.items()
            if psutil.pid_exists(pid)
        }
        yield peaks
    peaks |= {name: watch.megabytes for name, watch in watches.items()}


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:26}" + "".join(f"{cell:>9}" for cell in cells)
