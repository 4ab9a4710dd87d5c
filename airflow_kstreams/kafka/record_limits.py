"""Sets the client's limits of records and batches, and explains a record beyond a limit.

The client refuses a record larger than ``message.max.bytes``, not compressed, at once. The broker refuses a
batch larger than the topic's ``max.message.bytes``, as it was compressed, later. Each error names the
record's size, the limit, and whether the client or the topic sets it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaError

from airflow_kstreams.streams.errors import RecordError, record_refused
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.records.record_sizes import record_bytes, writer_limits

log = logging.getLogger(__name__)

MESSAGE_BYTES, _BATCH_BYTES = "message.max.bytes", "batch.size"
_TOO_LARGE = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE}
)


def sized(max_message_bytes: Mapping[str, int]) -> dict[str, str]:
    """Return producer settings for topics with these limits."""
    limits = writer_limits(max_message_bytes)
    return {MESSAGE_BYTES: str(limits.record_bytes), _BATCH_BYTES: str(limits.batch_bytes)}


def warn_of_small_limit(config: Mapping[str, str], max_message_bytes: Mapping[str, int]) -> None:
    """Log a warning if the user's own setting is below the topics' limits."""
    given = int(config[MESSAGE_BYTES])
    larger = sorted(topic for topic, limit in max_message_bytes.items() if limit > given)
    if larger and given < writer_limits(max_message_bytes).record_bytes:
        log.warning(
            "the client setting %s = %s refuses records that %s takes (max.message.bytes = %s): raise it, or "
            "leave it out, then it follows the topics",
            MESSAGE_BYTES,
            given,
            larger[0],
            max_message_bytes[larger[0]],
        )


class RefusedRecords:
    """Explains refused records.

    :param config: the producer's settings.
    :param max_message_bytes: limits of the topics that it writes, as far as they are known.
    """

    __slots__ = ("_client_bytes", "_of_topics")

    def __init__(self, config: Mapping[str, str], max_message_bytes: Mapping[str, int]) -> None:
        self._client_bytes = int(config.get(MESSAGE_BYTES, writer_limits(None).record_bytes))
        self._of_topics = max_message_bytes

    def by_client(
        self,
        error: KafkaError,
        topic: str,
        partition: int,
        content: tuple[bytes | None, bytes | None, Headers | None],
    ) -> RecordError:
        """Return the error of a record that the client does not take.

        :param content: key, value and headers.
        """
        why = f"{error.name()}: {error.str()}"
        if error.code() in _TOO_LARGE:
            why += f": about {record_bytes(*content):,} bytes, the client's {MESSAGE_BYTES} is "
            why += f"{self._client_bytes:,}"
        return record_refused(topic, partition, why)

    def by_broker(
        self, error: KafkaError, topic: str, partition: int, size_bytes: int, content: str
    ) -> RecordError:
        """Return the error of a record that the broker does not take, alone or for its batch.

        :param content: key, value and headers; the record is at fault only if it alone exceeds its topic's
            limit.
        """
        why, to_blame = f"{error.name()}: {error.str()}", False
        if error.code() in _TOO_LARGE:
            limit = self._of_topics.get(topic)
            to_blame = limit is not None and size_bytes > limit
            why += f": about {size_bytes:,} bytes, less what compression saves, or the batch it came in; the "
            why += "topic's max.message.bytes is " + ("not known here" if limit is None else f"{limit:,}")
        return record_refused(topic, partition, why, content=content if to_blame else "")
