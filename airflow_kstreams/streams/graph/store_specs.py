"""Defines the stores that a topology asks for, one instance per task, with the settings that changelogs may
have, and the tables whose whole topic every task sees. Nothing runs here.

A changelog is a table of the newest entry per key. It is compacted and nothing else: what a user wants to
expire is deleted by the store, with a tombstone, so that the store and its changelog agree. Its records carry
the entries' own timestamps, which may be of any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Protocol, get_args

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.hints.function_checks import CallSite, call_site, check_choice
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes
from airflow_kstreams.streams.settings import nearest
from airflow_kstreams.streams.type_variables import K, V

#: The place in which a store keeps its entries.
Storage = Literal["memory", "rocksdb"]


@answers_java_names
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec(Generic[K, V]):
    """A state store to make, one instance per task.

    :param name: name of the store, unique in the topology; its changelog is called
        ``<application id>-<name>-changelog``.
    :param key_serde: serde of keys.
    :param value_serde: serde of values.
    :param logged: True for a store with a changelog; without one its content does not survive the run.
    :param cached: True if a table operator emits once for each changed key and commit point, False if it
        emits with every record.
    :param storage: place of the entries: ``memory``, or ``rocksdb`` for more entries than memory holds (needs
        the extra ``rocksdb``).
    :param changelog_configs: settings of the changelog topic, by Kafka's names; they win over the engine's.
    :raises TopologyError: a setting is unknown to Kafka, or would break the changelog, e.g.
        ``cleanup.policy=delete``; a serde is no serde; there is no such storage.

    >>> class Basket(Processor):
    ...     def init(self, context):
    ...         self.context, self.items = context, context.state_store("items")
    ...
    ...     def process(self, record):
    ...         if record.value == "checkout":
    ...             self.context.forward(record.key, list(self.items.range("a", "m")))
    ...             for item, _ in self.items.all():
    ...                 self.items.delete(item)
    ...         elif self.items.put_if_absent(record.value, 1) is not None:
    ...             self.items.put(record.value, self.items.get(record.value) + 1)
    >>> items = StoreSpec(name="items", key_serde=serdes.string(), value_serde=serdes.int64())
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    >>> sold = builder.stream("clicks").process(Basket, items)
    >>> sold.send_to("sold", value_serde=serdes.json())
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     for click in ("apple", "pear", "apple", "checkout"):
    ...         driver.pipe_input("clicks", key="ann", value=click, timestamp_ms=0)
    ...     (
    ...         [record.value for record in driver.read_output("sold")],
    ...         driver.store("items").approximate_count(),
    ...     )
    ([[['apple', 2]]], 0)
    """

    name: str
    key_serde: Serde[K]
    value_serde: Serde[V]
    logged: bool = True
    cached: bool = True
    storage: Storage = "memory"
    changelog_configs: Mapping[str, str] = field(default_factory=dict)

    #: Kind of store; part of the topology hash.
    type: ClassVar[str] = "key_value"

    def __class_getitem__(cls, types: Any) -> Any:
        # As Serde's: StoreSpec[str, int](name=...) makes a StoreSpec.
        return cls

    def __post_init__(self) -> None:
        check_serdes(type(self).__name__, key_serde=self.key_serde, value_serde=self.value_serde)
        check_choice(f"{type(self).__name__} at {call_site()}", get_args(Storage), storage=self.storage)
        if self.changelog_configs:
            check_changelog_configs(
                self.name, self.changelog_configs, logged=self.logged, where=str(call_site())
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStoreSpec(StoreSpec[K, V]):
    """A store of one value per key and window start.

    :param retention_ms: milliseconds of stream time for which an entry is kept after its window's start.
    """

    retention_ms: int

    #: Kind of store.
    type: ClassVar[str] = "window"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStoreSpec(StoreSpec[K, V]):
    """A store of one value per key and session.

    :param retention_ms: milliseconds of stream time for which an entry is kept after its session's end.
    """

    retention_ms: int

    #: Kind of store.
    type: ClassVar[str] = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedStoreSpec(StoreSpec[K, V]):
    """A store of the versions of each key's value, each valid from its own time to that of the next one.

    The rule of such a store stands in :mod:`airflow_kstreams.streams.state.stores.versioned_store`. A
    table that is kept in one emits with every record.

    :param history_ms: milliseconds before the newest record's time back to which the store can be asked. It
        takes no record that is older than that.
    :raises TopologyError: the history is negative, or the store is cached.

    >>> rates = VersionedStoreSpec(
    ...     name="rates", key_serde=serdes.string(), value_serde=serdes.string(), history_ms=86_400_000
    ... )
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    >>> table = builder.table("rates", store=rates)
    >>> builder.stream("orders").join(table, lambda order, rate: f"{order} at {rate}").send_to("priced")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("rates", key="EUR", value="1.10", timestamp_ms=1_000)
    ...     driver.pipe_input("rates", key="EUR", value="1.20", timestamp_ms=2_000)
    ...     driver.pipe_input("orders", key="EUR", value="late order", timestamp_ms=1_500)
    ...     driver.read_output("priced")[0].value
    'late order at 1.10'
    """

    history_ms: int
    cached: bool = False

    #: Kind of store.
    type: ClassVar[str] = "versioned"

    def __post_init__(self) -> None:
        StoreSpec.__post_init__(self)
        if isinstance(self.history_ms, bool) or not isinstance(self.history_ms, int) or self.history_ms < 0:
            raise TopologyError(
                f"VersionedStoreSpec {self.name!r} at {call_site()} has history_ms={self.history_ms!r}",
                fix="give the milliseconds that late records may lie back, 0 or more",
            )
        if self.cached:
            raise TopologyError(
                f"VersionedStoreSpec {self.name!r} at {call_site()} has cached=True: each version counts, so "
                "none is held back",
                fix="leave cached out",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryStoreSpec(StoreSpec):
    """A store of the records that wait for a later call of an asynchronous node. Its changelog is the node's
    retry topic, ``<application id>-<name>``.

    :param input_keys: serde of the keys that the node gets.
    :param input_values: serde of the values that the node gets.
    :param keys_changed: True if the node may get other keys than those of the consumed records.
    """

    input_keys: Serde
    input_values: Serde
    keys_changed: bool = True

    #: Kind of store.
    type: ClassVar[str] = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStoreSpec(StoreSpec):
    """A store of the elements that one side of a windowed join keeps for the other: several per key, each
    with its time.

    :param retention_ms: milliseconds of stream time for which an element is kept after its own time.
    """

    retention_ms: int

    #: Kind of store.
    type: ClassVar[str] = "join"


#: Settings of ``org.apache.kafka.common.config.TopicConfig``, and the two of replication quotas.
TOPIC_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.downconversion.enable",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)

#: Beginnings of the names of settings that only brokers of one maker know.
_MAKERS = ("automq.", "confluent.", "redpanda.", "warpstream.")


def is_topic_setting(name: str) -> bool:
    """Return True if a topic may have a setting of this name.

    >>> is_topic_setting("segment.ms"), is_topic_setting("segment.msec")
    (True, False)
    """
    return name in TOPIC_SETTINGS or name.startswith(_MAKERS)


#: Setting -> (the only value that it may have, the reason).
_OWNED: Mapping[str, tuple[str, str]] = {
    "cleanup.policy": ("compact", "deleting by time or size would take entries from the store"),
    "retention.ms": ("-1", "entries must not expire while the store holds them"),
    "retention.bytes": ("-1", "entries must not expire while the store holds them"),
    "message.timestamp.type": ("CreateTime", "records carry the timestamps of the store's entries"),
    "message.timestamp.before.max.ms": (str(2**63 - 1), "entries may be of any time"),
    "message.timestamp.after.max.ms": (str(2**63 - 1), "entries may be of any time"),
}


def check_changelog_configs(store: str, configs: Mapping[str, str], *, logged: bool, where: str) -> None:
    """Refuse settings that no topic has, and those that would break a store's changelog.

    :param store: the store's name.
    :param configs: setting -> value.
    :param logged: True if the store has a changelog.
    :param where: the user's file and line.
    :raises TopologyError: there is no such setting, it may not have this value, or there is no changelog.
    """
    if configs and not logged:
        raise TopologyError(
            f"{where}: store {store!r} has changelog_configs, but logged=False: it has no changelog",
            fix="leave changelog_configs out, or log the store",
        )
    for name, value in configs.items():
        if not is_topic_setting(name):
            raise TopologyError(
                f"{where}: store {store!r} sets {name!r} in changelog_configs, which is no setting of a "
                "topic",
                fix=nearest(name, sorted(TOPIC_SETTINGS)),
            )
        allowed, reason = _OWNED.get(name, (str(value), ""))
        if str(value) != allowed:
            raise TopologyError(
                f"{where}: store {store!r} sets {name}={value} for its changelog, which must be {allowed}: "
                f"{reason}",
                fix=f"leave {name} out of changelog_configs",
            )


#: The remedy where a processor asks for a global table as for a store.
NO_GLOBAL_TABLE = "a global table is no store: join the stream with it ahead of the processor"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTableDef:
    """A topic that every task sees whole, as a table.

    :param topic: the topic's name in Kafka.
    :param key_serde: serde of keys.
    :param value_serde: serde of values.
    :param storage: place in which a process keeps the entries.
    :param name: the table's name given by the user; empty for none.
    :param site: the user's file and line.
    """

    topic: str
    key_serde: Serde
    value_serde: Serde
    storage: Storage = "memory"
    name: str = ""
    site: CallSite | None = None

    def __post_init__(self) -> None:
        check_choice(f"global_table({self.topic!r}) at {self.site}", get_args(Storage), storage=self.storage)

    @property
    def node_names(self) -> tuple[str, str]:
        """The names of its source and its table in a description of the topology, as in Kafka Streams."""
        return f"{self.name or self.topic}-source", self.name or f"{self.topic}-table"


class GlobalEntries(Protocol):
    """The entries of a global table, as bytes; nothing changes them while a task runs."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if the table does not hold the key."""
        ...
