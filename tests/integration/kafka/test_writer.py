"""The writers on the real broker: what becomes visible, who is fenced, which errors say what."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError, RecordError, TaskFencedError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition, WriterPort

Consume = Callable[..., list[Any]]
MakeWriter = Callable[..., WriterPort]


@pytest.fixture
def topic(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("write"), 3)


@pytest.fixture
def cluster(kafka: str) -> KafkaCluster:
    return KafkaCluster({"bootstrap.servers": kafka})


@pytest.fixture
def make_writer(cluster: KafkaCluster, application_id: str) -> Iterator[MakeWriter]:
    made: list[WriterPort] = []

    def make(transactional_id: str | None = f"{application_id}-0_0", **extra: Any) -> WriterPort:
        writer = cluster.writer(transactional_id=transactional_id, **extra)
        made.append(writer)
        writer.init_transactions()
        return writer

    yield make
    for writer in made:
        writer.close()


def values(rows: list[Any]) -> list[bytes]:
    return [row.value for row in rows]


def test_records_offsets_and_metadata_appear_together_when_a_transaction_commits(
    cluster: KafkaCluster, topic: str, application_id: str, make_writer: MakeWriter, consume_all: Consume
) -> None:
    writer, reader, tp = make_writer(), cluster.reader(group_id=application_id), TopicPartition(topic, 2)
    writer.begin()
    writer.produce(topic, b"v", b"k", 1, 1_234, [("h", b"x"), ("h", None)])
    writer.flush()
    assert consume_all(topic) == []
    assert values(consume_all(topic, isolation="read_uncommitted")) == [b"v"]
    writer.send_offsets({tp: CommittedOffset(5, "m")}, reader)
    writer.commit()
    (row,) = consume_all(topic)
    assert (row.value, row.key, row.partition, row.timestamp_ms) == (b"v", b"k", 1, 1_234)
    assert row.headers == (("h", b"x"), ("h", None))
    assert reader.committed([tp]) == {tp: CommittedOffset(5, "m")}
    reader.close()


def test_time_of_a_record_is_the_one_given_when_that_is_the_epoch_itself(
    topic: str, make_writer: MakeWriter, consume_all: Consume
) -> None:
    writer = make_writer()
    writer.begin()
    writer.produce(topic, b"v", b"k", 0, 0, None)
    writer.commit()
    (row,) = consume_all(topic)
    assert row.timestamp_ms == 1, "the client cannot write 0, and takes it for the time of sending"


def test_nothing_appears_when_a_transaction_is_aborted(
    topic: str, make_writer: MakeWriter, consume_all: Consume
) -> None:
    writer = make_writer()
    writer.begin()
    writer.produce(topic, b"lost", b"k")
    writer.flush()
    writer.abort()
    writer.begin()
    writer.produce(topic, b"kept", b"k")
    writer.commit()
    assert values(consume_all(topic)) == [b"kept"]
    assert not writer.suspect


def test_writer_stays_sound_when_transactions_follow_each_other_at_once(
    cluster: KafkaCluster, topic: str, application_id: str, make_writer: MakeWriter, consume_all: Consume
) -> None:
    writer, reader = make_writer(), cluster.reader(group_id=application_id)
    for number in range(20):
        writer.begin()
        writer.produce(topic, b"%d" % number, b"k")
        writer.send_offsets({TopicPartition(topic, 2): CommittedOffset(number)}, reader)
        writer.commit()
        assert not writer.suspect
    assert values(consume_all(topic)) == [b"%d" % number for number in range(20)]
    reader.close()


def test_older_writer_is_fenced_in_every_call_when_a_newer_one_claims_the_id(
    cluster: KafkaCluster, topic: str, application_id: str, make_writer: MakeWriter, consume_all: Consume
) -> None:
    zombie = make_writer()
    zombie.begin()
    zombie.produce(topic, b"zombie", b"k")
    zombie.flush()
    newer = make_writer()
    reader = cluster.reader(group_id=application_id)
    with pytest.raises(TaskFencedError) as caught:
        zombie.send_offsets({TopicPartition(topic, 2): CommittedOffset(99)}, reader)
    assert caught.value.task_id == f"{application_id}-0_0"
    for call in (zombie.commit, zombie.abort, lambda: zombie.produce(topic, b"again", b"k")):
        with pytest.raises(TaskFencedError):
            call()
    assert zombie.suspect
    with pytest.raises(KafkaClientError):
        zombie.begin()
    newer.begin()
    newer.produce(topic, b"newer", b"k")
    newer.commit()
    assert values(consume_all(topic)) == [b"newer"]
    assert reader.committed([TopicPartition(topic, 2)]) == {}
    reader.close()


@pytest.mark.parametrize("last_call", ["flush", "commit", "produce"])
def test_fencing_is_told_whatever_the_client_raises_when_records_are_on_their_way(
    topic: str, make_writer: MakeWriter, last_call: str, wait_until: Callable[..., Any]
) -> None:
    zombie = make_writer()
    zombie.begin()
    zombie.produce(topic, b"one", b"k", 0)
    zombie.flush()
    make_writer()

    def fenced() -> bool:
        zombie.produce(topic, b"two", b"k", 1)
        if last_call != "produce":
            getattr(zombie, last_call)()
        return False

    with pytest.raises(TaskFencedError, match="another attempt claimed"):
        wait_until(fenced, "the fence")


@pytest.mark.parametrize("transactional", [True, False])
def test_record_is_named_when_the_broker_refuses_it(
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    make_writer: MakeWriter,
    transactional: bool,
) -> None:
    small = create_topic(topic_name("small"), 1, max_message_bytes="2000")
    writer = make_writer() if transactional else make_writer(None)
    writer.begin()
    writer.produce(small, random.Random(0).randbytes(20_000), b"k")
    with pytest.raises(RecordError, match=f"{small}-0 was refused") as caught:
        writer.commit()
    assert (caught.value.topic, caught.value.partition) == (small, 0)
    if transactional:
        writer.abort()  # else the broker does, under the tests that follow


def test_record_is_named_when_the_client_refuses_it(topic: str, make_writer: MakeWriter) -> None:
    writer = make_writer()
    writer.begin()
    with pytest.raises(RecordError, match=topic):
        writer.produce(topic, b"x" * 3_000_000, b"k")
    writer.produce(topic, b"small", b"k")
    writer.commit()


@pytest.mark.remedy("client_errors.timeout_refused")
def test_timeout_is_refused_with_the_brokers_limit_named_until_it_is_lowered(make_writer: MakeWriter) -> None:
    with pytest.raises(
        ConfigError, match=r"transaction\.timeout\.ms = 86400000.*transaction\.max\.timeout\.ms"
    ):
        make_writer(transaction_timeout_ms=86_400_000)
    writer = make_writer(transaction_timeout_ms=60_000)
    writer.begin()
    writer.abort()


@pytest.mark.remedy("delivery.of_transaction: nothing if a newer attempt runs")
def test_what_the_broker_timed_out_is_committed_in_the_longer_timeout_that_the_error_asks_for(
    cluster: KafkaCluster,
    topic: str,
    make_writer: MakeWriter,
    consume_all: Consume,
    wait_until: Callable[..., Any],
) -> None:
    admin = cluster.admin()

    def in_transaction(writer: WriterPort, partition: int) -> None:
        writer.begin()
        writer.produce(topic, b"v", b"k", partition)
        writer.flush()

    def timed_out(partition: int) -> bool:
        """Whether the marker of the abort is there."""
        at = [TopicPartition(topic, partition)]
        return admin.end_offsets(at, isolation="read_committed")[at[0]] == 2

    late = make_writer(transaction_timeout_ms=1_000)
    in_transaction(late, 0)
    wait_until(lambda: timed_out(0), "the broker to abort the transaction")
    with pytest.raises(TaskFencedError) as refused:
        late.commit()
    assert "raise transaction.timeout.ms" in refused.value.fix
    mended, clock = (
        make_writer(transaction_timeout_ms=60_000),
        make_writer("clock", transaction_timeout_ms=1_000),
    )
    in_transaction(mended, 1)
    in_transaction(clock, 2)
    wait_until(lambda: timed_out(2), "as long as the broker waited before")
    mended.commit()
    assert [(row.partition, row.value) for row in consume_all(topic)] == [(1, b"v")]


def test_keys_go_where_javas_partitioner_sends_them_when_no_partition_is_given(
    topic: str, make_writer: MakeWriter, consume_all: Consume
) -> None:
    writer = make_writer()
    writer.begin()
    keys = [f"key-{number}\u00e9".encode() for number in range(50)]
    for key in keys:
        writer.produce(topic, b"v", key)
    writer.commit()
    found = {row.key: row.partition for row in consume_all(topic)}
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % 3 for key in keys}


def murmur2(data: bytes) -> int:
    """Kafka's murmur2, written from its definition."""
    length, mask = len(data), 0xFFFFFFFF
    value = (0x9747B28C ^ length) & mask
    for at in range(0, length - length % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & mask
        k = (k ^ k >> 24) * 0x5BD1E995 & mask
        value = value * 0x5BD1E995 & mask ^ k
    tail = data[length - length % 4 :]
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * 0x5BD1E995 & mask
    value = (value ^ value >> 13) * 0x5BD1E995 & mask
    return value ^ value >> 15


def test_more_records_than_the_queue_holds_are_delivered_when_sent_at_once(
    topic: str, make_writer: MakeWriter, cluster: KafkaCluster
) -> None:
    writer = make_writer()
    writer.begin()
    count = 250_000
    for number in range(count):
        writer.produce(topic, b"v%d" % number, None, 0)
    writer.commit()
    admin = cluster.admin()
    tp = TopicPartition(topic, 0)
    assert admin.end_offsets([tp], isolation="read_committed") == {tp: count + 1}


def test_offsets_are_committed_after_the_records_when_there_are_no_transactions(
    cluster: KafkaCluster, topic: str, application_id: str, make_writer: MakeWriter, consume_all: Consume
) -> None:
    writer, reader, tp = make_writer(None), cluster.reader(group_id=application_id), TopicPartition(topic, 2)
    writer.begin()
    writer.produce(topic, b"v", b"k")
    writer.send_offsets({tp: CommittedOffset(1)}, reader)
    assert values(consume_all(topic)) == [b"v"]
    assert reader.committed([tp]) == {tp: CommittedOffset(1)}
    reader.close()


def clients() -> list[Producer]:
    """The clients that live in this process."""
    gc.collect()
    return [held for held in gc.get_objects() if type(held) is Producer]


def test_client_ends_when_its_writer_is_closed_and_the_error_kept(
    topic: str, make_writer: MakeWriter
) -> None:
    """A client that is not polled fills memory with its statistics, and a processor with keeping them."""
    before = len(clients())
    older = make_writer()
    older.begin()
    older.produce(topic, b"v", b"k", 0)
    older.flush()
    make_writer().close()
    with pytest.raises(TaskFencedError) as kept:
        older.commit()

    older.close()

    assert len(clients()) == before, f"what holds the error holds no client: {kept.value}"
