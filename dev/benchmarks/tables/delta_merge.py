"""What a user of deltalake writes to bring rows of a topic into a table, a row for each key: its own merge.

The rows are in memory as an Arrow table, the last one of each key, before the time of the merge begins.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from deltalake import DeltaTable

from dev.benchmarks.suite_topologies import Event

_CLIENT_SECONDS = 30.0
_SCHEMA = pa.schema([("user", pa.string()), ("id", pa.int64()), ("cents", pa.int64())])


class Merges:
    """Merges what is new in a topic into tables.

    :ivar _read: the offset up to which each partition was read, by the table.
    """

    def __init__(self) -> None:
        self._read: dict[str, dict[int, int]] = {}

    def merge(self, request: Mapping[str, Any]) -> Mapping[str, float]:
        """Merge the newest row of each user.

        :param request: as hosts get it; the table is the output.
        :return: ``seconds`` of the merge alone.
        """
        location = request["output"]
        if not (Path(location) / "_delta_log").exists():
            DeltaTable.create(location, schema=_SCHEMA)
        offsets = self._read.setdefault(location, {})
        rows = rows_of(new_values(request["bootstrap"], request["inputs"]["events"], offsets))
        started = time.monotonic()
        found = (
            DeltaTable(location)
            .merge(rows, "target.user = source.user", source_alias="source", target_alias="target")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
        return {"seconds": time.monotonic() - started, "rows": found["num_source_rows"]}


def rows_of(values: list[bytes]) -> pa.Table:
    """Return the row of each user's last event."""
    decode = msgspec.json.Decoder(Event).decode
    last = {event.user: event for event in map(decode, values)}
    columns = [
        pa.array(last.keys(), pa.string()),
        pa.array((event.id for event in last.values()), pa.int64()),
        pa.array((event.amount * 100 for event in last.values()), pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def new_values(bootstrap: str, topic: str, offsets: dict[int, int]) -> list[bytes]:
    """Read a topic from where it was read before to its end.

    :param offsets: of each partition; they are moved on.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-merge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    values: list[bytes] = []
    try:
        left = set(consumer.list_topics(topic, timeout=_CLIENT_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, offsets.get(each, 0)) for each in left])
        while left:
            for message in consumer.consume(10_000, timeout=0.2):
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    values.append(message.value() or b"")
                    offsets[partition] = (message.offset() or 0) + 1
                elif error.name() == "_PARTITION_EOF":
                    left.discard(partition)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return values
