"""Injects faults between the engine and Kafka: every port call of a cluster passes an interceptor.

The interceptor gets the name of the call (``writer.commit``), its client, and the call itself. It decides
whether the call takes effect, and what the caller gets: so it can crash before or after the call, lose the
answer, wait, or fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from airflow_kstreams.streams.ports import (
    AdminPort,
    ClusterPort,
    CommittedOffset,
    Fetched,
    GroupMember,
    Isolation,
    ReaderPort,
    TopicConfigs,
    TopicDescription,
    TopicPartition,
    TopicSpec,
    WriterPort,
)

T = TypeVar("T")


class Interceptor(Protocol):
    """Intercepts port calls."""

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, or replace it.

        :param name: port and method, e.g. ``reader.poll``.
        :param client: the client that is called; the cluster for ``cluster.reader``, ``cluster.writer`` and
            ``cluster.admin``.
        :param effect: makes the call and returns its result.
        :param arguments: the call's arguments, for messages.
        """
        ...


class FaultyCluster:
    """A ``ClusterPort`` that passes the making of clients, and all their calls, to an interceptor.

    >>> from airflow_kstreams.testing import InMemoryKafka
    >>> class Counting:
    ...     names = []
    ...     def call(self, name, client, effect, arguments):
    ...         self.names.append(name)
    ...         return effect()
    >>> cluster = FaultyCluster(InMemoryKafka(), Counting())
    >>> cluster.admin().describe_topics(["flights"])
    {}
    >>> Counting.names
    ['cluster.admin', 'admin.describe_topics']

    :param cluster: the cluster that takes the calls.
    """

    def __init__(self, cluster: ClusterPort, interceptor: Interceptor) -> None:
        self._cluster = cluster
        self._interceptor = interceptor

    def reader(self, *, group_id: str, isolation: Isolation = "read_committed") -> ReaderPort:
        """Make a reader; the interceptor gets this call, too.

        :param group_id: the group whose committed offsets it reads and writes.
        :param isolation: ``read_committed`` or ``read_uncommitted``.
        """
        make = partial(self._cluster.reader, group_id=group_id, isolation=isolation)
        made = self._interceptor.call("cluster.reader", self._cluster, make, (group_id, isolation))
        return FaultyReader(made, self._interceptor)

    def writer(
        self,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int = 60_000,
        max_message_bytes: Mapping[str, int] | None = None,
    ) -> WriterPort:
        """Make a writer; the interceptor gets this call, too.

        :param transactional_id: None for a writer without transactions.
        :param transaction_timeout_ms: time after which the broker aborts a transaction.
        :param max_message_bytes: limit of each topic that it writes.
        """
        make = partial(
            self._cluster.writer,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            max_message_bytes=max_message_bytes,
        )
        made = self._interceptor.call("cluster.writer", self._cluster, make, (transactional_id,))
        return FaultyWriter(made, self._interceptor)

    def admin(self) -> AdminPort:
        """Make an admin client."""
        made = self._interceptor.call("cluster.admin", self._cluster, self._cluster.admin, ())
        return FaultyAdmin(made, self._interceptor)


class FaultyReader:
    """A reader behind an interceptor."""

    def __init__(self, inner: ReaderPort, interceptor: Interceptor) -> None:
        self.inner = inner
        self._call = interceptor.call

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """See ``ReaderPort``."""
        self._call("reader.assign", self.inner, partial(self.inner.assign, starts), (starts,))

    def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched:
        """See ``ReaderPort``."""
        effect = partial(self.inner.poll, max_records=max_records, timeout_seconds=timeout_seconds)
        return self._call("reader.poll", self.inner, effect, (max_records, timeout_seconds))

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """See ``ReaderPort``."""
        self._call("reader.pause", self.inner, partial(self.inner.pause, partitions), (sorted(partitions),))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """See ``ReaderPort``."""
        self._call("reader.resume", self.inner, partial(self.inner.resume, partitions), (sorted(partitions),))

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """See ``ReaderPort``."""
        effect = partial(self.inner.committed, partitions)
        return self._call("reader.committed", self.inner, effect, (sorted(partitions),))

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """See ``ReaderPort``."""
        self._call("reader.commit", self.inner, partial(self.inner.commit, offsets), (_shown(offsets),))

    def close(self) -> None:
        """See ``ReaderPort``."""
        self._call("reader.close", self.inner, self.inner.close, ())


class FaultyWriter:
    """A writer behind an interceptor."""

    def __init__(self, inner: WriterPort, interceptor: Interceptor) -> None:
        self.inner = inner
        self._call = interceptor.call

    @property
    def suspect(self) -> bool:
        """See ``WriterPort``; the client knows the answer, so no request can fail."""
        return self.inner.suspect

    @property
    def produce(self) -> Callable[..., None]:
        """See ``WriterPort``."""
        produce, call, inner = self.inner.produce, self._call, self.inner

        def send(*arguments: Any) -> None:
            call("writer.produce", inner, partial(produce, *arguments), arguments)

        return send

    def init_transactions(self) -> None:
        """See ``WriterPort``."""
        self._call("writer.init_transactions", self.inner, self.inner.init_transactions, ())

    def begin(self) -> None:
        """See ``WriterPort``."""
        self._call("writer.begin", self.inner, self.inner.begin, ())

    def flush(self) -> None:
        """See ``WriterPort``."""
        self._call("writer.flush", self.inner, self.inner.flush, ())

    def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], reader: ReaderPort) -> None:
        """See ``WriterPort``."""
        inner_reader = reader.inner if isinstance(reader, FaultyReader) else reader
        effect = partial(self.inner.send_offsets, offsets, inner_reader)
        self._call("writer.send_offsets", self.inner, effect, (_shown(offsets),))

    def commit(self) -> None:
        """See ``WriterPort``."""
        self._call("writer.commit", self.inner, self.inner.commit, ())

    def abort(self) -> None:
        """See ``WriterPort``."""
        self._call("writer.abort", self.inner, self.inner.abort, ())

    def close(self) -> None:
        """See ``WriterPort``."""
        self._call("writer.close", self.inner, self.inner.close, ())


class FaultyAdmin:
    """An admin client behind an interceptor."""

    def __init__(self, inner: AdminPort, interceptor: Interceptor) -> None:
        self.inner = inner
        self._call = interceptor.call

    def topic_names(self) -> set[str]:
        """See ``AdminPort``."""
        return self._call("admin.topic_names", self.inner, self.inner.topic_names, ())

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """See ``AdminPort``."""
        effect = partial(self.inner.describe_topics, names)
        return self._call("admin.describe_topics", self.inner, effect, (sorted(names),))

    def topic_configs(self, names: Collection[str]) -> TopicConfigs:
        """See ``AdminPort``."""
        effect = partial(self.inner.topic_configs, names)
        return self._call("admin.topic_configs", self.inner, effect, (sorted(names),))

    def broker_configs(self) -> dict[str, str]:
        """See ``AdminPort``."""
        return self._call("admin.broker_configs", self.inner, self.inner.broker_configs, ())

    def create_topics(self, topics: Collection[TopicSpec]) -> None:
        """See ``AdminPort``."""
        names = [topic.name for topic in topics]
        self._call("admin.create_topics", self.inner, partial(self.inner.create_topics, topics), (names,))

    def create_partitions(self, topic: str, count: int) -> None:
        """See ``AdminPort``."""
        effect = partial(self.inner.create_partitions, topic, count)
        self._call("admin.create_partitions", self.inner, effect, (topic, count))

    def delete_topics(self, names: Collection[str]) -> None:
        """See ``AdminPort``."""
        effect = partial(self.inner.delete_topics, names)
        self._call("admin.delete_topics", self.inner, effect, (sorted(names),))

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        """See ``AdminPort``."""
        effect = partial(self.inner.end_offsets, partitions, isolation=isolation)
        return self._call("admin.end_offsets", self.inner, effect, (sorted(partitions), isolation))

    def end_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``AdminPort``."""
        effect = partial(self.inner.end_epochs, partitions)
        return self._call("admin.end_epochs", self.inner, effect, (sorted(partitions),))

    def start_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See ``AdminPort``."""
        effect = partial(self.inner.start_offsets, partitions)
        return self._call("admin.start_offsets", self.inner, effect, (sorted(partitions),))

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See ``AdminPort``."""
        effect = partial(self.inner.offsets_for_times, times_ms)
        return self._call("admin.offsets_for_times", self.inner, effect, (dict(times_ms),))

    def group_ids(self) -> set[str]:
        """See ``AdminPort``."""
        return self._call("admin.group_ids", self.inner, self.inner.group_ids, ())

    def group_members(self, group_id: str) -> tuple[GroupMember, ...]:
        """See ``AdminPort``."""
        effect = partial(self.inner.group_members, group_id)
        return self._call("admin.group_members", self.inner, effect, (group_id,))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """See ``AdminPort``."""
        effect = partial(self.inner.delete_records, before)
        self._call("admin.delete_records", self.inner, effect, (dict(before),))

    def close(self) -> None:
        """See ``AdminPort``."""
        self._call("admin.close", self.inner, self.inner.close, ())


def _shown(offsets: Mapping[TopicPartition, CommittedOffset]) -> dict[str, int]:
    """Return offsets without their metadata."""
    return {str(partition): offset.offset for partition, offset in sorted(offsets.items())}
