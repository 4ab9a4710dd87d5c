"""Interceptors of port calls: one does something at a call, one dies there, one forbids a look.

``Application(interceptor=...)`` puts one between an application and its cluster; ``CrashingAt.cluster`` gives
a cluster to what takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from airflow_kstreams.streams.errors import AccessDeniedError, KafkaClientError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.streams.ports import ClusterPort, TopicConfigs
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.crash import Crash

T = TypeVar("T")


class Once:
    """Does something before the n-th call of a name.

    :param about: what the call's arguments must mention to count.
    """

    def __init__(self, name: str, number: int, action: Callable[[], object], *, about: str = "") -> None:
        self.name, self.left, self.action, self.about = name, number, action, about

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        if name == self.name and self.about in str(arguments):
            self.left -= 1
            if self.left == 0:
                self.action()
        return effect()


class ConfigsForbidden:
    """Lets this user see the settings of no topic, as a broker with ACLs does."""

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        if name != "admin.topic_configs":
            return effect()
        (topics,) = arguments
        return TopicConfigs({}, {topic: self._refused(topic) for topic in topics})

    def _refused(self, topic: str) -> AccessDeniedError:
        return AccessDeniedError(
            what=f"describing the settings of topic {topic}",
            where="b:1",
            permission=Permission(operation=Operation.DESCRIBE_CONFIGS, resource=Resource.TOPIC, name=topic),
            principal="",
            kafka_code="TOPIC_AUTHORIZATION_FAILED",
        )


class Meanwhile:
    """An interceptor that does something once, before the n-th call, from 0.

    :ivar happened: whether it has begun to.
    """

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        self._left = number
        self._action = action
        self.happened = False

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self._left -= 1
        if self._left == -1:
            self.happened = True
            self._action()
        return effect()


class LosesAnswers:
    """An interceptor under which a commit takes effect and its answer is lost, once, at the n-th, from 0."""

    def __init__(self, number: int) -> None:
        self._left = number

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        result = effect()
        if name == "writer.commit":
            self._left -= 1
            if self._left == -1:
                raise KafkaClientError("no answer", kafka_code="_TIMED_OUT", retriable_code=True)
        return result


class CrashingAt:
    """An interceptor that kills its process at one port call, before or after it takes effect.

    :param number: of the call, from 0; None for never.
    :param name: the only calls that count; empty for all of them.
    :ivar calls: the names of those that were made.
    """

    def __init__(self, number: int | None = None, *, after: bool = False, name: str = "") -> None:
        self.calls: list[str] = []
        self._name = name
        self._number = number
        self._after = after
        self._dead = False

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if self._dead:
            raise Crash
        if self._name not in ("", name):
            return effect()
        self.calls.append(name)
        if len(self.calls) - 1 != self._number:
            return effect()
        self._dead = True
        if self._after:
            effect()
        raise Crash

    def cluster(self, kafka: InMemoryKafka) -> ClusterPort:
        return FaultyCluster(kafka, self)
