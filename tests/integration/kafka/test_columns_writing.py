"""Records that a bulk writer sends by columns are those that it sends one by one, and so are its refusals."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import Any

import pytest

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import RecordError, TaskFencedError, TransactionAbortedError
from airflow_kstreams.streams.ports import CommittedOffset, Headers, TopicPartition, WriterPort
from tests.conftest import Row
from tests.support.kafka.crossing import COLUMNS, WAYS, crossing
from tests.support.kafka.grown_memory import memory_grown
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("records-cross-alike")

SECONDS = 60.0
LARGEST = 1_000_000
NOW_MS = 1_700_000_000_000
#: A codec and the number of messages are drawn for each transaction.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Consume = Callable[..., list[Row]]
Create = Callable[..., str]
Name = Callable[..., str]


@contextmanager
def writing(kafka: str, way: str, transactional_id: str, **client: Any) -> Iterator[WriterPort]:
    """A bulk writer that has claimed its id."""
    with crossing(way):
        cluster = KafkaCluster({"bootstrap.servers": kafka, **client})
        made = cluster.writer(transactional_id=transactional_id, bulk=True)
    with closing(made) as writer:
        writer.init_transactions()
        yield writer


def sends_by_columns(writer: WriterPort) -> bool:
    return "Sender" in repr(writer.produce)


def drawn(random: Random) -> tuple[Any, ...]:
    """Value, key, partition, time and headers of a message."""

    def content(largest: int) -> bytes | None:
        size = random.choice((0, 1, random.randrange(100), random.randrange(largest)))
        return None if random.random() < 0.1 else random.randbytes(size)

    headers: Headers = [
        (random.choice(("a", "b", "\u00e9")), content(20)) for _ in range(random.randrange(4))
    ]
    large = random.random() < 0.002
    return (
        random.randbytes(random.randrange(LARGEST)) if large else content(300),
        content(50),
        random.choice((-1, random.randrange(3))),
        random.choice((None, 0, 5, NOW_MS + random.randrange(1_000), int(time.time() * 1000))),
        headers if random.random() < 0.5 else None,
    )


@pytest.mark.parametrize(
    "count", [pytest.param(2_500, id="few"), pytest.param(100_000, id="many", marks=pytest.mark.prove)]
)
def test_every_way_writes_the_same_when_messages_are_drawn(
    kafka: str, application_id: str, topic_name: Name, create_topic: Create, consume_all: Consume, count: int
) -> None:
    limits = {"max_message_bytes": "4000000", "message_timestamp_before_max_ms": str(2**63 - 1)}
    rows = []
    for way in WAYS:
        topic, random = create_topic(topic_name("written"), 3, **limits), Random(count)
        for codec in CODECS:
            client = {"compression.type": codec, "message.max.bytes": "2000000"}
            for committed in (True, False, True):
                # One for each: after a slow answer of a young broker a writer begins no other transaction.
                with writing(kafka, way, f"{topic}-{codec}", **client) as writer:
                    assert sends_by_columns(writer) == (way == COLUMNS)
                    writer.begin()
                    for _ in range(count // (3 * len(CODECS))):
                        value, key, partition, time_ms, headers = drawn(random)
                        # Without a key and a partition the client draws one.
                        partition = 1 if partition < 0 and not key else partition
                        writer.produce(topic, value, key, partition, time_ms, headers)
                    (writer.commit if committed else writer.abort)()
        rows.append(consume_all(topic))
    assert len(rows[0]) > count / 2
    assert all(seen(some) == seen(rows[0]) for some in rows)


def seen(rows: list[Row]) -> list[tuple[Any, ...]]:
    """What must be the same, in order. A time of sending only has to be one; offsets depend on how many
    records of an aborted transaction came into the log.
    """
    recent_ms = int((time.time() - 10 * SECONDS) * 1000)
    return [
        (
            row.partition,
            row.key,
            row.value,
            row.headers,
            "now" if row.timestamp_ms > recent_ms else row.timestamp_ms,
        )
        for row in rows
    ]


@pytest.mark.parametrize("way", WAYS)
def test_record_that_the_broker_refuses_is_named_by_the_second_writer_at_the_latest(
    kafka: str, application_id: str, topic_name: Name, create_topic: Create, consume_all: Consume, way: str
) -> None:
    topic = create_topic(topic_name("small"), 1, max_message_bytes="2000")
    large = Random(1).randbytes(20_000)
    source = TopicPartition(create_topic(topic_name("in"), 1), 0)
    reader = KafkaCluster({"bootstrap.servers": kafka}).reader(group_id=application_id)
    errors = []
    # The limits are not known here, so the client takes the record.
    for _ in WAYS[WAYS.index(way) :]:
        with writing(kafka, way, application_id) as writer:
            writer.begin()
            writer.produce(topic, b"small", b"k", 0, NOW_MS, None)
            writer.produce(topic, large, b"k", 0, NOW_MS, None)
            with pytest.raises((TransactionAbortedError, RecordError)) as failed:
                writer.send_offsets({source: CommittedOffset(5)}, reader)
            errors.append(type(failed.value))
            assert writer.suspect
    assert errors == [TransactionAbortedError, RecordError][-len(errors) :]
    # Once records of this id are committed, they are sent by columns again.
    for by_columns in (False, way == COLUMNS):
        with writing(kafka, way, application_id) as writer:
            assert sends_by_columns(writer) == by_columns
            writer.begin()
            writer.produce(topic, b"small", b"k", 0, NOW_MS, None)
            writer.commit()
    assert [row.value for row in consume_all(topic)] == [b"small", b"small"]
    assert reader.committed([source]) == {}
    reader.close()


@pytest.mark.parametrize("way", WAYS)
def test_record_that_the_client_refuses_is_named_at_once(
    kafka: str, application_id: str, topic_name: Name, create_topic: Create, way: str
) -> None:
    topic = create_topic(topic_name("out"), 1)
    with writing(kafka, way, application_id, **{"message.max.bytes": "2000"}) as writer:
        writer.begin()
        writer.produce(topic, b"small", b"k", 0, NOW_MS, None)
        with pytest.raises(RecordError, match=r"the client.s message\.max\.bytes is 2,000"):
            writer.produce(topic, b"x" * 3_000, b"k", 0, NOW_MS, None)
        writer.abort()


@pytest.mark.parametrize("way", WAYS)
def test_every_record_is_delivered_when_the_queue_runs_full(
    kafka: str, application_id: str, topic_name: Name, create_topic: Create, consume_all: Consume, way: str
) -> None:
    topic = create_topic(topic_name("full"), 2)
    with writing(kafka, way, application_id, **{"queue.buffering.max.messages": "100"}) as writer:
        writer.begin()
        for number in range(2_000):
            writer.produce(topic, b"%d" % number, b"k", number % 2)
        writer.commit()
    rows = consume_all(topic)
    assert [row.value for row in rows if row.partition == 0] == [
        b"%d" % number for number in range(0, 2_000, 2)
    ]


@pytest.mark.parametrize("way", WAYS)
def test_writer_is_fenced_by_a_newer_one(
    kafka: str, application_id: str, topic_name: Name, create_topic: Create, consume_all: Consume, way: str
) -> None:
    topic = create_topic(topic_name("fenced"), 1)
    with writing(kafka, way, application_id) as older:
        older.begin()
        older.produce(topic, b"old", b"k", 0, NOW_MS, None)
        with writing(kafka, way, application_id) as newer:
            with pytest.raises(TaskFencedError):  # by the record, where the client has been told before
                older.produce(topic, b"old", b"k", 0, NOW_MS, None)
                older.commit()
            newer.begin()
            newer.produce(topic, b"new", b"k", 0, NOW_MS, None)
            newer.commit()
    assert [row.value for row in consume_all(topic)] == [b"new"]


@pytest.mark.parametrize("way", WAYS)
def test_writer_ends_whatever_it_holds(
    kafka: str, application_id: str, topic_name: Name, create_topic: Create, way: str
) -> None:
    topic = create_topic(topic_name("ends"), 1)
    produces = []
    for dropped in (False, True):
        with crossing(way):
            cluster = KafkaCluster({"bootstrap.servers": kafka})
            writer = cluster.writer(transactional_id=application_id, bulk=True)
        writer.init_transactions()
        writer.begin()
        for _ in range(1_000):
            writer.produce(topic, b"lost", b"k", 0, NOW_MS, None)
        if not dropped:
            produces.append(writer.produce)
            writer.close()
        del writer
        gc.collect()
    with pytest.raises(ValueError, match="closed"):
        produces[0](topic, b"late", b"k", 0, NOW_MS, None)


def test_task_names_the_record_that_the_broker_refuses(
    kafka: str, application_id: str, topic_name: Name, create_topic: Create, produce: Callable[..., None]
) -> None:
    """By whatever way: the attempt that fails without a name is made again, one by one."""
    source = create_topic(topic_name("in"), 1)
    target = create_topic(topic_name("out"), 1, max_message_bytes="2000")
    produce(source, [Row(key=b"k", value=b"v%d" % number) for number in range(4)])
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    sizes = {b"v3": 10_000}
    grown = builder.stream(source).map_values(lambda value: value * sizes.get(value, 1))
    grown.send_to(target)
    application = Application(
        application_id=application_id,
        topology=builder.build(),
        bootstrap=kafka,
        client={"message.max.bytes": "1000000", "compression.type": "none"},
    )
    slice_ = application.begin("r")
    with pytest.raises(RecordError, match="MSG_SIZE_TOO_LARGE"):
        application.tasks(slice_)


#: In each round the broker refuses a batch; the writer after it sends one by one, and commits.
_REFUSED = """
import resource, sys
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import TransactionAbortedError
bootstrap, topic, first, more = sys.argv[1:]
cluster, peaks, refused = KafkaCluster({"bootstrap.servers": bootstrap}), [], 0
for rounds in (int(first), int(more)):
    for _ in range(rounds):
        for values in ([b"v" * 1_000] * 500 + [bytes(range(256)) * 100], [b"small"]):
            writer = cluster.writer(transactional_id="refused", bulk=True)
            writer.init_transactions()
            writer.begin()
            try:
                for value in values:
                    writer.produce(topic, value, b"k", 0, 1, [("h", b"1")])
                writer.commit()
            except TransactionAbortedError:
                refused += 1
            writer.close()
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
assert refused == int(first) + int(more), refused
print(peaks[1] / peaks[0])
"""


@pytest.mark.prove
def test_memory_does_not_grow_under_1000_refused_batches(
    kafka: str, topic_name: Name, create_topic: Create
) -> None:
    topic = create_topic(topic_name("refused"), 1, max_message_bytes="2000", compression_type="uncompressed")
    assert memory_grown(_REFUSED, kafka, topic, "100", "900", timeout_seconds=1_700) < 1.1
