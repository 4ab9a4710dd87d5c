"""Makes clients of one Kafka cluster. A cluster holds configuration only, so it can be pickled into Spark
tasks.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.kafka.admin import ClusterAdmin
from airflow_kstreams.kafka.child_reader import ChildReader, look_memory_bytes
from airflow_kstreams.kafka.configuration.client_settings import check_client_settings, without_registry
from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings
from airflow_kstreams.kafka.configuration.secrets import redact
from airflow_kstreams.kafka.connection import RequestTime
from airflow_kstreams.kafka.delivery import sized, warn_of_small_limit
from airflow_kstreams.kafka.reader import BoundedReader
from airflow_kstreams.kafka.record_columns import border
from airflow_kstreams.kafka.writer import IdempotentWriter, TransactionalWriter
from airflow_kstreams.streams.ports import AdminPort, Isolation, ReaderPort, TopicLimits, WriterPort
from airflow_kstreams.streams.settings import SETTINGS, ApplicationSettings


class KafkaCluster:
    """The port ``ClusterPort`` on the real client. Making it touches no network and starts no thread.

    :param client_config: client settings by librdkafka's names; those of the schema registry are only
        checked.
    :param settings: the application's settings; only ``client.timeout.ms`` is used here.
    :param allowed: allowed settings that run code; those that the environment allows unless given.
    :param look_ms: bound of all requests of its readers and admin clients together, from now on, for a
        cluster that is only read; None for no bound.
    :param connect_ms: bound of the first contact of its readers and admin clients, in milliseconds; that of
        one request unless given.
    :param in_child: whether its readers fetch in a process of their own, whose memory is bounded: for a look
        at topics that others may write, in a process that has more to do.
    :raises ConfigError: a client setting is missing, unknown, owned by the engine or malformed.
    """

    __slots__ = ("_client_config", "_memory_bytes", "_time")

    def __init__(
        self,
        client_config: Mapping[str, object],
        *,
        settings: ApplicationSettings | None = None,
        allowed: AllowedSettings | None = None,
        look_ms: int | None = None,
        connect_ms: int | None = None,
        in_child: bool = False,
    ) -> None:
        self._client_config = without_registry(check_client_settings(client_config, allowed=allowed))
        self._time = RequestTime(
            self.bootstrap,
            request_ms=settings.client_timeout_ms if settings else SETTINGS["client.timeout.ms"].default,
            look_ms=look_ms,
            connect_ms=connect_ms,
        )
        self._memory_bytes = look_memory_bytes() if in_child else None

    def __repr__(self) -> str:
        return f"KafkaCluster({redact(self._client_config)!r})"

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers."""
        return self._client_config["bootstrap.servers"]

    @property
    def crossing(self) -> str:
        """How records cross between Python and the client: ``by columns``, or one by one, and why."""
        return str(border())

    def reader(
        self,
        *,
        group_id: str,
        isolation: Isolation = "read_committed",
        follows: bool = False,
        small: bool = False,
    ) -> ReaderPort:
        """Make a reader. One in a process of its own only reads to an end, and never follows.

        :param small: whether it reads little. Its records then cross one by one, without the process that is
            forked to look at the first client's handle: that takes longer than the records of a ledger.
        """
        if self._memory_bytes is not None:
            return ChildReader(
                self._client_config,
                group_id=group_id,
                isolation=isolation,
                request_time=self._time,
                memory_bytes=self._memory_bytes,
            )
        return BoundedReader(
            self._client_config,
            group_id=group_id,
            isolation=isolation,
            request_time=self._time,
            follows=follows,
            small=small,
        )

    def writer(
        self,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int = 60_000,
        limits: Mapping[str, TopicLimits] | None = None,
        bulk: bool = False,
    ) -> WriterPort:
        """Make a writer: transactional with a transactional id, idempotent without one.

        :param limits: limits of the topics that the writer writes; the user's own client settings come first.
        :param bulk: whether a transactional writer may send records without delivery reports.
        """
        limits = limits or {}
        config = {**sized(limits), **self._client_config}
        warn_of_small_limit(config, limits)
        if transactional_id is None:
            return IdempotentWriter(config, timeout_ms=self._time.request_ms, limits=limits)
        return TransactionalWriter(
            config,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            timeout_ms=self._time.request_ms,
            limits=limits,
            bulk=bulk,
        )

    def admin(self) -> AdminPort:
        """Make an admin client."""
        return ClusterAdmin(self._client_config, request_time=self._time)
