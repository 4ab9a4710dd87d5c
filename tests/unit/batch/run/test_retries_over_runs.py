"""Retry topics as the engine has them, over several runs on the in-memory Kafka, each by the real driver."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from airflow_kstreams.streams import CallContext, KStreamBuilder, RetryPolicy, Topology, serdes
from airflow_kstreams.streams.errors import OrphanedRecordsError
from tests.support.kafka.parking_scene import ParkingScene


class Service:
    """Fails for the values that are in ``down``."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.keys: dict[str, set[str]] = {}

    async def ask(self, value: str, *, context: CallContext) -> str:
        self.calls[value] += 1
        self.keys.setdefault(value, set()).add(context.idempotency_key)
        if value in self.down:
            raise ConnectionError("away")
        return f"{value}!"

    def topology(self, **policy: Any) -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        retry = RetryPolicy(**{"attempts": 10, "backoff_ms": 1_000, "jitter": 0, **policy})
        called = builder.stream("in").map_values_async(self.ask, order="key", retry=retry, name="enrich")
        called.send_to("out")
        return builder.build()


@pytest.fixture
def scene() -> ParkingScene:
    return ParkingScene(settings={"retry.run.budget.ms": 500})


def test_parked_records_are_processed_in_the_order_of_their_keys_by_a_later_run(scene: ParkingScene) -> None:
    service = Service()
    service.down = {"p1"}
    scene.send("a", "b")
    scene.send("p1", "p2", key="p", partition=1)
    scene.send("q", key="q", partition=1)

    first = scene.run("r1", service.topology())
    assert (first.state, first.parked) == ("completed_with_parked(2)", {"enrich": 2})
    assert scene.parked == {"enrich": {1: 2}}
    assert first.parked_due_ms is not None
    assert 0 < first.parked_due_ms - scene.kafka.clock.now_ms() <= 1_000
    assert sorted(scene.out) == ["a!", "b!", "q!"]

    scene.kafka.clock.sleep(60.0)
    assert scene.run("r2", service.topology()).state == "completed_with_parked(2)"
    assert scene.launched == ["0_1"]

    service.down = set()
    scene.kafka.clock.sleep(60.0)
    assert scene.run("r3", service.topology()).state == "completed"
    assert scene.launched == ["0_1"]
    assert [value for value in scene.out if value[0] == "p"] == ["p1!", "p2!"]
    assert sorted(scene.out) == ["a!", "b!", "p1!", "p2!", "q!"]
    assert len(service.keys["p1"]) == 1
    assert scene.run("r4", service.topology()).empty


def test_topology_without_the_node_is_refused_until_nothing_is_parked(scene: ParkingScene) -> None:
    service = Service()
    service.down = {"p1"}
    scene.send("p1", "p2")
    scene.run("r1", service.topology())
    with pytest.raises(OrphanedRecordsError, match="2 records are parked at node 'enrich'"):
        scene.run("r2", scene.topology(parks=False))
    service.down = set()
    scene.kafka.clock.sleep(60.0)
    scene.run("r2", service.topology())
    assert scene.run("r3", scene.topology(parks=False)).empty
