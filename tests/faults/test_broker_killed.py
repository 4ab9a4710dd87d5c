"""SIGKILL of the broker in the middle of a run, and its restart: the run goes on, or its retry does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from dev.servers.embedded import Broker, free_port
from tests.support.kafka.kafka_tools import hanging_transactions
from tests.support.spark.driver_process import DriverProcess
from tests.support.spark.gated_scene import Scene

pytestmark = pytest.mark.promise("exactly-once")

RECORDS = 4_000
RETRIES = 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that this module may kill."""
    with Broker(port=free_port(), folder=tmp_path_factory.mktemp("mortal-broker")) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="module")
def kafka_admin(kafka: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka, "log_level": 2})


def retried(scene: Scene) -> DriverProcess:
    """Return the run's driver; when it has failed in a way that a retry may mend, a new one."""
    driver = scene.drivers[-1]
    code = driver.exit_code
    if code is None or code == 0:
        return driver
    assert code == 1 and len(scene.drivers) < RETRIES, driver.output()[-6000:]
    return scene.start("run-1")


def test_nothing_is_lost_or_doubled_when_the_broker_is_killed_under_each_subtopology(
    broker: Broker, scene: Scene, wait_until: Callable[..., Any]
) -> None:
    scene.publish(0, RECORDS)
    gates = [scene.arm("first", 2_000), scene.arm("second", 3_000)]
    scene.start("run-1")
    frozen, in_slice = None, list(scene.sent)
    for gate in gates:
        wait_until(lambda gate=gate: retried(scene) and gate.exists(), f"gate {gate.stem}", seconds=120)
        if frozen is None:
            frozen = scene.stops()
            scene.publish(RECORDS, RECORDS + 500)
        broker.kill()
        assert broker.pid is None, "it is dead in the middle of the run"
        broker.start(die_with_parent=True)
        gate.with_suffix(".armed").unlink()
    wait_until(lambda: retried(scene).exit_code == 0, "the run's end", seconds=240)
    assert scene.stops() == frozen, "a run that has begun keeps its stop offsets"
    assert scene.results() == scene.sums(in_slice)
    assert hanging_transactions(scene.bootstrap) == []
