"""A cluster on which a begin is rehearsed: it reads the real cluster, and nothing is written there.

Rule: only calls that read are passed on, by name. What a begin would create exists for it from then on,
empty; what it would write, delete or claim vanishes. So the real begin runs to its end, with all of its
checks and in its order, and gives the slice that it would write.

Two things differ from a begin. Old tasks are not fenced: transactions that they have left open, which the
fence would abort, are passed over in committed offsets and in the protocol's topics, as if it had. And state
is not copied to new processors, which the takeover says in its warning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Any, cast

from airflow_kstreams.streams.errors import AccessDeniedError, KafkaClientError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import (
    AdminPort,
    ClusterPort,
    CommittedOffset,
    Isolation,
    ReaderPort,
    TopicConfigs,
    TopicDescription,
    TopicLimits,
    TopicPartition,
    TopicSpec,
    WriterPort,
)


class Rehearsal:
    """A ``ClusterPort`` that writes nothing.

    :param cluster: the cluster that is read.
    :param application_id: id of the application whose begin is rehearsed.
    :ivar created: topics that the begin would create, by name.
    """

    def __init__(self, cluster: ClusterPort, application_id: str) -> None:
        self._cluster = cluster
        self._application_id = application_id
        self.created: dict[str, TopicSpec] = {}

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
        return cast("ReaderPort", _RehearsedReader(self._cluster, group_id, isolation))

    def writer(
        self,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int = 60_000,
        limits: Mapping[str, TopicLimits] | None = None,
        bulk: bool = False,
    ) -> WriterPort:
        """Make a writer that writes nothing; only the coordinator's takes records."""
        del transaction_timeout_ms, limits, bulk
        coordinators = transactional_id == f"{self._application_id}-coordinator"
        return cast("WriterPort", _RehearsedWriter(takes_records=coordinators))

    def admin(self) -> AdminPort:
        """Make an admin client that changes nothing."""
        protocol = ProtocolTopics(self._application_id).protocol
        return cast("AdminPort", _RehearsedAdmin(self._cluster.admin(), self.created, protocol))


class _ReadOnlyError(AccessDeniedError):
    """A rehearsal has no permission to write."""

    def __init__(self, what: str) -> None:
        KafkaClientError.__init__(self, f"a plan {what}", fix="", kafka_code="_STATE")


class _RehearsedReader:
    def __init__(self, cluster: ClusterPort, group_id: str, isolation: Isolation) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._inner = cluster.reader(group_id=group_id, isolation=isolation)
        self.assign, self.poll = self._inner.assign, self._inner.poll
        self.pause, self.resume, self.close = self._inner.pause, self._inner.resume, self._inner.close

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        # Those of transactions that are open do not count: the fence would abort them.
        reader = self._cluster.reader(group_id=self._group_id, isolation="read_uncommitted")
        with closing(reader):
            return reader.committed(partitions)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        raise _ReadOnlyError("commits nothing")


class _RehearsedWriter:
    suspect = False

    def __init__(self, *, takes_records: bool) -> None:
        self._takes_records = takes_records

    @property
    def produce(self) -> Callable[..., None]:
        if not self._takes_records:
            raise _ReadOnlyError("copies no state")
        return _nothing

    def init_transactions(self) -> None: ...
    def begin(self) -> None: ...
    def flush(self) -> None: ...
    def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], reader: ReaderPort) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def _nothing(*_given: Any, **_named: Any) -> None: ...


class _RehearsedAdmin:
    """An admin client of the real cluster, as it would be with the topics that were created here.

    :param protocol: topics of the protocol: what open transactions hold back there would be aborted.
    """

    def __init__(self, inner: AdminPort, created: dict[str, TopicSpec], protocol: Collection[str]) -> None:
        self._inner = inner
        self._created = created
        self._protocol = protocol
        self.broker_configs, self.group_ids = inner.broker_configs, inner.group_ids
        self.group_members, self.close = inner.group_members, inner.close

    def topic_names(self) -> set[str]:
        return self._inner.topic_names() | self._created.keys()

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        made = {
            name: TopicDescription(name=name, topic_id="", partitions=self._created[name].partitions)
            for name in names
            if name in self._created
        }
        asked = [name for name in names if name not in made]
        return {**(self._inner.describe_topics(asked) if asked else {}), **made}

    def topic_configs(self, names: Collection[str]) -> TopicConfigs:
        asked = [name for name in names if name not in self._created]
        found, refused = self._inner.topic_configs(asked)
        made = {name: self._created[name].configs for name in names if name in self._created}
        return TopicConfigs({**found, **made}, refused)

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        def real(asked: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            own = [tp for tp in asked if tp.topic in self._protocol]
            others = [tp for tp in asked if tp.topic not in self._protocol]
            found = self._inner.end_offsets(own, isolation="read_committed") if own else {}
            return found | (self._inner.end_offsets(others, isolation=isolation) if others else {})

        return self._real_or(partitions, 0, real)

    def start_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._real_or(partitions, 0, self._inner.start_offsets)

    def end_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._real_or(partitions, -1, self._inner.end_epochs)

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        asked = {tp: at for tp, at in times_ms.items() if tp.topic not in self._created}
        return self._inner.offsets_for_times(asked) if asked else {}

    def create_topics(self, topics: Collection[TopicSpec]) -> None:
        self._created.update({spec.name: spec for spec in topics})

    def create_partitions(self, topic: str, count: int) -> None:
        raise _ReadOnlyError("copies no state")

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        raise _ReadOnlyError("changes no settings of topics")

    def delete_topics(self, names: Collection[str]) -> None:
        raise _ReadOnlyError("deletes no topics")

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None: ...

    def _real_or(
        self,
        partitions: Collection[TopicPartition],
        made: int,
        ask: Callable[[Collection[TopicPartition]], dict[TopicPartition, int]],
    ) -> dict[TopicPartition, int]:
        asked = [tp for tp in partitions if tp.topic not in self._created]
        found = {tp: made for tp in partitions if tp.topic in self._created}
        return found | (ask(asked) if asked else {})
