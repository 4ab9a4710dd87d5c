"""Topics and processors grow while real flights flow, day by day, and everything that is at work is killed at
moments that a seed draws: runs with their drivers and workers, and the command that copies state. What comes
out is what comes out of an application that never grew.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import LinearHashPartitioner, partition_of_key
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from dev.flight_demo.data import Stretch, records
from tests.applications.planes import planes
from tests.support.kafka.growing_scene import OUTPUTS, told_by_key
from tests.support.kafka.in_process import Application
from tests.support.spark.driver_process import ROOT, DriverProcess, driver

pytestmark = pytest.mark.prove

APPLICATION = ROOT / "tests" / "applications" / "planes.py"
INPUTS = ("newark", "others")
#: Seconds until a kill, at most: a run and a catch-up take about that long here.
_LIFE_SECONDS = 12.0
#: Time of the Kafka in memory: after the flights, which topics would refuse as dated ahead.
_NOW_MS = 1_700_000_000_000


@dataclass(kw_only=True)
class Planes:
    """The application and its flights, on topics that grow and on topics that do not.

    :param first: how many partitions the inputs have at first.
    :param kind: how producers place keys: ``linear``, or ``modulo`` as Kafka's default partitioner does.
    :ivar killed: how many processes were ended in the middle of their work, by what they were.
    """

    bootstrap: str
    application_id: str
    topics: dict[str, str]
    first: int
    kind: str
    folder: Path
    draw: random.Random
    still: InMemoryKafka = field(default_factory=lambda: InMemoryKafka(clock=ManualClock(now_ms=_NOW_MS)))
    drivers: list[DriverProcess] = field(default_factory=list)
    sent: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    killed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    numbers: Iterator[int] = field(default_factory=count)
    days: Iterator[int] = field(default_factory=count)
    runs: int = 0

    def fly(self) -> None:
        """Publish a day's flights, by producers that know the partitions of now."""
        day = next(self.days)
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "acks": "all"}
        )
        rule = LinearHashPartitioner(
            {self.topics[name]: self.first for name in INPUTS}, producer, refresh_seconds=0
        )
        for record in records(Stretch(first_day=day, end_day=day + 1)):
            flight = json.loads(record.value) if record.topic == "flights" else {}
            if not flight.get("tailnum"):
                continue
            name, key = INPUTS[flight["origin"] != "EWR"], flight["tailnum"].encode()
            number = next(self.numbers)
            if name == "newark":
                self.sent[flight["tailnum"]].append(number)
            value, topic = b"%d" % number, self.topics[name]
            where = rule.partition(topic, key) if self.kind == "linear" else -1
            producer.produce(topic, value, key, partition=where, timestamp=record.timestamp_ms)
            self.still.append(
                name,
                value,
                key,
                partition=partition_of_key(key, self.first, self.first),
                timestamp_ms=record.timestamp_ms,
            )
        assert producer.flush(60) == 0

    def run(self, *, kills: int = 0) -> None:
        """Make a run, whose driver or one of whose workers is killed so often before it may end."""
        self.runs += 1
        for _ in range(kills):
            started = self._driver()
            if _ends(started.wait, self.draw.uniform(1.0, _LIFE_SECONDS)):
                return
            workers = [one for one in _family(started.pid) if "pyspark.daemon" in _command(one)]
            if workers and self.draw.random() < 0.4:
                _kill(self.draw.choice(workers))
                self.killed["worker"] += 1
            else:
                started.kill()
                self.killed["driver"] += 1
        last = self._driver()
        assert last.wait(180) == 0, last.output()[-6000:]

    def expand(self, what: str, *arguments: str, kills: int = 0) -> None:
        """Run ``airflow-kstreams expand``, which is killed so often before it may end."""
        command = [sys.executable, "-m", "airflow_kstreams.cli", "expand", what, *arguments]
        command += ["--application-id", self.application_id, "--bootstrap-server", self.bootstrap]
        for rate in [self.draw.uniform(50, 400) for _ in range(kills)]:
            slow = [*command, "--rate", f"{rate:.0f}"]
            with subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as copying:
                if not _ends(copying.wait, self.draw.uniform(2.0, _LIFE_SECONDS)):
                    copying.kill()
                    self.killed["catch-up"] += 1
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr[-4000:]

    @property
    def processors(self) -> int:
        return len(self._status.grouped[0].by_group)

    def drain(self) -> None:
        """Run until all is read."""
        for _ in range(8):
            if not sum(self._status.lag.values()):
                return
            self.run()
        pytest.fail(f"records are left: {self._status.lag}")

    def check(self, consume_all: Callable[..., list[Any]]) -> None:
        """Compare all that came out with what comes out where nothing grew."""
        Application(on=self.still, application_id="still", topology=planes(*INPUTS, *OUTPUTS)).run("once")
        for name in OUTPUTS:
            grown, still = told_by_key(name, self.still, self.topics[name], consume_all)
            assert grown == still, name
            assert grown, name
            if name == "listed":
                assert {key: json.loads(told[-1]) for key, told in grown.items()} == self.sent

    @property
    def _status(self) -> Any:
        return read_status(KafkaCluster({"bootstrap.servers": self.bootstrap}), self.application_id)

    def _driver(self) -> DriverProcess:
        made = driver(
            APPLICATION,
            self.folder,
            bootstrap=self.bootstrap,
            application_id=self.application_id,
            run_id=f"run-{self.runs}",
            processing_guarantee="exactly_once",
            lease_ms="4000",
            settle_ms="200",
        )
        made.environment = {f"KSTREAMS_TEST_{name.upper()}": topic for name, topic in self.topics.items()}
        self.drivers.append(made)
        return made.start()


@pytest.fixture
def make_planes(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    tmp_path: Path,
) -> Iterator[Callable[..., Planes]]:
    made: list[Planes] = []

    def make(*, first: int, kind: str, seed: int) -> Planes:
        topics = {name: create_topic(topic_name(name), first) for name in INPUTS}
        topics |= {name: create_topic(topic_name(name), 1) for name in OUTPUTS}
        scene = Planes(
            bootstrap=kafka,
            application_id=application_id,
            topics=topics,
            first=first,
            kind=kind,
            folder=tmp_path,
            draw=random.Random(seed),
        )
        for name in INPUTS:
            scene.still.create_topic(name, partitions=first)
        for name in OUTPUTS:
            scene.still.create_topic(name)
        made.append(scene)
        return scene

    yield make
    for scene in made:
        for process in scene.drivers:
            process.stop()


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize(
    ("first", "kind", "steps", "seed"),
    [
        (10, "linear", [(15, 15), (18, None)], 1),
        (4, "linear", [(6, 6), (8, 8)], 2),
        (4, "modulo", [(8, 7), (24, 24)], 3),
    ],
)
def test_nothing_tells_that_an_application_grew_when_whatever_is_at_work_is_killed(
    make_planes: Callable[..., Planes],
    consume_all: Callable[..., list[Any]],
    first: int,
    kind: str,
    steps: list[tuple[int, int | None]],
    seed: int,
) -> None:
    scene = make_planes(first=first, kind=kind, seed=seed)
    scene.fly()
    scene.run()
    for partitions, processors in steps:
        scene.fly()
        for topic in INPUTS:
            scene.expand("partitions", scene.topics[topic], "--to", str(partitions))
        scene.fly()
        scene.run(kills=1)
        scene.drain()
        if processors is None:
            continue
        scene.expand("processors", "--to", str(processors), "--no-wait", kills=2)
        scene.fly()
        scene.run(kills=2)
        scene.fly()
        scene.run(kills=1)
        assert scene.processors == processors
    scene.fly()
    scene.run(kills=1)
    scene.drain()
    scene.check(consume_all)
    assert scene.killed["catch-up"] and scene.killed["driver"] + scene.killed["worker"] >= 2, scene.killed


def _ends(wait: Callable[[float], int], seconds: float) -> bool:
    """Whether a process ends by itself before its time is up."""
    try:
        wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _kill(process: psutil.Process) -> None:
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
