"""The operator of Airflow's Kafka provider that reads a topic to its end."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, TopicPartition

from dev.bounded_reads.once import Once
from tests.conformance.playing import Reading
from tests.conformance.scene import Pair, Scene

#: The operator ends when a poll of this length brings nothing; its own default is 60.
POLL_TIMEOUT_SECONDS = 10
#: A read that still gets records by then is stopped by an exception from the function that gets them.
BOUND_SECONDS = 60
#: Settings of the connection, beside the broker and the group.
CONNECTION = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "isolation.level": "read_committed",
}
_SECONDS = 30.0
_environment = threading.Lock()


class _TooLongError(Exception):
    """The read was still getting records at its bound."""


@dataclass(kw_only=True)
class ConsumeFromTopic:
    """``ConsumeFromTopicOperator`` in a group of its own, ``commit_cadence="end_of_operator"``."""

    scene: Scene

    def __post_init__(self) -> None:
        self._connection = self.scene.topic.replace("-", "_")
        self._group = f"{self.scene.topic}-airflow"
        extra = {"bootstrap.servers": self.scene.bootstrap, "group.id": self._group, **CONNECTION}
        with _environment:
            os.environ[f"AIRFLOW_CONN_{self._connection.upper()}"] = json.dumps(
                {"conn_type": "kafka", "extra": extra}
            )

    def read(self, during: Callable[[], None]) -> Reading:
        """Execute the operator."""
        from airflow.providers.apache.kafka.operators.consume import ConsumeFromTopicOperator

        once, records = Once(during), list[Pair]()
        deadline = time.monotonic() + BOUND_SECONDS

        def take(messages: list[Message]) -> None:
            for message in messages:
                error = message.error()
                if error is not None:
                    raise RuntimeError(error.str())
                records.append((message.key(), message.value()))
            once()
            if time.monotonic() > deadline:
                raise _TooLongError

        operator = ConsumeFromTopicOperator(
            task_id="read",
            kafka_config_id=self._connection,
            topics=[self.scene.topic],
            apply_function_batch=take,
            commit_cadence="end_of_operator",
            poll_timeout=POLL_TIMEOUT_SECONDS,
        )
        try:
            operator.execute({})
        except _TooLongError:
            return Reading(records=records, hung_seconds=BOUND_SECONDS)
        except Exception as error:
            once()
            return Reading(records=records, error=str(error))
        once()
        return Reading(records=records, committed=self._committed())

    def _committed(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.scene.bootstrap, "group.id": self._group})
        try:
            asked = [TopicPartition(self.scene.topic, number) for number in self.scene.stable_ends()]
            return {tp.partition: max(tp.offset, 0) for tp in consumer.committed(asked, timeout=_SECONDS)}
        finally:
            consumer.close()
