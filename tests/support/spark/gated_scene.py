"""An application with gates, for tests that kill or race its drivers at known points of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.kafka.cluster import KafkaCluster
from tests.support.spark.driver_process import DriverProcess, driver
from tests.support.spark.spark_cluster import executor_of

APPLICATION = Path(__file__).parents[2] / "applications" / "gated_sums.py"
KEYS = (11, 7)


@dataclass(kw_only=True)
class Scene:
    """An application with its topics, gates and the oracle of its results.

    :param launch: environment of its drivers, besides what the application file reads.
    :param client: client settings of its drivers, besides the broker's address.
    :param application: the application file.
    :param keys: how many keys the inputs have, and how many the results.
    """

    bootstrap: str
    application_id: str
    source: str
    target: str
    folder: Path
    produce: Callable[..., None]
    consume_all: Callable[..., list[Any]]
    sent: list[tuple[str, dict[str, Any]]]
    drivers: list[DriverProcess]
    launch: dict[str, str] = field(default_factory=dict)
    client: Mapping[str, object] = field(default_factory=dict)
    application: Path = APPLICATION
    keys: tuple[int, int] = KEYS

    @property
    def environment(self) -> dict[str, str]:
        """What the application file reads."""
        return {
            "KSTREAMS_TEST_IN": self.source,
            "KSTREAMS_TEST_OUT": self.target,
            "KSTREAMS_TEST_GATES": str(self.folder),
        }

    def publish(self, first: int, last: int) -> None:
        """Publish records numbered [first, last)."""
        keys, to = self.keys
        rows = [(f"key-{n % keys}", {"n": n, "to": f"to-{n % to}"}) for n in range(first, last)]
        self.sent += rows
        self.produce(self.source, rows)

    def arm(self, gate: str, number: int) -> Path:
        """Make the task that meets this record wait; returns the file that says so."""
        (self.folder / f"{gate}-{number}.armed").touch()
        return self.folder / f"{gate}-{number}.reached"

    def open_gates(self) -> None:
        """Let everybody pass."""
        for armed in self.folder.glob("*.armed"):
            armed.unlink()

    def start(self, run_id: str, **settings: str) -> DriverProcess:
        """Start a driver for a run."""
        settings = {"processing_guarantee": "exactly_once", "commit_interval_ms": "200", **settings}
        made = driver(
            self.application,
            self.folder,
            bootstrap=self.bootstrap,
            application_id=self.application_id,
            run_id=run_id,
            client=self.client,
            **settings,
        )
        made.environment = {**self.environment, **self.launch}
        self.drivers.append(made)
        return made.start()

    def stops(self) -> dict[str, int]:
        """Return the frozen stop offsets by partition."""
        status = read_status(KafkaCluster({"bootstrap.servers": self.bootstrap}), self.application_id)
        assert status.slice is not None
        return {str(part.topic_partition): part.stop_offset for part in status.slice.inputs}

    def sums(self, rows: list[tuple[str, dict[str, Any]]]) -> dict[str, int]:
        """The oracle: sums by new key, computed from what was published."""
        totals: dict[str, int] = defaultdict(int)
        for _, value in rows:
            totals[value["to"]] += value["n"]
        return dict(totals)

    def results(self) -> dict[str, int]:
        """Last value per key of the output topic, read_committed."""
        latest = {row.key: row.value for row in self.consume_all(self.target)}
        return {key.decode(): msgspec.json.decode(value) for key, value in latest.items()}

    def delivered(self, topic: str) -> list[int]:
        """Numbers that arrived in the repartition topic, read_committed."""
        return sorted(msgspec.json.decode(row.value) for row in self.consume_all(topic))


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
    tmp_path: Path,
) -> Iterator[Scene]:
    """The scene; an indirect parameter is the number of partitions of both topics, two by default."""
    partitions = getattr(request, "param", 2)
    made = Scene(
        bootstrap=kafka,
        application_id=application_id,
        source=create_topic(topic_name("in"), partitions),
        target=create_topic(topic_name("out"), partitions),
        folder=tmp_path,
        produce=produce,
        consume_all=consume_all,
        sent=[],
        drivers=[],
    )
    try:
        yield made
    finally:
        made.open_gates()
        for process in made.drivers:
            process.stop()


def reached(marker: Path, process: DriverProcess) -> Callable[[], bool]:
    """Return a condition: the gate was reached; fails at once when the driver has ended."""

    def check() -> bool:
        if marker.exists() and marker.read_text():
            return True
        process.check_alive()
        return False

    return check


def kill_executor_at(
    marker: Path, driver: DriverProcess, wait_until: Callable[..., Any], *, seconds: float = 120
) -> tuple[psutil.Process, psutil.Process]:
    """Kill the executor whose task waits at the gate; returns it and the task's process.

    :param seconds: within which the gate is reached.
    """
    wait_until(reached(marker, driver), f"gate {marker.name}", seconds=seconds)
    task = psutil.Process(int(marker.read_text()))
    marker.unlink()
    executor = executor_of(task)
    executor.kill()
    return executor, task
