"""Asks the brokers what this user may do with topics, groups and the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, TopicCollection

from airflow_kstreams.kafka.admin_requests import AdminRequests
from airflow_kstreams.kafka.client_errors import guarded
from airflow_kstreams.kafka.group_description import GroupAnswer
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.naming.permissions import Operation
from airflow_kstreams.streams.ports import Allowed


class AllowedOperations:
    """The operations that the brokers allow this user.

    :param requests: requests of the admin client.
    :param broker_configs: function that returns a broker's settings.
    :param group: function that returns a group's description.
    """

    def __init__(
        self,
        requests: AdminRequests,
        *,
        broker_configs: Callable[[], Mapping[str, str]],
        group: Callable[[str], GroupAnswer],
    ) -> None:
        self._requests = requests
        self._broker_configs = broker_configs
        self._group = group

    def look(self, topics: Collection[str], groups: Collection[str]) -> Allowed | None:
        """Return what this user may do; None if the brokers have no authorizer."""
        if not self._has_authorizer():
            return None
        cluster = self._cluster().authorized_operations
        request = TopicCollection(sorted(set(topics)))
        asked = self._requests.ask(
            "describing", "describe_topics", request, include_authorized_operations=True
        )
        return Allowed(
            topics=_found({name: self._operations(future) for name, future in asked.items()}),
            groups=_found({group: self._operations_on(group) for group in groups}),
            cluster=None if cluster is None else _named(each.name for each in cluster),
        )

    def _cluster(self) -> Any:
        client = self._requests.client()  # held until the client has answered
        future: Future[Any] = guarded(
            "describing the cluster",
            self._requests.bootstrap,
            client.describe_cluster,
            include_authorized_operations=True,
            request_timeout=self._requests.time.left(),
        )
        return self._requests.result(future, "describing the cluster")

    def _has_authorizer(self) -> bool:
        """Return False if the brokers say that they ask no authorizer.

        A list of ACLs does not tell: the client gives an empty one for SECURITY_DISABLED.
        """
        try:
            return self._broker_configs().get("authorizer.class.name") != ""
        except KafkaClientError as error:
            if error.is_retriable:
                raise
            return True  # it refused to show them

    def _operations(self, future: Future[Any]) -> frozenset[Operation] | None:
        """Return the operations of a topic; None if it does not exist."""
        try:
            found = self._requests.result(
                future, "describing a topic's operations", absent=KafkaError.UNKNOWN_TOPIC_OR_PART
            )
        except KafkaClientError as error:
            if error.kafka_code != "TOPIC_AUTHORIZATION_FAILED":
                raise
            return frozenset()
        return None if found is None else _named(each.name for each in found.authorized_operations or ())

    def _operations_on(self, group_id: str) -> frozenset[Operation] | None:
        """Return the operations on a group; None if it does not exist."""
        try:
            return _named(self._group(group_id).operations)
        except KafkaClientError as error:
            if error.kafka_code == "GROUP_ID_NOT_FOUND":
                return None
            if error.kafka_code != "GROUP_AUTHORIZATION_FAILED":
                raise
            return frozenset()


def _found(operations: Mapping[str, frozenset[Operation] | None]) -> dict[str, frozenset[Operation]]:
    return {name: each for name, each in operations.items() if each is not None}


def _named(names: Iterable[str]) -> frozenset[Operation]:
    """Return operations by the client's names, e.g. ``DESCRIBE_CONFIGS``; others are left out."""
    spelt = {name.title().replace("_", "") for name in names}
    return frozenset(each for each in Operation if each.value in spelt)
