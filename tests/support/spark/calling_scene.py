"""A scene whose application calls a paying service, for tests that kill processes in the middle of calls."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.paying_service import PayingService, paying_service
from tests.support.spark.driver_process import DriverProcess
from tests.support.spark.gated_scene import Scene

APPLICATION = Path(__file__).parents[2] / "applications" / "called_sums.py"


@dataclass(kw_only=True)
class CallingScene:
    """See the module."""

    scene: Scene
    service: PayingService

    def using(self, **environment: str) -> CallingScene:
        """Return the scene with another environment of its drivers, by the end of the names."""
        launch = {f"KSTREAMS_TEST_{name.upper()}": value for name, value in environment.items()}
        return replace(self, scene=replace(self.scene, launch={**self.scene.launch, **launch}))

    def in_the_middle(self, driver: DriverProcess, wait_until: Callable[..., Any], *, calls: int) -> int:
        """Wait until so many calls are under way, and return the process that makes them."""

        def under_way() -> bool:
            driver.check_alive()
            return len(self.service.held) >= calls

        wait_until(under_way, f"{calls} calls under way", seconds=120)
        return self.service.held[-1]

    def check(self) -> None:
        """Every sum is right, and each record was charged once."""
        assert self.scene.results() == self.scene.sums(self.scene.sent)
        assert self.service.charges.keys() == self.keys()

    def keys(self, node: str = "charge") -> set[str]:
        """The idempotency keys of all that was published, at a node."""
        with closing(KafkaCluster({"bootstrap.servers": self.scene.bootstrap}).admin()) as admin:
            source = admin.describe_topics([self.scene.source])[self.scene.source]
            partitions = [TopicPartition(source.name, number) for number in range(source.partitions)]
            ends = admin.end_offsets(partitions, isolation="read_committed")
        app = self.scene.application_id
        return {
            f"{app}/{tp}@{offset}/{source.topic_id}/{node}/0"
            for tp, end in ends.items()
            for offset in range(end)
        }


def kill(process: int) -> None:
    """End a process as the out-of-memory killer does."""
    os.kill(process, signal.SIGKILL)


@pytest.fixture
def calling(scene: Scene) -> Iterator[CallingScene]:
    """The scene, with a service."""
    with paying_service() as service:
        launch = {"KSTREAMS_TEST_SERVICE": service.url, "KSTREAMS_TEST_CALLS": "loop"}
        made = replace(scene, application=APPLICATION, launch=launch)
        yield CallingScene(scene=made, service=service)
