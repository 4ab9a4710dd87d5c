"""The bounded reader on the real broker: where it starts, what it sees, where it says the end is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import CommittedOffset, Isolation, ReaderPort, TopicPartition
from tests.support.kafka.printed_commands import execute, printed_commands

SECONDS = 30.0
Produce = Callable[..., None]
MakeReader = Callable[..., ReaderPort]


@pytest.fixture
def topic(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("read"), 2)


@pytest.fixture
def make_reader(kafka: str, application_id: str) -> Iterator[MakeReader]:
    made: list[ReaderPort] = []

    def make(isolation: Isolation = "read_committed") -> ReaderPort:
        reader = KafkaCluster({"bootstrap.servers": kafka}).reader(
            group_id=application_id, isolation=isolation
        )
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.close()


def read_to(
    reader: ReaderPort,
    starts: dict[TopicPartition, int],
    stops: dict[TopicPartition, int],
    wait_until: Callable[..., Any],
) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, int]]:
    """Read until every partition's end is told at or past its stop; offsets seen, last end told."""
    reader.assign(starts)
    seen: dict[TopicPartition, list[int]] = {tp: [] for tp in starts}
    ends: dict[TopicPartition, int] = {}

    def reached() -> bool:
        fetched = reader.poll(max_records=1000, timeout_seconds=0.2)
        for tp, records in fetched.records.items():
            seen[tp] += [record.offset() for record in records]
        ends.update(fetched.ends)
        return all(ends.get(tp, -1) >= stop for tp, stop in stops.items())

    wait_until(reached, "the ends of the partitions")
    return seen, ends


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic, number)


def rows(count: int, number: int = 0) -> list[dict[str, object]]:
    return [{"key": "k", "value": "v", "partition": number} for _ in range(count)]


def test_each_partition_is_read_from_its_own_start_when_several_are_assigned(
    topic: str, make_reader: MakeReader, produce: Produce, wait_until: Callable[..., Any]
) -> None:
    produce(topic, rows(5, 0) + rows(3, 1))
    starts = {partition(topic, 0): 2, partition(topic, 1): 0}
    seen, ends = read_to(make_reader(), starts, {partition(topic, 0): 5, partition(topic, 1): 3}, wait_until)
    assert seen == {partition(topic, 0): [2, 3, 4], partition(topic, 1): [0, 1, 2]}
    assert ends == {partition(topic, 0): 5, partition(topic, 1): 3}


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_end_lies_past_markers_and_aborted_records_when_they_are_the_tail(
    topic: str, make_reader: MakeReader, produce: Produce, wait_until: Callable[..., Any], start: int
) -> None:
    produce(topic, rows(1), transactional_id=f"a-{topic}")
    produce(topic, rows(2), transactional_id=f"b-{topic}", abort=True)
    tp = partition(topic)
    seen, ends = read_to(make_reader(), {tp: start}, {tp: 5}, wait_until)
    assert seen[tp] == [0][start:]
    assert ends[tp] == 5


def test_end_is_the_last_stable_offset_when_a_transaction_is_open(
    kafka: str, topic: str, make_reader: MakeReader, produce: Produce, wait_until: Callable[..., Any]
) -> None:
    produce(topic, rows(2))
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"open-{topic}"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"v", b"k", 0)
    producer.flush(SECONDS)
    tp = partition(topic)
    committed, uncommitted = make_reader(), make_reader("read_uncommitted")
    assert read_to(committed, {tp: 0}, {tp: 2}, wait_until)[0][tp] == [0, 1]
    assert read_to(uncommitted, {tp: 0}, {tp: 3}, wait_until)[0][tp] == [0, 1, 2]
    producer.commit_transaction(SECONDS)
    # The reader that waits at the open transaction goes on by itself once it is committed.
    found: list[int] = []

    def arrived() -> bool:
        fetched = committed.poll(max_records=10, timeout_seconds=0.2)
        found.extend(record.offset() for record in fetched.records.get(tp, ()))
        return fetched.ends.get(tp) == 4

    wait_until(arrived, "the end past the commit marker")
    assert found == [2]


def test_end_is_told_again_when_a_partition_is_assigned_again(
    topic: str, make_reader: MakeReader, wait_until: Callable[..., Any]
) -> None:
    reader, tp = make_reader(), partition(topic)
    for _ in range(2):
        assert read_to(reader, {tp: 0}, {tp: 0}, wait_until)[1] == {tp: 0}


def test_nothing_arrives_from_a_partition_when_it_is_paused(
    topic: str, make_reader: MakeReader, produce: Produce, wait_until: Callable[..., Any]
) -> None:
    reader, first, second = make_reader(), partition(topic, 0), partition(topic, 1)
    read_to(reader, {first: 0, second: 0}, {first: 0, second: 0}, wait_until)
    reader.pause([first])
    produce(topic, rows(1, 0) + rows(1, 1))
    assert wait_until(
        lambda: reader.poll(max_records=10, timeout_seconds=0.2).records, "a record"
    ).keys() == {second}
    reader.resume([first])
    assert wait_until(
        lambda: reader.poll(max_records=10, timeout_seconds=0.2).records, "a record"
    ).keys() == {first}


def test_position_outside_the_log_is_an_error_when_it_is_read(
    topic: str, make_reader: MakeReader, produce: Produce, wait_until: Callable[..., Any]
) -> None:
    produce(topic, rows(1))
    reader = make_reader()
    reader.assign({partition(topic): 99})
    with pytest.raises(KafkaClientError, match=f"{topic}-0.*not in the log") as caught:
        wait_until(lambda: reader.poll(max_records=10, timeout_seconds=0.2).records, "an error")
    assert not caught.value.is_retriable


def test_committed_offsets_come_back_with_their_metadata_when_committed(
    topic: str, make_reader: MakeReader
) -> None:
    reader, first, second = make_reader(), partition(topic, 0), partition(topic, 1)
    assert reader.committed([first, second]) == {}
    reader.commit({first: CommittedOffset(7, '{"run":"\u00fc"}')})
    assert make_reader().committed([first, second]) == {first: CommittedOffset(7, '{"run":"\u00fc"}')}


def test_closing_twice_is_harmless_when_done(make_reader: MakeReader) -> None:
    reader = make_reader()
    reader.close()
    reader.close()


@pytest.mark.remedy("client_errors.from_kafka_error")
def test_reading_goes_on_at_the_logs_start_when_the_command_of_the_error_is_given(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
) -> None:
    tp = TopicPartition(create_topic(topic_name("cut")), 0)
    produce(tp.topic, [("k", "v")] * 5)
    cluster = KafkaCluster({"bootstrap.servers": kafka})
    reader = cluster.reader(group_id=application_id)
    reader.commit({tp: CommittedOffset(1)})
    cluster.admin().delete_records({tp: 3})
    reader.assign({tp: 1})
    with pytest.raises(KafkaClientError, match="not in the log") as refused:
        while not reader.poll(max_records=9, timeout_seconds=1).records:
            pass
    ((_, *command),) = printed_commands(refused.value.fix)
    said = {"...": application_id, "TOPIC:PARTITION": f"{tp.topic}:{tp.partition}"}
    given = [said.get(word, word) for word in command]
    execute(["airflow-kstreams", *given, "--bootstrap-server", kafka], kafka)
    (at,) = reader.committed([tp]).values()
    reader.assign({tp: at.offset})
    fetched = reader.poll(max_records=9, timeout_seconds=30)
    assert [record.offset() for record in fetched.records[tp]] == [3, 4]
    reader.close()
