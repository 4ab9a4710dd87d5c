"""Topics and offsets as the broker knows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from airflow_kstreams.kafka.connection import await_connection, bootstrap_of
from airflow_kstreams.kafka.delivery import attempt
from airflow_kstreams.kafka.errors import convert, guarded, kafka_error_of, unreachable
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import Isolation, TopicDescription, TopicPartition, TopicSpec

_POLL_SECONDS = 0.02
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
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_ISOLATION: Mapping[Isolation, Any] = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}


class ClusterAdmin:
    """The port ``AdminPort`` on the real client.

    :param client_config: checked client settings.
    :param timeout_ms: bound of every request.
    """

    def __init__(self, client_config: Mapping[str, str], *, timeout_ms: int) -> None:
        self._config = client_config
        self._bootstrap = bootstrap_of(client_config)
        self._timeout_seconds = timeout_ms / 1000
        self._events = ClientEvents()
        self._admin: AdminClient | None = None

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """Describe topics; missing ones are absent from the result."""
        if not names:
            return {}
        found: dict[str, TopicDescription] = {}
        futures = self._ask("describing topics", "describe_topics", TopicCollection(sorted(set(names))))
        for name, future in futures.items():
            description = self._result(
                future, f"describing topic {name}", absent=KafkaError.UNKNOWN_TOPIC_OR_PART
            )
            if description is not None:
                found[name] = TopicDescription(
                    name=name, topic_id=str(description.topic_id), partitions=len(description.partitions)
                )
        return found

    def topic_configs(self, name: str) -> dict[str, str]:
        """Return the settings of a topic as they are in force, defaults included.

        :raises KafkaClientError: there is no such topic, or this user may not see its settings.
        """
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        (future,) = self._ask("describing settings", "describe_configs", [resource]).values()
        entries = self._result(future, f"describing the settings of topic {name}")
        return {entry.name: entry.value for entry in entries.values() if entry.value is not None}

    def create_topics(self, topics: Collection[TopicSpec]) -> None:
        """Create topics and wait until they are visible; existing ones are left alone.

        :raises KafkaClientError: the broker refuses one, or they are not visible within the client timeout.
        """
        if not topics:
            return
        new = [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                config=dict(topic.configs),
            )
            for topic in topics
        ]
        for name, future in self._ask("creating topics", "create_topics", new).items():
            self._result(future, f"creating topic {name}", absent=KafkaError.TOPIC_ALREADY_EXISTS)
        self._await(
            lambda: self._served([topic.name for topic in topics]),
            f"the new topics {', '.join(t.name for t in topics)}",
        )

    def delete_topics(self, names: Collection[str]) -> None:
        """Delete topics and wait until they are gone; missing ones are fine."""
        if not names:
            return
        for name, future in self._ask("deleting topics", "delete_topics", sorted(set(names))).items():
            self._result(future, f"deleting topic {name}", absent=KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._await(lambda: not self.describe_topics(names), f"the end of topics {', '.join(sorted(names))}")

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        """Return the last stable offset under read_committed, else the high watermark."""
        return self._offsets(partitions, _LATEST, isolation)

    def start_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition's log."""
        return self._offsets(partitions, _EARLIEST, "read_uncommitted")

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records below the given offsets."""
        if before:
            requests = [ClientPartition(tp.topic, tp.partition, offset) for tp, offset in before.items()]
            self._ask_leaders("deleting records", "delete_records", requests)

    def close(self) -> None:
        """Let go of the client. Closing twice is harmless."""
        self._admin = None

    def _offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        request = {ClientPartition(tp.topic, tp.partition): spec for tp in partitions}
        answers = self._ask_leaders(
            "reading an offset", "list_offsets", request, isolation_level=_ISOLATION[isolation]
        )
        return {TopicPartition(tp.topic, tp.partition): info.offset for tp, info in answers.items()}

    def _client(self) -> AdminClient:
        if self._admin is None:
            callbacks = self._events.callbacks()
            logger = callbacks.pop("logger")
            admin = guarded(
                "creating an admin client",
                self._bootstrap,
                AdminClient,
                {
                    "reconnect.backoff.max.ms": "2000",
                    "socket.timeout.ms": str(round(self._timeout_seconds * 1000)),
                    **self._config,
                    "allow.auto.create.topics": "false",
                    **callbacks,
                },
                logger=logger,
            )
            await_connection(
                admin, self._events, bootstrap=self._bootstrap, timeout_seconds=self._timeout_seconds
            )
            self._admin = admin
        return self._admin

    def _ask(self, what: str, method: str, *args: Any, **kwargs: Any) -> dict[Any, Future[Any]]:
        call = getattr(self._client(), method)
        futures: dict[Any, Future[Any]] = guarded(
            what, self._bootstrap, call, *args, request_timeout=self._timeout_seconds, **kwargs
        )
        return futures

    def _ask_leaders(self, what: str, method: str, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """Make a request that goes to the partitions' leaders, and wait, bounded, for partitions without one.

        The client keeps metadata in which a partition has no leader for minutes, so a new client is needed to
        see that it has one by now.
        """
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            futures = self._ask(what, method, *args, **kwargs)
            try:
                return {
                    tp: self._result(future, f"{what} of {tp.topic}-{tp.partition}")
                    for tp, future in futures.items()
                }
            except KafkaClientError as error:
                if error.code not in _LEADERLESS or time.monotonic() >= deadline:
                    raise
            self._refuse_missing(what, futures)
            self._admin = None
            time.sleep(_POLL_SECONDS)

    def _refuse_missing(self, what: str, partitions: Collection[ClientPartition]) -> None:
        """Raise for partitions that do not exist, for which it is no use to wait."""
        found = self.describe_topics({tp.topic for tp in partitions})
        missing = sorted(
            f"{tp.topic}-{tp.partition}"
            for tp in partitions
            if tp.topic not in found or tp.partition >= found[tp.topic].partitions
        )
        if missing:
            raise KafkaClientError(
                f"{what} at {self._bootstrap}: no such topic or partition: {', '.join(missing)}",
                fix="create the topic, or correct its name",
                code="UNKNOWN_TOPIC_OR_PART",
            )

    def _result(self, future: Future[Any], what: str, *, absent: int | None = None) -> Any:
        """Return a request's result, None when it failed with the code ``absent``."""
        # The client's own request timeout ends the future; the margin only guards against a client that does
        # not.
        outcome: list[Any] = []
        error = attempt(lambda: outcome.append(future.result(self._timeout_seconds + 5)))
        if error is None:
            return outcome[0]
        kafka_error = kafka_error_of(error)
        if absent is not None and kafka_error is not None and kafka_error.code() == absent:
            return None
        if isinstance(error, FutureTimeoutError):
            raise unreachable(
                self._bootstrap, f"{what}: no answer in {self._timeout_seconds:g} s", code="_TIMED_OUT"
            )
        raise convert(error, what=what, where=self._bootstrap)

    def _served(self, names: Collection[str]) -> bool:
        """Whether every partition of the topics has a leader, which is a moment after the topics exist."""
        futures = self._ask("describing topics", "describe_topics", TopicCollection(sorted(names)))
        descriptions = [
            self._result(future, f"describing topic {name}", absent=KafkaError.UNKNOWN_TOPIC_OR_PART)
            for name, future in futures.items()
        ]
        return all(
            description is not None
            and all(partition.leader is not None for partition in description.partitions)
            for description in descriptions
        )

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        while not condition():
            if time.monotonic() >= deadline:
                raise unreachable(
                    self._bootstrap, f"waited {self._timeout_seconds:g} s for {what}", code="_TIMED_OUT"
                )
            time.sleep(_POLL_SECONDS)
