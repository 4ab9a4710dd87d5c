"""What copying state asks of Kafka is what its list of permissions allows, and all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.expand.processor_expansion import CatchUpOptions, ProcessorExpansion
from airflow_kstreams.batch.protocol.needed_permissions import expand_processors_permissions
from airflow_kstreams.streams.naming.permissions import Operation, Resource
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import FaultyCluster
from tests.unit.batch.expand.test_processor_expansion import grown

pytestmark = pytest.mark.promise("catch-ups-need-what-is-listed")

T = TypeVar("T")
Needed = tuple[Operation, Resource, str]

_OF_TOPICS = {
    "admin.describe_topics": Operation.DESCRIBE,
    "admin.start_offsets": Operation.DESCRIBE,
    "admin.end_offsets": Operation.DESCRIBE,
    "admin.topic_configs": Operation.DESCRIBE_CONFIGS,
    "admin.create_partitions": Operation.ALTER,
    "reader.committed": Operation.DESCRIBE,
    "reader.assign": Operation.READ,
    "writer.produce": Operation.WRITE,
    "writer.send_offsets": Operation.READ,
}


class Asking:
    """An interceptor that notes what a broker with an authorizer would ask."""

    def __init__(self) -> None:
        self.needed: set[Needed] = set()
        self._groups: dict[int, str] = {}

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if name == "cluster.writer":
            self._add(Operation.WRITE, Resource.TRANSACTIONAL_ID, arguments[0])
        elif name in _OF_TOPICS:
            for topic in _topics(arguments[0]):
                self._add(_OF_TOPICS[name], Resource.TOPIC, topic)
        if name == "reader.committed":
            self._add(Operation.DESCRIBE, Resource.GROUP, self._groups[id(client)])
        if name == "writer.send_offsets":
            self._add(Operation.READ, Resource.GROUP, "app-catchup")
        made = effect()
        if name == "cluster.reader":
            self._groups[id(made)] = arguments[0]
        return made

    def _add(self, operation: Operation, resource: Resource, name: str) -> None:
        self.needed.add((operation, resource, name))


def _topics(argument: object) -> list[str]:
    """Return the topics of an argument: one, several, or partitions, as keys or as text."""
    if isinstance(argument, str):
        return [argument]
    assert isinstance(argument, list | dict)
    named = [each if isinstance(each, TopicPartition) else str(each) for each in argument]
    return [
        each.topic if isinstance(each, TopicPartition) else each.removesuffix(f"-{_number(each)}")
        for each in named
    ]


def _number(name: str) -> str:
    last = name.rpartition("-")[2]
    return last if last.isdigit() else "none"


def test_what_a_catch_up_does_is_what_its_list_allows() -> None:
    scene, asking = grown(), Asking()
    cluster = FaultyCluster(scene.kafka, asking)
    with ProcessorExpansion(cluster, scene.app.checked, subtopology=None, count=4) as tool:
        tool.run(CatchUpOptions(follow=False))
    listed = expand_processors_permissions(scene.app.topology.plan("app"))
    for needed in asking.needed:
        assert any(each.covers(*needed) for each in listed), needed
    # What is listed is used: what a broker includes in it, Describe in Read, need not be.
    for each in listed:
        assert any(each.covers(*needed) for needed in asking.needed), each
