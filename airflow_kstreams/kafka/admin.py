"""Asks the broker for topics, offsets, settings and groups, and changes topics."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_INVALID, ConsumerGroupState, IsolationLevel, KafkaError, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from airflow_kstreams.kafka.admin_requests import AdminRequests
from airflow_kstreams.kafka.allowed_operations import AllowedOperations
from airflow_kstreams.kafka.client_errors import (
    NO_SUCH,
    convert,
    guarded,
    unreachable,
)
from airflow_kstreams.kafka.connection import NO_SUCH_TOPIC, RequestTime
from airflow_kstreams.kafka.group_description import GroupAnswer, describe_group
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.streams.ports import (
    Allowed,
    GroupMember,
    Isolation,
    TopicConfigs,
    TopicDescription,
    TopicPartition,
    TopicSpec,
)
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

_POLL_SECONDS = 0.02
#: Settings of topics by which a broker refuses records for their time, and the one that they came from.
_SIDES = frozenset({"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"})
_BOTH_SIDES = "message.timestamp.difference.max.ms"
#: Codes of requests about partitions that have no leader at the moment, or one that does not know so yet; a
#: topic that has just been created passes through all of them.
_LEADERLESS = frozenset(
    {
        "_NOENT",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "UNKNOWN_LEADER_EPOCH",
        "FENCED_LEADER_EPOCH",
        "REPLICA_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PART",
    }
)
_MEMBERLESS = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_ISOLATION: Mapping[Isolation, Any] = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}


class ClusterAdmin:
    """The port ``AdminPort`` on the real client. Safe to use from several threads.

    :param client_config: checked client settings.
    :param request_time: bound of every request.
    """

    def __init__(self, client_config: Mapping[str, str], *, request_time: RequestTime) -> None:
        self._config = client_config
        self._requests = AdminRequests(client_config, request_time=request_time)
        self._bootstrap = self._requests.bootstrap
        self._time = request_time

    def topic_names(self) -> set[str]:
        """Return the names of all topics that this user may see."""
        found = guarded(
            "listing topics", self._bootstrap, self._requests.client().list_topics, timeout=self._time.left()
        )
        return set(found.topics)

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """Describe topics; missing ones are absent from the result."""
        if not names:
            return {}
        return {
            name: TopicDescription(
                name=name,
                topic_id=str(description.topic_id),
                partitions=len(description.partitions),
                replicas=min((len(partition.replicas) for partition in description.partitions), default=0),
            )
            for name, description in self._described(names).items()
            if description is not None
        }

    def topic_configs(self, names: Collection[str]) -> TopicConfigs:
        """Return the settings of topics that are in force, defaults included, in one request.

        :raises KafkaClientError: the broker did not answer, or could not for now.
        """
        found: dict[str, dict[str, str]] = {}
        refused: dict[str, KafkaClientError] = {}
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(set(names))]
        futures = (
            self._requests.ask("describing settings", "describe_configs", resources) if resources else {}
        )
        for resource, future in futures.items():
            name = resource.name
            what, needs = f"describing the settings of topic {name}", Operation.DESCRIBE_CONFIGS
            try:
                found[name] = self._settings(future, what, _on_topic(needs, name))
            except KafkaClientError as error:
                if error.is_retriable:
                    raise
                refused[name] = error
        return TopicConfigs(found, refused)

    def broker_configs(self) -> dict[str, str]:
        """Return the settings in force of the broker with the smallest id, defaults included.

        :raises KafkaClientError: this user may not see them, or no broker answers.
        """
        broker = str(min(self._brokers()))
        answers = self._requests.ask(
            "describing settings", "describe_configs", [ConfigResource(ConfigResource.Type.BROKER, broker)]
        )
        (future,) = answers.values()
        return self._settings(
            future,
            f"describing the settings of broker {broker}",
            Permission(operation=Operation.DESCRIBE_CONFIGS, resource=Resource.CLUSTER),
        )

    def broker_addresses(self) -> dict[int, tuple[str, int]]:
        """Return the address that each broker advertises on the listener that this client uses."""
        return {each.id: (each.host, each.port) for each in self._brokers().values()}

    def allowed(self, topics: Collection[str], groups: Collection[str]) -> Allowed | None:
        """Return what this user may do; None if the brokers have no authorizer."""
        return AllowedOperations(self._requests, broker_configs=self.broker_configs, group=self._group).look(
            topics, groups
        )

    def create_topics(self, topics: Collection[TopicSpec]) -> None:
        """Create topics and wait until they are visible; existing ones are left alone.

        A broker before Kafka 3.6 refuses two settings that it does not know; it has one in their place.

        :raises KafkaClientError: the broker refuses one, or they are not visible within the client timeout.
        """
        if not topics:
            return
        try:
            self._create(topics)
        except KafkaClientError as error:
            if error.kafka_code != "INVALID_CONFIG" or not any(
                topic.configs.keys() & _SIDES for topic in topics
            ):
                raise
            try:
                self._create([dataclasses.replace(topic, configs=_before_3_6(topic)) for topic in topics])
            except KafkaClientError:
                raise error from None
            log.warning(
                "The brokers at %s are older than Kafka 3.6: a delayed request of a client can leave a "
                "transaction open for ever, behind which nothing is read (airflow-kstreams doctor)",
                self._bootstrap,
            )
        names = [topic.name for topic in topics]
        self._requests.wait_until(lambda: self._served(names), f"the new topics {', '.join(names)}")

    def _create(self, topics: Collection[TopicSpec]) -> None:
        new = [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                config=dict(topic.configs),
            )
            for topic in topics
        ]
        self._on_each("creating", Operation.CREATE, KafkaError.TOPIC_ALREADY_EXISTS, "create_topics", new)

    def create_partitions(self, topic: str, count: int) -> None:
        """Give a topic more partitions and wait until they have leaders; a topic that has this
        number is left alone.

        :raises KafkaClientError: there is no such topic, it has more partitions, the broker refuses, or they
            have no leaders within the client timeout.
        """
        what = f"giving topic {topic} {counted(count, 'partition')}"
        answers = self._requests.ask("adding partitions", "create_partitions", [NewPartitions(topic, count)])
        (future,) = answers.values()
        try:
            self._requests.result(future, what, needs=_on_topic(Operation.ALTER, topic))
        except KafkaClientError as error:
            if error.kafka_code != "INVALID_PARTITIONS":
                raise
            # The broker also refuses the number that the topic has, as when the answer to an earlier try was
            # lost.
            found = self.describe_topics([topic])
            has = found[topic].partitions if topic in found else 0
            if count < has:
                raise KafkaClientError(
                    f"{what} at {self._bootstrap}: it has {has}, and a topic never loses any",
                    fix=f"ask for {has} or more",
                    kafka_code=error.kafka_code,
                ) from None
            if count != has:
                raise
        self._requests.wait_until(
            lambda: self._served([topic], count), f"the new partitions of topic {topic}"
        )

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Change settings of a topic, by Kafka's names; its others stay.

        :raises KafkaClientError: there is no such topic, or the broker refuses a setting.
        """
        entries = [
            ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
            for setting, value in configs.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        answers = self._requests.ask("changing settings", "incremental_alter_configs", [resource])
        (future,) = answers.values()
        what = f"changing settings of topic {name}"
        self._requests.result(future, what, needs=_on_topic(Operation.ALTER_CONFIGS, name))

    def delete_topics(self, names: Collection[str]) -> None:
        """Delete topics and wait until they are gone; missing ones are fine."""
        if not names:
            return
        gone = sorted(set(names))
        self._on_each("deleting", Operation.DELETE, KafkaError.UNKNOWN_TOPIC_OR_PART, "delete_topics", gone)
        self._requests.wait_until(
            lambda: not self.describe_topics(names), f"the end of topics {', '.join(gone)}"
        )

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        """Return the last stable offset under read_committed, else the high watermark."""
        return self._offsets(dict.fromkeys(partitions, _LATEST), isolation)

    def end_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the leader epoch at the end of each log, -1 when the broker does not say."""
        found = self._listed(dict.fromkeys(partitions, _LATEST), "read_uncommitted")
        return {tp: -1 if info.leader_epoch is None else info.leader_epoch for tp, info in found.items()}

    def start_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition's log."""
        return self._offsets(dict.fromkeys(partitions, _EARLIEST), "read_uncommitted")

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset whose record is dated at or after a time, epoch milliseconds."""
        specs = {tp: OffsetSpec.for_timestamp(time_ms) for tp, time_ms in times_ms.items()}
        found = self._offsets(specs, "read_uncommitted")
        return {tp: offset for tp, offset in found.items() if offset >= 0}

    def group_ids(self) -> set[str]:
        """Return the ids of all consumer groups that this user may see."""
        return set(self._groups())

    def group_members(self, group_id: str) -> tuple[GroupMember, ...]:
        """Return the members of a consumer group; a group that does not exist has none."""
        deadline = time.monotonic() + self._time.left()
        needs = Permission(operation=Operation.DESCRIBE, resource=Resource.GROUP, name=group_id)
        while self._groups().get(group_id) not in (None, *_MEMBERLESS):
            try:
                found = self._group(group_id, needs)
            except KafkaClientError as error:
                # The group may have ended since it was listed, and the coordinator may be moving.
                if time.monotonic() >= deadline:
                    raise
                if not error.is_retriable and error.kafka_code != "GROUP_ID_NOT_FOUND":
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                return tuple(found.members)
        return ()

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records below the given offsets."""
        if before:
            requests = [ClientPartition(tp.topic, tp.partition, offset) for tp, offset in before.items()]
            self._ask_leaders("deleting records", "delete_records", requests, operation=Operation.DELETE)

    def close(self) -> None:
        """Drop the client. Closing twice is harmless."""
        self._requests.drop()

    def _brokers(self) -> dict[int, Any]:
        """Return what the first brokers that answer tell of all of them; the others need not be reached."""
        metadata = guarded(
            "listing brokers",
            self._bootstrap,
            self._requests.client().list_topics,
            NO_SUCH_TOPIC,
            timeout=self._time.left(),
        )
        found: dict[int, Any] = metadata.brokers
        return found

    def _settings(self, future: Future[Any], what: str, needs: Permission) -> dict[str, str]:
        entries = self._requests.result(future, what, needs=needs)
        return {entry.name: entry.value for entry in entries.values() if entry.value is not None}

    def _group(self, group_id: str, needs: Permission | None = None) -> GroupAnswer:
        ask = partial(describe_group, group_id, self._config, seconds=self._time.left())
        found: GroupAnswer = self._requests.outcome(ask, f"describing group {group_id}", needs=needs)
        return found

    def _groups(self) -> dict[str, ConsumerGroupState]:
        """Return the state of every group that this user may see."""
        client = self._requests.client()  # held until the client has answered
        future: Future[Any] = guarded(
            "listing groups",
            self._bootstrap,
            client.list_consumer_groups,
            request_timeout=self._time.left(),
        )
        listed = self._requests.result(future, "listing groups")
        for error in listed.errors:
            raise convert(error, what="listing groups", where=self._bootstrap)
        return {group.group_id: group.state for group in listed.valid}

    def _offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        return {tp: info.offset for tp, info in self._listed(specs, isolation).items()}

    def _listed(
        self, specs: Mapping[TopicPartition, OffsetSpec], isolation: Isolation
    ) -> dict[TopicPartition, Any]:
        """Return the broker's answer about offsets, in the client's own form."""
        if not specs:
            return {}
        request = {ClientPartition(tp.topic, tp.partition): spec for tp, spec in specs.items()}
        answers = self._ask_leaders(
            "reading an offset",
            "list_offsets",
            request,
            isolation_level=_ISOLATION[isolation],
        )
        for tp, info in answers.items():
            # Given up by the client, a request may end without an error.
            if info.offset == OFFSET_INVALID:
                raise unreachable(
                    self._bootstrap,
                    f"reading an offset: no answer for {tp.topic}-{tp.partition}",
                    kafka_code="_TIMED_OUT",
                )
        return {TopicPartition(tp.topic, tp.partition): info for tp, info in answers.items()}

    def _on_each(
        self, doing: str, operation: Operation, absent: int, method: str, request: Any
    ) -> dict[str, Any]:
        """Make a request about topics; return the answer for each, None where it failed with ``absent``."""
        return {
            name: self._requests.result(
                future, f"{doing} topic {name}", needs=_on_topic(operation, name), absent=absent
            )
            for name, future in self._requests.ask(f"{doing} topics", method, request).items()
        }

    def _described(self, names: Collection[str]) -> dict[str, Any]:
        """Return the client's descriptions of topics, None for those that do not exist."""
        request = TopicCollection(sorted(set(names)))
        missing = KafkaError.UNKNOWN_TOPIC_OR_PART
        return self._on_each("describing", Operation.DESCRIBE, missing, "describe_topics", request)

    def _ask_leaders(
        self, what: str, method: str, *args: Any, operation: Operation = Operation.DESCRIBE, **kwargs: Any
    ) -> dict[Any, Any]:
        """Make a request that goes to the partitions' leaders, and wait, bounded, for partitions without one.

        The client keeps metadata in which a partition has no leader for minutes; only a new client sees that
        it has one by now.
        """
        deadline = time.monotonic() + self._time.left()
        while True:
            futures = self._requests.ask(what, method, *args, **kwargs)
            try:
                return {
                    tp: self._requests.result(
                        future, f"{what} of {tp.topic}-{tp.partition}", needs=_on_topic(operation, tp.topic)
                    )
                    for tp, future in futures.items()
                }
            except KafkaClientError as error:
                if error.kafka_code not in _LEADERLESS or time.monotonic() >= deadline:
                    raise
            self._refuse_missing(what, futures)
            self._requests.drop()
            time.sleep(_POLL_SECONDS)

    def _refuse_missing(self, what: str, partitions: Collection[ClientPartition]) -> None:
        """Raise for partitions that do not exist: waiting would not help."""
        found = self.describe_topics({tp.topic for tp in partitions})
        missing = sorted(
            f"{tp.topic}-{tp.partition}"
            for tp in partitions
            if tp.topic not in found or tp.partition >= found[tp.topic].partitions
        )
        if missing:
            raise KafkaClientError(
                f"{what} at {self._bootstrap}: no such topic or partition: {', '.join(missing)}",
                fix=NO_SUCH,
                kafka_code="UNKNOWN_TOPIC_OR_PART",
            )

    def _served(self, names: Collection[str], partitions: int = 0) -> bool:
        """Return True if every partition of the topics has a leader; it gets one a moment after it exists.

        :param partitions: smallest number of partitions of each topic.
        """
        return all(
            description is not None
            and len(description.partitions) >= partitions
            and all(partition.leader is not None for partition in description.partitions)
            for description in self._described(names).values()
        )


def _before_3_6(topic: TopicSpec) -> dict[str, str]:
    """Return a topic's settings by the names that brokers before Kafka 3.6 know."""
    limits = [topic.configs[name] for name in sorted(_SIDES & topic.configs.keys())]
    kept = {name: value for name, value in topic.configs.items() if name not in _SIDES}
    return {**kept, _BOTH_SIDES: min(limits, key=int)} if limits else kept


def _on_topic(operation: Operation, name: str) -> Permission:
    return Permission(operation=operation, resource=Resource.TOPIC, name=name)
