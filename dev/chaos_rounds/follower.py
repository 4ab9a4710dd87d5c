"""The follower: a read_committed reader that follows the results all along and writes down what it sees.

A program of its own; it ends when its standard input does. Each line of the transcript is one record as JSON:
topic, partition, offset, key, value. What is in there was visible to a reader, so it must never be gone.
"""

from __future__ import annotations

import select
import sys
import uuid
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from dev.chaos_rounds.evidence import Seen
from dev.chaos_rounds.topics import PARTITIONS, RESULTS
from dev.chaos_rounds.verifier import row_of

_POLL_SECONDS = 0.1
_CLIENT_SECONDS = 30.0


def main(bootstrap: str, transcript: str) -> None:
    """Follow until standard input ends.

    :raises KafkaException: an error that waiting cannot mend, such as an offset that does not exist any more.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"follower-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 500,
        }
    )
    consumer.list_topics(timeout=_CLIENT_SECONDS)
    consumer.assign([TopicPartition(topic, n, 0) for topic in RESULTS for n in range(PARTITIONS[topic])])
    with Path(transcript).open("wb") as file:
        while not select.select([sys.stdin], [], [], 0)[0]:
            lines = []
            for message in consumer.consume(5_000, timeout=_POLL_SECONDS):
                error = message.error()
                if error is None:
                    row = row_of(message)
                    seen = Seen(message.topic() or "", row.partition, row.offset, row.key, row.value)
                    lines.append(msgspec.json.encode(seen) + b"\n")
                elif error.fatal() or error.name() == "_AUTO_OFFSET_RESET":
                    raise KafkaException(error)
            file.writelines(lines)
            file.flush()
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
