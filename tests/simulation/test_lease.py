"""The lease of a driver whose threads renew it side by side, or whose start takes longer than it lasts."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar
from unittest import mock

import pytest

from airflow_kstreams.batch.ledger.fold import LEASE_KEY
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams.errors import RunBusyError, RunSupersededError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.simulation.applications import APPLICATIONS
from tests.simulation.stages import APPLICATION_ID
from tests.simulation.steps import Steps
from tests.simulation.threads import Executor, running_in
from tests.simulation.world import World

pytestmark = pytest.mark.promise("leases-are-judged-by-renewals")

T = TypeVar("T")


@pytest.mark.parametrize("seed", range(20))
def test_lease_stays_with_its_new_owner_when_threads_of_the_old_one_renew_it_at_once(seed: int) -> None:
    world = World(Random(seed))
    kafka = InMemoryKafka(clock=world)
    for topic in ("a", "b", "out"):
        kafka.create_topic(topic)
    plan = APPLICATIONS["chain"].build(Steps()).plan(APPLICATION_ID)
    settings = ApplicationSettings.parse(APPLICATION_ID)

    class Interleaved:
        def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
            world.step()
            return effect()

    def main() -> None:
        old, new = (Coordinator(FaultyCluster(kafka, Interleaved()), settings) for _ in range(2))
        old.begin("run", plan, order=(0, 1), hold_lease=True)
        new.begin("run", plan, order=(0, 2), hold_lease=True)
        with Executor(3) as pool:
            renewals = [pool.submit(old.lease.renew) for _ in range(3)]
        for renewal in renewals:
            with pytest.raises(RunSupersededError):
                renewal.result()
        new.lease.renew()

    with running_in(world, seed):
        process = world.start("driver", "driver", main)
        world.run(process)
    assert process.ending is not None
    assert process.ending.error is None
    leases = [
        r.value()
        for r in kafka.records(ProtocolTopics(APPLICATION_ID).ledger)
        if r.key() == LEASE_KEY.encode()
    ]
    assert [json.loads(lease or b"")["order"] for lease in leases] == [[0, 1], [0, 2], [0, 2]]


@pytest.mark.parametrize("seed", range(5))
def test_driver_that_takes_over_keeps_its_lease_when_fencing_lasts_longer_than_it(seed: int) -> None:
    world = World(Random(seed))
    kafka = InMemoryKafka(clock=world)
    for topic in ("a", "b", "out"):
        kafka.create_topic(topic)
    kafka.append("a", b"v", b"k")
    plan = APPLICATIONS["chain"].build(Steps()).plan(APPLICATION_ID)
    settings = ApplicationSettings.parse(APPLICATION_ID, {"lease.ms": 10_000, "settle.ms": 0})

    def begin(run_id: str, order: tuple[int, int]) -> None:
        coordinator = Coordinator(kafka, settings, clock=world)
        coordinator.begin(run_id, plan, order=order, owner=f"driver of {run_id} {order}", hold_lease=True)

    def main() -> None:
        begin("run", (0, 1))
        taking = world.start("takes over", "driver", lambda: begin("run", (0, 2)))
        world.sleep(1.0)
        while world.seconds < 40.0:
            with pytest.raises(RunBusyError) as refused:
                begin("next", (0, 1))
            assert refused.value.owner == "driver of run (0, 2)"
        assert taking.wait().error is None
        assert world.seconds >= 45.0

    slow = mock.patch(
        "airflow_kstreams.batch.run.coordinator_session.fence", lambda *_, **__: world.sleep(45.0)
    )
    with running_in(world, seed), slow:
        process = world.start("scheduler", "scheduler", main)
        world.run(process)
    assert process.ending is not None
    assert process.ending.error is None
