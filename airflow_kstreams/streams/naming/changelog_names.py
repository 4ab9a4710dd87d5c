"""The names of a topic's settings: Kafka 4.2's ``TopicConfig``, and what brokers of other makers add.

A misspelt one would be refused by the broker, in the first run. A name that a newer Kafka has is added here.
"""

from __future__ import annotations

#: Of ``org.apache.kafka.common.config.TopicConfig`` and the two of replication quotas.
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

#: Start the names of settings that only brokers of one maker know.
_MAKERS = ("automq.", "confluent.", "redpanda.", "warpstream.")


def is_topic_setting(name: str) -> bool:
    """Say whether a topic may have a setting of this name.

    >>> is_topic_setting("segment.ms"), is_topic_setting("segment.msec")
    (True, False)
    """
    return name in TOPIC_SETTINGS or name.startswith(_MAKERS)
