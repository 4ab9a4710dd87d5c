"""An authorizer in front of the in-memory Kafka: each port call needs the permissions that a broker asks for.

Rule: what a call needs is what Kafka's protocol asks of the requests that the real client makes for it; who
may not describe a topic or group does not see it in a listing. The contract of permissions holds both to it:
``tests/integration/security/test_contract.py`` asks a broker with an authorizer the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import (
    Operation,
    Permission,
    Resource,
    transactional_permission,
)
from airflow_kstreams.streams.ports import Allowed, ClusterPort, TopicConfigs, TopicPartition, TopicSpec
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka

USER = "User:carol"
_ADDRESS = "in-memory:9092"
#: What a call of the admin client needs on each topic that it names.
_ON_TOPICS = {
    "admin.describe_topics": Operation.DESCRIBE,
    "admin.start_offsets": Operation.DESCRIBE,
    "admin.end_offsets": Operation.DESCRIBE,
    "admin.end_epochs": Operation.DESCRIBE,
    "admin.offsets_for_times": Operation.DESCRIBE,
    "admin.create_topics": Operation.CREATE,
    "admin.create_partitions": Operation.ALTER,
    "admin.alter_topic": Operation.ALTER_CONFIGS,
    "admin.delete_topics": Operation.DELETE,
    "admin.delete_records": Operation.DELETE,
}
#: Calls at whose end a writer's records must have reached the broker.
_DELIVERING = ("writer.flush", "writer.send_offsets", "writer.commit")


class Authorizer:
    """An interceptor that refuses what is not permitted.

    :param given: the permissions of the user.
    :ivar decisive: the permissions that alone allowed something that was asked for.
    :ivar required: those of them without which a request would have been refused; a listing leaves out what
        its user may not see.
    """

    def __init__(self, given: Iterable[Permission]) -> None:
        self.given = tuple(given)
        self.decisive: set[Permission] = set()
        self.required: set[Permission] = set()
        self.exact: set[Permission] = set()
        #: Clients are kept, so that no other gets the id of one.
        self._readers: dict[int, tuple[object, str]] = {}
        self._assigned: dict[int, set[str]] = {}
        self._writers: dict[int, tuple[object, str | None]] = {}
        self._produced: dict[int, dict[str, None]] = {}

    def cluster(self, kafka: InMemoryKafka) -> ClusterPort:
        """Return the cluster as the user sees it."""
        return FaultyCluster(kafka, self)

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call if it is permitted, see ``Interceptor``."""
        if isinstance(effect, partial) and not name.startswith("cluster."):
            arguments = effect.args  # as they are, not as messages show them
        if name in _ON_TOPICS:
            for topic in _topics(arguments[0]):
                self._require(_ON_TOPICS[name], Resource.TOPIC, topic, name)
        elif name.startswith("admin."):
            return self._looked_up(name, client, effect, arguments)
        elif name.startswith("reader."):
            self._read(name, client, arguments)
        elif name.startswith("writer."):
            self._written(name, client, arguments)
        made = effect()
        if name == "cluster.reader":
            self._readers[id(made)] = made, arguments[0]
        elif name == "cluster.writer":
            self._writers[id(made)] = made, arguments[0]
        return made

    def _looked_up(
        self, name: str, client: Any, effect: Callable[[], Any], arguments: tuple[Any, ...]
    ) -> Any:
        """Make a call that shows what the user may see."""
        if name == "admin.allowed":
            return self._allowed(client.topic_names(), *arguments)
        if name == "admin.topic_names":
            return {topic for topic in effect() if self._shown(Resource.TOPIC, topic)}
        if name == "admin.group_ids":
            return {group for group in effect() if self._shown(Resource.GROUP, group)}
        if name == "admin.group_members":
            return effect() if self._shown(Resource.GROUP, arguments[0]) else ()
        if name == "admin.broker_configs":
            self._require(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, "", name)
        if name != "admin.topic_configs":
            return effect()
        found, refused = effect()
        needs = Operation.DESCRIBE_CONFIGS
        seen = {topic: self._may(needs, Resource.TOPIC, topic) for topic in _topics(arguments[0])}
        return TopicConfigs(
            {topic: each for topic, each in found.items() if seen[topic]},
            {topic: each for topic, each in refused.items() if seen[topic]}
            | {
                topic: self._refusal(needs, Resource.TOPIC, topic, name)
                for topic, may in seen.items()
                if not may
            },
        )

    def _allowed(self, exist: set[str], topics: Collection[str], groups: Collection[str]) -> Allowed:
        """What brokers tell: nothing of topics that do not exist, unless the user may not even ask."""

        def on(resource: Resource, name: str) -> frozenset[Operation]:
            return frozenset(each for each in Operation if self._allowing(each, resource, name))

        cluster = on(Resource.CLUSTER, "")
        asked = {topic: on(Resource.TOPIC, topic) for topic in topics}
        return Allowed(
            topics={topic: found for topic, found in asked.items() if topic in exist or not found},
            groups={group: on(Resource.GROUP, group) for group in groups},
            cluster=cluster if Operation.DESCRIBE in cluster else None,
        )

    def _read(self, name: str, client: object, arguments: tuple[Any, ...]) -> None:
        group = self._readers[id(client)][1]
        if name == "reader.assign":
            self._assigned[id(client)] = set(_topics(arguments[0]))
        elif name == "reader.poll":
            for topic in sorted(self._assigned.get(id(client), ())):
                self._require(Operation.READ, Resource.TOPIC, topic, name)
        elif name in ("reader.committed", "reader.commit") and arguments[0]:
            asks = Operation.DESCRIBE if name == "reader.committed" else Operation.READ
            # The client cannot tell which of both a group lacks, so it names the one for both.
            self._require(asks, Resource.GROUP, group, name, names=Operation.READ)
            for topic in _topics(arguments[0]):
                self._require(asks, Resource.TOPIC, topic, name, names=Operation.READ)

    def _written(self, name: str, client: object, arguments: tuple[Any, ...]) -> None:
        owner = self._writers[id(client)][1]
        if name == "writer.init_transactions" and owner is not None:
            self._require(Operation.WRITE, Resource.TRANSACTIONAL_ID, owner, name)
        elif name == "writer.produce":
            self._produced.setdefault(id(client), {})[arguments[0]] = None
        elif name == "writer.abort":
            self._produced.pop(id(client), None)
        elif name in _DELIVERING:
            for topic in self._produced.pop(id(client), ()):
                self._require(Operation.WRITE, Resource.TOPIC, topic, name)
            if name == "writer.send_offsets":
                offsets, reader = arguments
                if offsets:
                    self._require(Operation.READ, Resource.GROUP, self._readers[id(reader)][1], name)
                for topic in _topics(offsets):
                    self._require(Operation.READ, Resource.TOPIC, topic, name)

    def _require(
        self,
        operation: Operation,
        resource: Resource,
        name: str,
        call: str,
        *,
        names: Operation | None = None,
    ) -> None:
        if not self._may(operation, resource, name):
            raise self._refusal(names or operation, resource, name, call)

    def _may(self, operation: Operation, resource: Resource, name: str) -> bool:
        allowing = self._allowing(operation, resource, name)
        if len(allowing) == 1:
            self.decisive |= allowing
            self.required |= allowing
            self.exact |= {each for each in allowing if each.operation is operation}
        return bool(allowing)

    def _shown(self, resource: Resource, name: str) -> bool:
        allowing = self._allowing(Operation.DESCRIBE, resource, name)
        if len(allowing) == 1:
            self.decisive |= allowing
        return bool(allowing)

    def _allowing(self, operation: Operation, resource: Resource, name: str) -> set[Permission]:
        return {each for each in self.given if each.covers(operation, resource, name)}

    def _refusal(self, operation: Operation, resource: Resource, name: str, call: str) -> AccessDeniedError:
        needed = Permission(operation=operation, resource=resource, name=name)
        if resource is Resource.TRANSACTIONAL_ID:
            needed = transactional_permission(name.rpartition("-")[0])
        return AccessDeniedError(
            what=call,
            where=_ADDRESS,
            permission=needed,
            principal=USER,
            kafka_code=f"{resource.name}_AUTHORIZATION_FAILED",
        )


def _topics(argument: str | Iterable[object]) -> list[str]:
    """Return the topics of an argument: names, specs, or partitions."""
    return [argument] if isinstance(argument, str) else list(dict.fromkeys(map(_topic, argument)))


def _topic(named: object) -> str:
    if isinstance(named, TopicPartition):
        return named.topic
    return named.name if isinstance(named, TopicSpec) else str(named)
