"""Java's producer and consumer beside this engine on one broker: where keys go, and what values arrive as."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import KStreamBuilder, Processor, ProcessorContext, Topology, serdes
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.serde.base import Serde
from tests.integration.java.peer import JavaRecord, KafkaClients, KafkaStreamsPeer
from tests.support.kafka.in_process import Application

_COUNTS = (1, 2, 3, 7, 12, 50)
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_START_MS = 1_356_998_400_000


def random_keys(count: int) -> list[bytes]:
    """Keys of every length from 0 to 70 and some much longer: random, ASCII, other text, all bits set."""
    rng = random.Random(129)
    keys = [
        b"",
        b"\xff",
        b"\xff" * 4,
        b"\xff" * 1000,
        b"\x00",
        b"\x80" * 7,
        "Zürich".encode(),
        "東京🛫".encode(),
    ]
    while len(keys) < count:
        length = rng.randrange(71) if rng.random() < 0.99 else rng.randrange(1000)
        kind = rng.randrange(4)
        if kind == 0:
            keys.append("".join(chr(rng.randrange(32, 127)) for _ in range(length)).encode())
        elif kind == 1:
            keys.append("".join(chr(rng.randrange(160, 55_000)) for _ in range(length // 3)).encode())
        elif kind == 2:
            keys.append(bytes(rng.choice((0x7F, 0x80, 0xFF)) for _ in range(length)))
        else:
            keys.append(rng.randbytes(length))
    return keys


@pytest.mark.parametrize("size", [2_000, pytest.param(10_000, marks=pytest.mark.prove)])
def test_keys_go_where_javas_producer_sends_them_when_our_writer_writes(
    kafka: str,
    java: KafkaClients,
    kafka_streams: KafkaStreamsPeer,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    consume_all: Callable[..., list[Any]],
    size: int,
) -> None:
    keys = random_keys(size)
    topics = {count: create_topic(topic_name(f"of-{count}"), count) for count in _COUNTS}
    by_their_code = kafka_streams.partitions([(key, count) for count in _COUNTS for key in keys])
    by_their_producer = java.produce(
        [JavaRecord(topic=topics[count], key=key.hex(), value=None) for count in _COUNTS for key in keys],
        linger_ms="20",
    )
    writer = KafkaCluster({"bootstrap.servers": kafka}).writer(transactional_id=None)
    try:
        for count in _COUNTS:
            for number, key in enumerate(keys):
                writer.produce(topics[count], b"%d" % number, key, -1, None, None)
        writer.flush()
    finally:
        writer.close()
    by_our_writer: list[int] = []
    for count in _COUNTS:
        ours = {int(row.value): row.partition for row in consume_all(topics[count]) if row.value is not None}
        by_our_writer += [ours[number] for number in range(len(keys))]
    by_our_code = [partition_of_key(key, count, count) for count in _COUNTS for key in keys]
    assert by_our_writer == [partition for partition, _ in by_their_producer]
    assert by_our_code == by_our_writer
    assert by_our_code == [partition for _, partition in by_their_code]


def test_null_keys_arrive_with_equal_bytes_when_either_side_writes_them(
    kafka: str,
    java: KafkaClients,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    consume_all: Callable[..., list[Any]],
) -> None:
    topic = create_topic(topic_name("no-keys"), 7)
    places = java.produce([JavaRecord(topic=topic, key=None, value=f"{n:02x}") for n in range(50)])
    assert {partition for partition, _ in places} <= set(range(7))
    writer = KafkaCluster({"bootstrap.servers": kafka}).writer(transactional_id=None)
    try:
        for number in range(50, 100):
            writer.produce(topic, bytes([number]), None, -1, None, None)
        writer.flush()
    finally:
        writer.close()
    expected = [bytes([number]) for number in range(100)]
    assert sorted(row.value for row in consume_all(topic) if row.key is None) == expected
    read = [bytes.fromhex(row.value or "") for row in java.consume(topic, ("bytes", "bytes"))]
    assert sorted(read) == expected


# == values

#: By kind: our serde, and values beside those that are drawn.
_KINDS: dict[str, tuple[Serde, Sequence[Any]]] = {
    "string": (serdes.string(), ["", "Zürich", "東京🛫", "\x00\n", "x" * 5000]),
    "int32": (serdes.int32(), [0, -1, 2**31 - 1, -(2**31)]),
    "int64": (serdes.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "double": (serdes.double(), [0.0, -0.0, 1e308, 5e-324, float("inf"), float("-inf"), 0.1]),
    "bytes": (serdes.bytes(), [b"", b"\xff" * 300, bytes(range(256))]),
    "json": (
        serdes.json(),
        [{}, [], {"a": {"b": [1, 2.5, True, None, "ü"]}}, "text", 7, {"long": 2**62, "empty": ""}],
    ),
}


def to_text(kind: str, value: Any) -> str | None:
    """What the Java program takes for a value."""
    if value is None:
        return None
    if kind == "bytes":
        return bytes(value).hex()
    if kind == "double":
        return repr(value).replace("inf", "Infinity")
    return json.dumps(value) if kind == "json" else str(value)


def from_text(kind: str, text: str | None) -> Any:
    """The value of what the Java program prints."""
    if text is None:
        return None
    parsers: dict[str, Callable[[str], Any]] = {
        "string": str,
        "int32": int,
        "int64": int,
        "double": float,
        "bytes": bytes.fromhex,
        "json": json.loads,
    }
    return parsers[kind](text)


class Collect(Processor):
    """Keeps what it gets as our tasks see it, and sends it on."""

    def __init__(self, seen: list[tuple[Any, ...]]) -> None:
        self._seen = seen

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        context = self._context
        headers = tuple((name, data) for name, data in context.headers or ())
        self._seen.append((record.key, record.value, context.timestamp_ms, headers))
        context.forward(record.key, record.value)


def copies(topics: dict[str, tuple[str, str]], seen: dict[str, list[tuple[Any, ...]]]) -> Topology:
    """A topology that decodes every kind's topic and encodes it again into another."""
    builder = KStreamBuilder()
    for kind, (source, target) in topics.items():
        serde, _ = _KINDS[kind]

        def collect(kind: str = kind) -> Processor:
            return Collect(seen[kind])

        stream = builder.stream(source, key_serde=serde, value_serde=serde)
        stream.process(collect).send_to(target, key_serde=serde, value_serde=serde)
    return builder.build()


def batches(topics: dict[str, tuple[str, str]]) -> Iterator[tuple[str, str, list[JavaRecord]]]:
    """(codec, ending, records) of every batch that Java is to write, with a value that tells each apart."""
    rng = random.Random(95)
    numbers = itertools.count(1)
    for codec, ending in itertools.product(_CODECS, ("plain", "commit", "abort")):
        records = []
        for kind, (source, _) in topics.items():
            drawn = {
                "string": "".join(chr(rng.randrange(32, 0x2FF)) for _ in range(20)),
                "int32": rng.randrange(-(2**31), 2**31),
                "int64": rng.randrange(-(2**63), 2**63),
                "double": rng.gauss(0, 1e6),
                "bytes": rng.randbytes(30),
                "json": {"n": rng.randrange(10**9), "list": [rng.random()]},
            }[kind]
            for value in (*_KINDS[kind][1], drawn, None):
                number = next(numbers)
                headers = (("n", b"%d" % number), ("raw", b"\xff\x00"), ("raw", b"")) if number % 3 else ()
                key = None if number % 5 == 0 else to_text(kind, drawn)
                records.append(
                    JavaRecord(
                        topic=source,
                        key=key,
                        value=to_text(kind, value),
                        kinds=(kind, kind),
                        timestamp_ms=_START_MS + number,
                        headers=headers,
                    )
                )
        yield codec, ending, records


def plain(record: JavaRecord) -> tuple[Any, ...]:
    """A record's key, value, timestamp and headers as our tasks should see them."""
    key_kind, value_kind = record.kinds
    key, value = from_text(key_kind, record.key), from_text(value_kind, record.value)
    return key, value, record.timestamp_ms, record.headers


def test_values_are_equal_both_ways_when_java_writes_and_reads(
    kafka: str,
    application_id: str,
    java: KafkaClients,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
) -> None:
    topics = {
        kind: (create_topic(topic_name(f"{kind}-in"), 2), create_topic(topic_name(f"{kind}-out"), 3))
        for kind in _KINDS
    }
    committed: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in _KINDS}
    for codec, ending, records in batches(topics):
        settings = {
            "compression_type": codec,
            "enable_idempotence": str(codec != "gzip").lower(),
            "acks": "all",
        }
        if ending != "plain":
            settings |= {"transactional_id": f"{application_id}-java", "enable_idempotence": "true"}
        java.produce(records, ending=ending, **settings)
        for record in records if ending != "abort" else ():
            committed[record.kinds[0]].append(plain(record))
    seen: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in _KINDS}
    application = Application(bootstrap=kafka, application_id=application_id, topology=copies(topics, seen))
    application.run("run-1")
    for kind, (_, target) in topics.items():
        expected = sorted(committed[kind], key=lambda row: row[2])
        assert sorted(seen[kind], key=lambda row: row[2]) == expected, f"{kind}: what our tasks read"
        back = [plain(record) for record in java.consume(target, (kind, kind))]
        assert sorted(back, key=lambda row: row[2]) == expected, f"{kind}: what Java reads of ours"
