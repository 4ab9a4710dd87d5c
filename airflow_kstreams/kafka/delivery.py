"""Makes the produce call of the hot path, and remembers records that could not be delivered.

Invariant: a record that was handed to ``produce`` is delivered by the end of a successful ``flush`` or
``commit``, or the first failure is raised there with its topic and partition.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as ClientMessage

from airflow_kstreams.kafka.client_errors import attempt, guarded, kafka_error_of, unreachable
from airflow_kstreams.kafka.record_limits import RefusedRecords
from airflow_kstreams.streams.errors import KStreamsError, RecordError
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.records.record_sizes import record_bytes
from airflow_kstreams.streams.records.refused_results import content_id

#: Delivery errors that say something about the record, not about the cluster.
_RECORD_REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_ROOM_STEP_SECONDS = 0.05


class DeliveryFailures:
    """Remembers the first record that could not be delivered since the last :meth:`clear`.

    :param refused: explains records that were refused for themselves, e.g. for their size.
    """

    __slots__ = ("_refused", "content", "error", "partition", "size_bytes", "topic")

    def __init__(self, refused: RefusedRecords) -> None:
        self._refused = refused
        self.size_bytes = 0
        self.content = ""
        self.error: KafkaError | None = None
        self.topic = ""
        self.partition = -1

    def on_delivery(self, error: KafkaError | None, message: ClientMessage) -> None:
        """Take a delivery report; the client calls this for failures only."""
        if error is None or self.error is not None:
            return
        self.error = error
        self.topic = message.topic() or ""
        partition = message.partition()
        self.partition = -1 if partition is None else partition
        if error.code() in _RECORD_REFUSED:
            key, value = _bytes_or_none(message.key()), _bytes_or_none(message.value())
            self.size_bytes = record_bytes(key, value, None)
            self.content = content_id(self.topic, key, value)

    def clear(self) -> None:
        """Forget the failure, as a new transaction begins."""
        self.error = None

    def refused_record(self) -> RecordError | None:
        """Return the failure if it is about the record itself, so that a retry cannot help."""
        if self.error is None or self.error.code() not in _RECORD_REFUSED:
            return None
        return self._refused.by_broker(self.error, self.topic, self.partition, self.size_bytes, self.content)


def make_produce(
    producer: Producer,
    *,
    bootstrap: str,
    timeout_seconds: float,
    explain: Callable[[Any, str], KStreamsError],
    refused: RefusedRecords,
) -> tuple[Callable[..., None], Callable[[], None]]:
    """Return the produce call that the engine's hot path binds, and a call that closes it.

    Delivery reports are served where the client's queue runs full, and in ``flush``: not per record.

    A task's closures hold the produce call, and each other, until Python's garbage collector runs. The client
    must not live as long: its threads would go on, and unread statistics would fill the memory. So the second
    call takes the client away from the first.

    :param explain: turns an error of the client into one of this package.
    :param refused: explains records that the client does not take.
    """
    poll: Callable[..., Any] = producer.poll
    send: Callable[..., Any] = producer.produce

    def produce(
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        # The client takes 0 for the time of sending and has no number for the epoch itself: 1 comes closest.
        timestamp_ms = 0 if timestamp_ms is None else timestamp_ms or 1
        try:
            send(topic, value, key, partition, None, None, timestamp_ms, headers)
        except (KeyboardInterrupt, SystemExit):
            raise
        except:  # noqa: E722 - see kafka/client_errors.py
            error: Any = sys.exc_info()[1]
        else:
            return
        if send is _refuse_closed:
            raise error
        deadline = time.monotonic() + timeout_seconds
        while isinstance(error, BufferError):
            if time.monotonic() > deadline:
                raise unreachable(
                    bootstrap, f"the queue stayed full for {timeout_seconds:g} s", code="_QUEUE_FULL"
                )
            guarded("sending", bootstrap, poll, _ROOM_STEP_SECONDS)
            error = attempt(send, topic, value, key, partition, None, None, timestamp_ms, headers)
        if error is None:
            return
        kafka_error = kafka_error_of(error)
        if kafka_error is not None and kafka_error.code() in _RECORD_REFUSED:
            raise refused.by_client(kafka_error, topic, partition, (key, value, headers))
        raise explain(error, f"sending to {topic}")

    def release() -> None:
        nonlocal poll, send
        poll = send = _refuse_closed

    return produce, release


def _refuse_closed(*_: object) -> Any:
    raise ValueError("this writer is closed")


def _bytes_or_none(part: object) -> bytes | None:
    return part if isinstance(part, bytes) else None
