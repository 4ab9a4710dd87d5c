"""Reading goes on behind what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import to_offset
from airflow_kstreams.streams.errors import DataLossError, KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import FaultyCluster
from tests.support.kafka.reset_scene import APP, ResetScene

IN = TopicPartition("in", 0)


class _Unreadable:
    """A reader that cannot unpack what stands in the input."""

    def __init__(self, code: str, *, at: int = 0) -> None:
        self._code = code
        self._at = at
        self._assigned: Any = {}

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "reader.assign":
            self._assigned = arguments[0]
        if name == "reader.poll" and self._assigned.get(IN) == self._at:
            raise KafkaClientError(f"in-0@{self._at}: the batch cannot be unpacked", kafka_code=self._code)
        return effect()


@pytest.fixture
def scene() -> ResetScene:
    """Two records in each partition of the input, and a finished run."""
    scene = ResetScene()
    scene.send("a", "b", "c", "d")
    scene.run("r1")
    return scene


@pytest.mark.promise("unreadable-batches-are-named")
@pytest.mark.parametrize("code", ["_BAD_COMPRESSION", "LOOK_MEMORY"])
def test_acceptance_leads_past_records_that_it_cannot_read_itself(scene: ResetScene, code: str) -> None:
    cluster = FaultyCluster(scene.kafka, _Unreadable(code))
    request = ResetRequest(application_id=APP, accept=(IN,), scenario=to_offset(1), force=True)
    with ApplicationReset(cluster, request, clock=scene.kafka.clock) as command:
        command.run()
    assert scene.committed()["in-0"].offset == 1


@pytest.mark.promise("unreadable-batches-are-named")
def test_begin_looks_for_other_records_where_it_can_read_when_it_cannot_read_all(scene: ResetScene) -> None:
    other = TopicPartition("in", 1)
    scene.kafka.truncate(other, 1)
    for value in "ef":
        scene.kafka.append("in", value.encode(), b"k", partition=other.partition)
    cluster = FaultyCluster(scene.kafka, _Unreadable("_BAD_COMPRESSION", at=1))
    with pytest.raises(DataLossError, match="in-1: runs have read the record at offset 1") as caught:
        scene.application(cluster).begin("r2")
    assert "in-0" not in caught.value.cause
