"""Records that cross by columns are those that cross one by one, whatever is in the log.

Where ``airflow-kstreams-columns`` is not built, there is one way, and the tests hold all the same.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import (
    ColumnsOf,
    Isolation,
    ReaderPort,
    Record,
    TimedRecords,
    TopicPartition,
)
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.kafka.crossing import COLUMNS, ONE_BY_ONE, WAYS, crossing
from tests.support.kafka.grown_memory import memory_grown
from tests.support.topology.bytes_columns import bytes_columns

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = pytest.mark.promise("records-cross-alike")

SECONDS = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGEST = 1_000_000
_BATCHES = 4
#: All that a record says.
Seen = tuple[Any, ...]


@contextmanager
def reading(
    kafka: str, group: str, way: str, isolation: Isolation = "read_committed"
) -> Iterator[ReaderPort]:
    with crossing(way):
        reader = KafkaCluster({"bootstrap.servers": kafka}).reader(group_id=group, isolation=isolation)
    try:
        yield reader
    finally:
        reader.close()


def seen(record: Record) -> Seen:
    return (
        record.topic(),
        record.partition(),
        record.offset(),
        record.key(),
        record.value(),
        record.timestamp(),
        record.headers(),
        record.leader_epoch(),
    )


def read_all(
    reader: ReaderPort, starts: dict[TopicPartition, int], random: Random
) -> tuple[dict[TopicPartition, list[Seen]], dict[TopicPartition, int]]:
    """Read to the ends that are told, by fetches of drawn sizes."""
    reader.assign(starts)
    found: dict[TopicPartition, list[Seen]] = {tp: [] for tp in starts}
    ends: dict[TopicPartition, int] = {}
    while ends.keys() != starts.keys():
        fetched = reader.poll(max_records=random.choice((1, 7, 500, 2_000)), timeout_seconds=SECONDS)
        assert fetched.records or fetched.ends, "nothing came"
        for tp, records in fetched.records.items():
            if isinstance(records, TimedRecords):
                assert records.timestamps_ms == [record.timestamp()[1] for record in records]
                assert records.columns_of is not None
                assert records.columns_of([*records]) == bytes_columns(records)
            found[tp] += map(seen, records)
        ends |= fetched.ends
    return found, ends


def drawn(random: Random) -> dict[str, Any]:
    """Key, value, time and headers of a message."""

    def content(largest: int) -> bytes | None:
        size = random.choice((0, 1, random.randrange(100), random.randrange(largest)))
        return None if random.random() < 0.1 else random.randbytes(size)

    headers = [(random.choice(("a", "b", "\u00e9")), content(20)) for _ in range(random.randrange(4))]
    large = random.random() < 0.002
    return {
        "key": content(50),
        "value": random.randbytes(random.randrange(LARGEST)) if large else content(300),
        "timestamp": random.choice((0, random.randrange(1, 10**12))),
        "headers": headers if random.random() < 0.5 else None,
        "partition": random.randrange(3),
    }


def write(kafka: str, topics: Sequence[str], count: int, random: Random) -> None:
    """Messages with every codec, outside of transactions, in committed ones and in aborted ones."""
    for codec in CODECS:
        for kind in ("plain", "committed", "aborted"):
            config: dict[str, Any] = {
                "bootstrap.servers": kafka,
                "compression.type": codec,
                "message.max.bytes": 2 * LARGEST,
                "linger.ms": 5,
            }
            if kind != "plain":
                config["transactional.id"] = f"{topics[0]}-{codec}-{kind}"
            producer = Producer(config)
            if kind != "plain":
                producer.init_transactions(SECONDS)
            for _ in range(_BATCHES):
                if kind != "plain":
                    producer.begin_transaction()
                for _ in range(count // (_BATCHES * 3 * len(CODECS))):
                    producer.produce(random.choice(topics), **drawn(random))
                    producer.poll(0)
                producer.flush(SECONDS)
                if kind != "plain":
                    end = producer.commit_transaction if kind == "committed" else producer.abort_transaction
                    end(SECONDS)
            producer.close()


@pytest.fixture
def topics(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> dict[str, str]:
    """Topics with either kind of timestamp."""
    limits = {"max_message_bytes": "4000000"}
    return {
        kind: create_topic(topic_name("columns"), 3, message_timestamp_type=kind, **limits)
        for kind in ("CreateTime", "LogAppendTime")
    }


@pytest.mark.parametrize(
    "count", [pytest.param(3_000, id="few"), pytest.param(100_000, id="many", marks=pytest.mark.prove)]
)
def test_every_way_reads_the_same_when_messages_are_drawn(
    kafka: str, application_id: str, topics: dict[str, str], count: int
) -> None:
    random = Random(count)
    write(kafka, [*topics.values()], count, random)
    starts = {TopicPartition(topic, number): 0 for topic in topics.values() for number in range(3)}
    isolations: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
    numbers = []
    for isolation in isolations:
        results = []
        for way in WAYS:
            with reading(kafka, application_id, way, isolation) as reader:
                results.append(read_all(reader, starts, random))
        assert all(result == results[0] for result in results)
        numbers.append(sum(map(len, results[0][0].values())))
        kinds = {record[5][0] for records in results[0][0].values() for record in records}
        assert kinds == {1, 2}
    assert numbers[0] < numbers[1] == count // 60 * 60


def counted(kafka: str, topic: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % (number // partitions), b"k", number % partitions)
        producer.poll(0)
    producer.flush(SECONDS)
    producer.close()


def batched(reader: ReaderPort, tp: TopicPartition, stop: int) -> tuple[list[Any], list[Any], int]:
    """Return the batches that a task's node gets of a partition, the results, and the number of calls that
    made columns of records.
    """
    batches: list[Any] = []
    sent: list[Any] = []
    calls = 0

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        batches.append((batch.schema, batch.to_pylist()))
        return batch.slice(1)

    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.string())
    built = builder.stream(tp.topic).map_batches(look, batch_size=700, changes_key=False)
    built.send_to("out", value_serde=serdes.string())
    task = StreamTask(
        builder.build(),
        task_id=TaskId(subtopology=0, group=0),
        bounds={tp: (0, stop)},
        produce=lambda *result: sent.append(result),
        settings=ApplicationSettings.parse("app", {}),
        progress=TaskProgress(),
    )
    task.restored()
    task.open()
    reader.assign({tp: 0})
    while not task.execution.complete:
        fetched = reader.poll(max_records=500, timeout_seconds=SECONDS)
        for records in fetched.records.values():
            if isinstance(records, TimedRecords) and records.columns_of is not None:
                columns_of = records.columns_of

                def counting(asked: Sequence[Record], columns_of: ColumnsOf = columns_of) -> Any:
                    nonlocal calls
                    calls += 1
                    return columns_of(asked)

                records.columns_of = counting
            task.add(tp, records)
        if tp in fetched.ends:
            task.group.reached(tp, fetched.ends[tp])
        while task.process(500):
            """All that is there."""
    task.flush()
    return batches, sent, calls


def test_batches_are_the_same_when_they_are_made_of_fetches(
    kafka: str, application_id: str, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> None:
    topic, count = create_topic(topic_name("batches"), 1), 3_000
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, "enable.idempotence": True})
    for number in range(count):
        key = None if number % 7 == 0 else b"\xff%d" % (number % 50)
        value = None if number % 11 == 0 else "ä" * (number % 5)
        producer.produce(topic, value, key, 0, timestamp=1_700_000_000_000 + number)
        producer.poll(0)
    producer.flush(SECONDS)
    producer.close()
    results = {}
    for way in WAYS:
        with reading(kafka, application_id, way) as reader:
            *results[way], calls = batched(reader, TopicPartition(topic, 0), count)
        assert (calls > 0) == (way == COLUMNS)
    assert all(result == results[ONE_BY_ONE] for result in results.values())
    assert len(results[ONE_BY_ONE][1]) == count - 5  # a row of each batch vanishes


@pytest.mark.parametrize("way", WAYS)
def test_offsets_follow_each_other_when_partitions_are_paused_resumed_and_assigned_again(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    way: str,
) -> None:
    topic, random, each = create_topic(topic_name("again"), 4), Random(7), 1_000
    counted(kafka, topic, 4 * each, 4)
    partitions = [TopicPartition(topic, number) for number in range(4)]
    with reading(kafka, application_id, way) as reader:
        for _ in range(12):
            chosen = random.sample(partitions, random.randrange(1, 5))
            positions = {tp: random.randrange(each) for tp in chosen}
            reader.assign(positions)
            paused: set[TopicPartition] = set()
            stops_early = random.random() < 0.3
            while any(position < each for position in positions.values()):
                fetched = reader.poll(max_records=200, timeout_seconds=0.2 if paused else SECONDS)
                assert paused or fetched.records or fetched.ends, "nothing came"
                for tp, records in fetched.records.items():
                    assert tp not in paused
                    offsets = [record.offset() for record in records]
                    assert offsets == [*range(positions[tp], positions[tp] + len(records))]
                    assert [record.value() for record in records] == [b"%d" % offset for offset in offsets]
                    positions[tp] += len(records)
                if stops_early and fetched.records:
                    break
                if paused:
                    reader.resume(paused)
                    paused = set()
                elif random.random() < 0.3:
                    paused = {random.choice(chosen)}
                    reader.pause(paused)
        reader.assign({})
        assert reader.poll(max_records=10, timeout_seconds=0.05) == ({}, {})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", ["new", "assigned", "paused", "half read", "assigned again", "dropped"])
def test_reader_ends_at_once_whatever_it_holds(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    way: str,
    state: str,
) -> None:
    topic = create_topic(topic_name("ends"), 1)
    counted(kafka, topic, 5_000, 1)
    tp = TopicPartition(topic, 0)
    with crossing(way):
        reader = KafkaCluster({"bootstrap.servers": kafka}).reader(group_id=application_id)
    if state != "new":
        reader.assign({tp: 0})
    if state in ("half read", "assigned again"):
        assert reader.poll(max_records=10, timeout_seconds=SECONDS).records
    if state == "assigned again":
        reader.assign({tp: 4_000})
    if state == "paused":
        reader.pause([tp])
    if state == "dropped":
        del reader
        gc.collect()
        return
    reader.close()
    reader.close()
    with pytest.raises(KafkaClientError):
        reader.poll(max_records=1, timeout_seconds=0)


class PastTheQueue:
    """A queue to which nothing is forwarded, so that the client's own gets the records."""

    def forward(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def take(self, most: int, timeout_seconds: float) -> tuple[dict[Any, Any], list[Any]]:
        time.sleep(timeout_seconds)
        return {}, []

    def close(self) -> None:
        pass


@pytest.mark.remedy("reader.BoundedReader._served")
def test_record_that_does_not_come_in_a_batch_is_refused(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = create_topic(topic_name("past"), 1)
    counted(kafka, topic, 5, 1)
    tp = TopicPartition(topic, 0)
    with monkeypatch.context() as patch:
        patch.setattr("airflow_kstreams.kafka.reader.columns_of", lambda *_: PastTheQueue())
        with reading(kafka, application_id, WAYS[0]) as reader:
            reader.assign({tp: 0})
            with pytest.raises(KafkaClientError, match=f"{topic}-0@0 at .* did not come where") as refused:
                while True:
                    assert not reader.poll(max_records=10, timeout_seconds=1).records
    assert refused.value.is_retriable
    with reading(kafka, application_id, ONE_BY_ONE) as reader:
        found, _ = read_all(reader, {tp: 0}, Random(1))
    assert [record[2] for record in found[tp]] == [*range(5)]


def test_memory_is_given_back_when_records_were_read(
    kafka: str, application_id: str, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> None:
    topic = create_topic(topic_name("kept"), 1)
    counted(kafka, topic, 20_000, 1)
    assert memory_grown(_READ, kafka, topic, "20000", "3", "12", timeout_seconds=900) < 1.1


@pytest.mark.prove
def test_memory_does_not_grow_over_16_million_records(
    kafka: str, application_id: str, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> None:
    topic = create_topic(topic_name("kept"), 1)
    counted(kafka, topic, 1_000_000, 1)
    assert memory_grown(_READ, kafka, topic, "1000000", "1", "15", timeout_seconds=900) < 1.1


_READ = """
import resource, sys
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.ports import TopicPartition
bootstrap, topic, records, first, more = sys.argv[1:]
tp, peaks = TopicPartition(topic, 0), []
reader = KafkaCluster({"bootstrap.servers": bootstrap}).reader(group_id="kept")
for rounds in (int(first), int(more)):
    for _ in range(rounds):
        reader.assign({tp: 0})
        left = int(records)
        while left:
            for some in reader.poll(max_records=2_000, timeout_seconds=60).records.values():
                left -= len(some)
                for record in some:
                    record.key(), record.value(), record.headers(), record.timestamp()
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
reader.close()
print(peaks[1] / peaks[0])
"""


#: In each round a reader takes a batch, in the middle of which Python has no memory for one object.
_FAIL = """
import resource, sys
from random import Random
import _testcapi
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
bootstrap, topic, records, first, more = sys.argv[1:]
tp, peaks, random, failed = TopicPartition(topic, 0), [], Random(1), 0
cluster = KafkaCluster({"bootstrap.servers": bootstrap})
for rounds in (int(first), int(more)):
    for _ in range(rounds):
        reader = cluster.reader(group_id="failed")
        reader.assign({tp: 0})
        allocation = random.randrange(200, 2 * int(records))
        _testcapi.set_nomemory(allocation, allocation + 1)
        try:
            while True:
                reader.poll(max_records=int(records), timeout_seconds=60)
        except (MemoryError, KafkaClientError) as error:
            failed += "MemoryError" in repr(error)
        finally:
            _testcapi.remove_mem_hooks()
        reader.close()
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
assert failed == int(first) + int(more), failed
print(peaks[1] / peaks[0])
"""


@pytest.mark.prove
def test_memory_does_not_grow_under_1000_failed_batches(
    kafka: str, application_id: str, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> None:
    topic = create_topic(topic_name("failed"), 1)
    counted(kafka, topic, 5_000, 1)
    assert memory_grown(_FAIL, kafka, topic, "2000", "100", "900", timeout_seconds=900) < 1.1


def test_library_is_there_where_a_compiler_is() -> None:
    """``dev/setup`` builds it; without it, nothing here would test it."""
    assert WAYS[0] == COLUMNS or not any(
        Path(folder, "cc").exists() for folder in ("/usr/bin", "/usr/local/bin")
    )
