"""A cluster on which nothing can be written: the one that the API server has.

Rule: only calls that read are passed on, by name. Every other one of the ports is refused before a client
sees it. The looks of :mod:`airflow_kstreams.inspect` write nothing by themselves; here they could not.

Clients that a look leaves open are closed at the end of the block::

    with ReadOnlyCluster(cluster) as reading:
        inspect.runs("orders", reading)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import NoReturn, Self, cast

from airflow_kstreams.streams.errors import AccessDeniedError, KafkaClientError
from airflow_kstreams.streams.ports import (
    AdminPort,
    ClusterPort,
    CommittedOffset,
    Isolation,
    ReaderPort,
    TopicLimits,
    TopicPartition,
    TopicSpec,
    WriterPort,
)


class WriteRefusedError(AccessDeniedError):
    """The API server writes nothing to Kafka.

    :param call: name of the call.
    """

    def __init__(self, call: str) -> None:
        KafkaClientError.__init__(
            self, f"pages only read Kafka, and {call} would write", fix="", kafka_code="_STATE"
        )


class ReadOnlyCluster:
    """A ``ClusterPort`` that only reads. A context manager.

    :param cluster: the cluster that is read.
    """

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def crossing(self) -> str:
        """How records cross between Python and the client."""
        return self._cluster.crossing

    def reader(
        self,
        *,
        group_id: str,
        isolation: Isolation = "read_committed",
        follows: bool = False,
        small: bool = False,
    ) -> ReaderPort:
        """Make a reader that commits nothing."""
        inner = self._cluster.reader(group_id=group_id, isolation=isolation, follows=follows, small=small)
        return cast("ReaderPort", _RefusingReader(inner, self._closing(inner)))

    def writer(
        self,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int = 60_000,
        limits: Mapping[str, TopicLimits] | None = None,
        bulk: bool = False,
    ) -> WriterPort:
        """Make no writer.

        :raises WriteRefusedError: always.
        """
        raise WriteRefusedError("a writer")

    def admin(self) -> AdminPort:
        """Make an admin client that changes nothing."""
        inner = self._cluster.admin()
        return cast("AdminPort", _RefusingAdmin(inner, self._closing(inner)))

    def _closing(self, client: ReaderPort | AdminPort) -> ExitStack:
        """Return what closes a client once, when the look does, or else at the end of the block."""
        closing = ExitStack()
        closing.callback(client.close)
        self._open.callback(closing.close)
        return closing


class _RefusingReader:
    def __init__(self, inner: ReaderPort, closing: ExitStack) -> None:
        self.assign, self.poll, self.pause, self.resume = inner.assign, inner.poll, inner.pause, inner.resume
        self.committed, self.close = inner.committed, closing.close

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> NoReturn:
        raise WriteRefusedError("a commit")


class _RefusingAdmin:
    def __init__(self, inner: AdminPort, closing: ExitStack) -> None:
        self.topic_names, self.describe_topics = inner.topic_names, inner.describe_topics
        self.topic_configs, self.broker_configs = inner.topic_configs, inner.broker_configs
        self.broker_addresses, self.allowed = inner.broker_addresses, inner.allowed
        self.end_offsets, self.start_offsets = inner.end_offsets, inner.start_offsets
        self.end_epochs, self.offsets_for_times = inner.end_epochs, inner.offsets_for_times
        self.group_ids, self.group_members = inner.group_ids, inner.group_members
        self.close = closing.close

    def create_topics(self, topics: Collection[TopicSpec]) -> NoReturn:
        raise WriteRefusedError("the creation of topics")

    def create_partitions(self, topic: str, count: int) -> NoReturn:
        raise WriteRefusedError("the creation of partitions")

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> NoReturn:
        raise WriteRefusedError("a change of a topic's settings")

    def delete_topics(self, names: Collection[str]) -> NoReturn:
        raise WriteRefusedError("the deletion of topics")

    def delete_records(self, before: Mapping[TopicPartition, int]) -> NoReturn:
        raise WriteRefusedError("the deletion of records")
