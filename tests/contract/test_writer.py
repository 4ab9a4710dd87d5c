"""What every implementation of ``WriterPort`` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from airflow_kstreams.streams import bounded_read
from airflow_kstreams.streams.errors import (
    ConfigError,
    KafkaClientError,
    RecordError,
    TaskFencedError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.ports import (
    CommittedOffset,
    ReaderPort,
    TopicLimits,
    TopicPartition,
    WriterPort,
)
from airflow_kstreams.streams.records.first_place import content_id
from airflow_kstreams.streams.records.timestamp_reading import iso_of
from tests.contract.conftest import CLUSTERS_AND_BULK, Contract, made_contract

pytestmark = pytest.mark.promise("large-records-are-taken-or-named", "offset-commits-fit")


@pytest.fixture(params=CLUSTERS_AND_BULK)
def contract(request: pytest.FixtureRequest) -> Iterator[Contract]:
    yield from made_contract(request)


def test_records_and_offsets_appear_together_when_a_transaction_commits(contract: Contract) -> None:
    topic, source = contract.topic(2), TopicPartition(contract.topic(), 0)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    writer, uncommitted = contract.writer(), contract.reader("read_uncommitted")
    writer.begin()
    writer.produce(topic, b"a", b"k", 0)
    writer.produce(topic, b"b", b"k", 1)
    writer.send_offsets({source: CommittedOffset(5, "m")}, contract.reader())
    assert contract.values(first, 0) == contract.values(second, 0) == []
    assert uncommitted.committed([source]) == {}
    writer.commit()
    for tp in (first, second):
        contract.settled(tp, 2)
    assert (contract.values(first, 2), contract.values(second, 2)) == ([b"a"], [b"b"])
    assert contract.reader().committed([source]) == {source: CommittedOffset(5, "m")}
    assert not writer.suspect


def test_nothing_appears_when_a_transaction_is_aborted(contract: Contract) -> None:
    tp, source = TopicPartition(contract.topic(), 0), TopicPartition(contract.topic(), 0)
    writer = contract.writer()
    writer.begin()
    writer.produce(tp.topic, b"lost", b"k", 0)
    writer.send_offsets({source: CommittedOffset(5)}, contract.reader())
    writer.abort()
    writer.begin()
    writer.produce(tp.topic, b"kept", b"k", 0)
    writer.commit()
    contract.settled(tp, 4)
    assert contract.values(tp, 4) == [b"kept"]
    assert contract.reader().committed([source]) == {}
    assert not writer.suspect


def test_transactions_of_one_writer_may_follow_each_other_at_once(contract: Contract) -> None:
    tp, source = TopicPartition(contract.topic(), 0), TopicPartition(contract.topic(), 0)
    writer, reader = contract.writer(), contract.reader()
    for number in range(10):
        writer.begin()
        writer.produce(tp.topic, b"%d" % number, b"k", 0)
        writer.send_offsets({source: CommittedOffset(number)}, reader)
        writer.commit()
    contract.settled(tp, 20)
    assert contract.values(tp, 20) == [b"%d" % number for number in range(10)]
    assert reader.committed([source]) == {source: CommittedOffset(9)}


def test_last_offset_counts_when_a_transaction_is_given_several(contract: Contract) -> None:
    source = TopicPartition(contract.topic(), 0)
    writer, reader = contract.writer(), contract.reader()
    writer.begin()
    for offset in (3, 9, 4):
        writer.send_offsets({source: CommittedOffset(offset)}, reader)
    writer.send_offsets({}, reader)
    writer.commit()
    assert reader.committed([source]) == {source: CommittedOffset(4)}


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_log_stays_as_it_is_when_a_transaction_is_empty(contract: Contract, end: str) -> None:
    tp = TopicPartition(contract.topic(), 0)
    writer = contract.writer()
    writer.begin()
    getattr(writer, end)()
    assert contract.ends(tp) == (0, 0)
    assert not writer.suspect


def opened(contract: Contract, tp: TopicPartition, value: bytes = b"zombie") -> WriterPort:
    """A writer with an open transaction that the broker knows of."""
    writer = contract.writer()
    writer.begin()
    writer.produce(tp.topic, value, b"k", tp.partition)
    writer.flush()
    return writer


def flush(writer: WriterPort, tp: TopicPartition, _: ReaderPort) -> None:
    writer.produce(tp.topic, b"again", b"k", tp.partition)
    writer.flush()


FENCED_CALLS: dict[str, Callable[[WriterPort, TopicPartition, ReaderPort], None]] = {
    "flush": flush,
    "send_offsets": lambda writer, tp, reader: writer.send_offsets({tp: CommittedOffset(99)}, reader),
    "commit": lambda writer, tp, reader: writer.commit(),
    "abort": lambda writer, tp, reader: writer.abort(),
}


@pytest.mark.parametrize("call", FENCED_CALLS)
def test_older_writer_is_fenced_when_a_newer_one_claims_the_id(contract: Contract, call: str) -> None:
    tp, source = TopicPartition(contract.topic(), 0), TopicPartition(contract.topic(), 0)
    zombie, reader = opened(contract, tp), contract.reader()
    newer = contract.writer()
    with pytest.raises(TaskFencedError) as caught:
        FENCED_CALLS[call](zombie, source if call == "send_offsets" else tp, reader)
    assert caught.value.task_id == contract.group
    assert zombie.suspect
    for later in FENCED_CALLS.values():
        with pytest.raises(TaskFencedError):
            later(zombie, tp, reader)
    with pytest.raises(KafkaClientError) as refused:
        zombie.begin()
    assert refused.value.is_retriable
    newer.begin()
    newer.produce(tp.topic, b"newer", b"k", 0)
    newer.commit()
    contract.settled(tp, 4)
    assert contract.values(tp, 4) == [b"newer"]
    assert reader.committed([source]) == {}


def test_older_writer_writes_nothing_when_it_begins_after_it_was_fenced(contract: Contract) -> None:
    tp = TopicPartition(contract.topic(), 0)
    zombie = contract.writer()
    contract.writer()
    zombie.begin()
    with pytest.raises(TaskFencedError):
        flush(zombie, tp, contract.reader())
    assert contract.values(tp, 0, "read_uncommitted") == []


def test_empty_transaction_ends_without_the_broker_when_its_writer_is_fenced(contract: Contract) -> None:
    zombie = contract.writer()
    zombie.begin()
    contract.writer()
    zombie.commit()
    assert not zombie.suspect


@pytest.mark.parametrize("closed", [True, False])
def test_open_transaction_is_aborted_when_its_id_is_claimed(contract: Contract, closed: bool) -> None:
    tp, source = TopicPartition(contract.topic(), 0), TopicPartition(contract.topic(), 0)
    reader = contract.reader()
    reader.commit({source: CommittedOffset(1)})
    left = opened(contract, tp)
    left.send_offsets({source: CommittedOffset(2)}, reader)
    if closed:
        left.close()
    assert contract.ends(tp) == (0, 1)
    contract.writer()
    contract.settled(tp, 2)
    assert contract.values(tp, 2) == []
    assert reader.committed([source]) == {source: CommittedOffset(1)}


def test_committed_transaction_is_complete_when_its_id_is_claimed(contract: Contract) -> None:
    tp, source = TopicPartition(contract.topic(), 0), TopicPartition(contract.topic(), 0)
    reader = contract.reader()
    for number in range(5):
        writer = contract.writer()
        writer.begin()
        writer.produce(tp.topic, b"%d" % number, b"k", 0)
        writer.send_offsets({source: CommittedOffset(number)}, reader)
        writer.commit()
        contract.writer()
        # Nobody had to wait: the claim itself waited until the markers were written.
        assert contract.ends(tp) == (2 * number + 2, 2 * number + 2)
        assert reader.committed([source]) == {source: CommittedOffset(number)}


def test_committed_offsets_are_told_once_a_commit_is_complete(contract: Contract) -> None:
    source = TopicPartition(contract.topic(), 0)
    writer, reader = contract.writer(), contract.reader()
    for offset in range(5):
        writer.begin()
        writer.send_offsets({source: CommittedOffset(offset)}, reader)
        writer.commit()
        assert reader.committed([source]) == {source: CommittedOffset(offset)}


def test_other_ids_are_not_disturbed_when_an_id_is_claimed(contract: Contract) -> None:
    tp = TopicPartition(contract.topic(), 0)
    writer = opened(contract, tp, b"mine")
    contract.writer(f"{contract.group}-other")
    writer.commit()
    contract.settled(tp, 2)
    assert contract.values(tp, 2) == [b"mine"]


def test_writer_is_fenced_when_its_transaction_timed_out(contract: Contract) -> None:
    tp = TopicPartition(contract.topic(), 0)
    writer = contract.writer(transaction_timeout_ms=1_000)
    writer.begin()
    writer.produce(tp.topic, b"late", b"k", 0)
    writer.flush()
    contract.settled(tp, 2)
    with pytest.raises(TaskFencedError):
        writer.commit()
    assert contract.values(tp, 2) == []


def test_limit_is_named_when_the_transaction_timeout_is_beyond_it(contract: Contract) -> None:
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms = 86400000"):
        contract.writer(transaction_timeout_ms=86_400_000)


def test_misuse_is_an_error(contract: Contract) -> None:
    topic = contract.topic()
    fresh = contract.cluster.writer(transactional_id=contract.group)
    contract.opened.append(fresh)
    with pytest.raises(KafkaClientError):
        fresh.begin()
    writer = contract.writer()
    with pytest.raises(KafkaClientError):
        writer.produce(topic, b"v", b"k")


def test_transaction_is_aborted_when_it_is_given_offsets_of_no_partition(contract: Contract) -> None:
    missing = TopicPartition(f"{contract.topic()}-missing", 0)
    writer, reader = contract.writer(), contract.reader()
    writer.begin()
    with pytest.raises(TransactionAbortedError):
        writer.send_offsets({missing: CommittedOffset(1)}, reader)
    writer.abort()
    assert reader.committed([missing]) == {}


def _deliver(writer: WriterPort, topic: str, partition: int) -> None:
    writer.produce(topic, b"v", b"k", partition)
    writer.flush()


@pytest.mark.parametrize("partition", [-2, 1])
def test_record_for_no_partition_is_refused(contract: Contract, partition: int) -> None:
    topic, writer = contract.topic(), contract.writer(None)
    with pytest.raises(RecordError, match="_UNKNOWN_PARTITION"):
        _deliver(writer, topic, partition)


def test_closed_writer_refuses_records(contract: Contract) -> None:
    topic = contract.topic()
    for transactional_id in ("", None):
        writer = contract.writer(transactional_id)
        writer.close()
        writer.close()
        with pytest.raises(ValueError, match="closed"):
            writer.produce(topic, b"v", b"k")


@pytest.mark.parametrize("call", ["init_transactions", "begin", "flush", "commit", "abort"])
def test_closed_writer_refuses_to_go_on(contract: Contract, call: str) -> None:
    writer = contract.writer("")
    writer.close()
    with pytest.raises(KafkaClientError, match="closed"):
        getattr(writer, call)()


def test_keys_go_where_javas_partitioner_sends_them(contract: Contract) -> None:
    topic = contract.topic(3)
    writer = contract.writer(None)
    # Computed with org.apache.kafka.common.utils.Utils.murmur2.
    expected = {b"21": 2, b"foobar": 0, b"a-little-bit-long-string": 2, b"": 1, b"\xe9\x00": None}
    for key in expected:
        writer.produce(topic, key, key)
    writer.flush()
    tps = {TopicPartition(topic, n): 0 for n in range(3)}
    records, _ = contract.read(tps, {tp: contract.ends(tp)[1] for tp in tps}, contract.reader())
    found = {record.key(): record.partition() for some in records.values() for record in some}
    assert found.keys() == expected.keys()
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, hashed in hashes.items():
        assert found[key] == (hashed & 0x7FFFFFFF) % 3


def test_record_is_named_when_the_client_refuses_it(contract: Contract) -> None:
    topic = contract.topic()
    writer = contract.writer()
    writer.begin()
    with pytest.raises(RecordError, match=topic):
        writer.produce(topic, b"x" * 3_000_000, b"k")
    writer.produce(topic, b"small", b"k")
    writer.commit()
    contract.settled(TopicPartition(topic, 0), 2)


@pytest.mark.parametrize("transactional_id", ["", None])
@pytest.mark.parametrize("reason", ["too large", "no key"])
def test_record_is_named_when_the_broker_refuses_it(
    contract: Contract, transactional_id: str | None, reason: str
) -> None:
    if reason == "too large":
        topic = contract.topic(max_message_bytes="2000")
    else:
        topic = contract.topic(cleanup_policy="compact")
    refused = Random(0).randbytes(20_000 if reason == "too large" else 9)
    if contract.in_bulk and transactional_id is not None:
        # The next writer of that id sends with delivery reports.
        writer = contract.writer(transactional_id)
        writer.begin()
        writer.produce(topic, refused, None)
        with pytest.raises(TransactionAbortedError):
            writer.commit()
    writer = contract.writer(transactional_id)
    writer.begin()
    writer.produce(topic, refused, None)
    with pytest.raises(RecordError, match=f"{topic}-0 was refused") as caught:
        writer.commit()
    assert (caught.value.topic, caught.value.partition) == (topic, 0)
    assert writer.suspect
    assert contract.values(TopicPartition(topic, 0), 0) == []


def test_offsets_are_committed_after_the_records_when_there_are_no_transactions(contract: Contract) -> None:
    tp, source = TopicPartition(contract.topic(), 0), TopicPartition(contract.topic(), 0)
    writer, reader = contract.writer(None), contract.reader()
    writer.begin()
    writer.produce(tp.topic, b"v", b"k", 0)
    writer.send_offsets({source: CommittedOffset(1)}, reader)
    assert contract.values(tp, 1) == [b"v"]
    assert reader.committed([source]) == {source: CommittedOffset(1)}
    writer.abort()
    assert contract.values(tp, 1) == [b"v"], "what was sent stays sent"


def test_client_takes_a_record_up_to_its_limit_with_its_headers(contract: Contract) -> None:
    topic = contract.topic(max_message_bytes="2000000")
    writer = contract.writer()
    writer.begin()
    headers = [("name", b"h" * 200), ("none", None)]
    rest = 36 + len(b"key") + (1 + 4 + 2 + 200) + (1 + 4 + 1)
    with pytest.raises(RecordError, match="MSG_SIZE_TOO_LARGE"):
        writer.produce(topic, b"x" * (1_000_000 - rest + 1), b"key", 0, None, headers)
    writer.produce(topic, b"x" * (1_000_000 - rest), b"key", 0, None, headers)
    writer.commit()
    contract.settled(TopicPartition(topic, 0), 2)


@pytest.mark.parametrize("too_much", [0, 1])
def test_topic_takes_a_record_up_to_its_limit_with_headers_of_record_and_batch(
    contract: Contract, too_much: int
) -> None:
    topic = contract.topic(max_message_bytes="100000")
    writer = contract.writer()
    writer.begin()
    rest = 74 + len(b"k" * 10) + len("a") + len(b"b" * 10)
    value = Random(0).randbytes(100_000 - rest + too_much)
    writer.produce(topic, value, b"k" * 10, 0, None, [("a", b"b" * 10)])
    if too_much:
        refused = TransactionAbortedError if contract.in_bulk else RecordError
        with pytest.raises(refused, match=r"MSG_SIZE_TOO_LARGE|Message size too large"):
            writer.commit()
    else:
        writer.commit()
        contract.settled(TopicPartition(topic, 0), 2)


def test_topic_takes_what_is_larger_than_its_limit_if_it_is_compressed(contract: Contract) -> None:
    topic = contract.topic(max_message_bytes="2000")
    writer = contract.writer()
    writer.begin()
    writer.produce(topic, b"x" * 100_000, b"k", 0)
    writer.commit()
    contract.settled(TopicPartition(topic, 0), 2)


def test_small_records_are_refused_when_they_leave_in_a_batch_larger_than_the_topic_takes(
    contract: Contract,
) -> None:
    topic = contract.topic(max_message_bytes="2000")
    writer, random = contract.writer(None), Random(0)
    writer.begin()
    with pytest.raises(RecordError, match="MSG_SIZE_TOO_LARGE"):
        for _ in range(1_000):
            writer.produce(topic, random.randbytes(100), b"k", 0)
        writer.flush()


#: Characters of metadata that the broker takes with an offset: its limit, less one that the client adds.
METADATA = 4_095


def test_offset_is_refused_when_its_metadata_is_too_long(contract: Contract) -> None:
    source = TopicPartition(contract.topic(), 0)
    reader, writer = contract.reader(), contract.writer()
    fits, too_long = ({source: CommittedOffset(n, "é" * n)} for n in (METADATA, METADATA + 1))
    reader.commit(fits)
    with pytest.raises(KafkaClientError) as caught:
        reader.commit(too_long)
    assert (caught.value.kafka_code, caught.value.is_retriable) == ("OFFSET_METADATA_TOO_LARGE", False)
    writer.begin()
    writer.send_offsets(fits, reader)
    with pytest.raises(TransactionAbortedError):
        writer.send_offsets(too_long, reader)
    assert writer.suspect
    writer.abort()
    assert reader.committed([source])[source].offset == METADATA


def test_offsets_are_taken_in_portions_when_so_many_come_that_the_broker_cannot_write_them_at_once(
    contract: Contract,
) -> None:
    topic = contract.topic(600)
    reader, writer = contract.reader(), contract.writer()
    offsets = {TopicPartition(topic, n): CommittedOffset(n, "m" * METADATA) for n in range(600)}
    writer.begin()
    writer.send_offsets(offsets, reader)
    writer.commit()
    assert reader.committed(offsets) == offsets
    further = {tp: CommittedOffset(at.offset + 1, at.metadata) for tp, at in offsets.items()}
    reader.commit(further)
    assert reader.committed(offsets) == further


def test_offsets_are_refused_when_a_portion_is_larger_than_the_broker_can_write(
    contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_read, "PORTION_BYTES", 10**9)
    # 250 times 4,095 characters, with what is written around them, are less than the broker's 1,048,588
    # bytes, 256 are more.
    topic = contract.topic(256)
    reader, writer = contract.reader(), contract.writer()
    offsets = {TopicPartition(topic, n): CommittedOffset(n, "m" * METADATA) for n in range(256)}
    fits = {tp: offset for tp, offset in offsets.items() if tp.partition < 250}
    reader.commit(fits)
    with pytest.raises(KafkaClientError) as caught:
        reader.commit(offsets)
    assert (caught.value.kafka_code, caught.value.is_retriable) == ("UNKNOWN", False)
    writer.begin()
    with pytest.raises(TransactionAbortedError):
        writer.send_offsets(offsets, reader)
    writer.abort()
    writer = contract.writer()
    writer.begin()
    # The limit is that of one call.
    writer.send_offsets(fits, reader)
    writer.send_offsets({tp: offset for tp, offset in offsets.items() if tp not in fits}, reader)
    writer.commit()
    assert reader.committed(offsets) == offsets


def test_writer_takes_as_much_as_its_largest_topic_and_less_together_than_its_smallest(
    contract: Contract,
) -> None:
    limits = {
        contract.topic(max_message_bytes="6000000"): TopicLimits(6_000_000),
        contract.topic(max_message_bytes="2000"): TopicLimits(2_000),
    }
    large, small = limits
    random = Random(0)
    # More than the reader asks for at once: 4 MiB.
    value, values = random.randbytes(5_900_000), [random.randbytes(100) for _ in range(500)]
    writer = contract.cluster.writer(transactional_id=contract.group, limits=limits)
    contract.opened.append(writer)
    writer.init_transactions()
    writer.begin()
    writer.produce(large, value, b"k", 0)
    for each in values:
        writer.produce(small, each, b"k", 0)
    writer.commit()
    assert contract.values(TopicPartition(large, 0), 1) == [value]
    assert contract.values(TopicPartition(small, 0), 500) == values


@pytest.mark.parametrize("refuses", ["client", "broker"])
def test_size_and_limit_are_named_when_a_record_is_too_large(contract: Contract, refuses: str) -> None:
    limit = 20_000 if refuses == "broker" else 1_048_588
    topic = contract.topic(max_message_bytes=str(limit))
    writer = contract.cluster.writer(transactional_id=None, limits={topic: TopicLimits(limit)})
    contract.opened.append(writer)
    writer.begin()
    size, shown = (30_000, "30,") if refuses == "broker" else (1_200_000, "1,200,")
    with pytest.raises(RecordError, match=rf"MSG_SIZE_TOO_LARGE.* {shown}\d+ bytes.* {limit:,}") as caught:
        writer.produce(topic, Random(0).randbytes(size), b"k", 0)
        writer.flush()
    assert "max.message.bytes" in str(caught.value)
    assert caught.value.topic == topic


HOUR_MS = 3_600_000


@pytest.mark.promise("refused-times-are-named")
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("refused", [1, 2])
@pytest.mark.parametrize("side", ["before", "after"])
def test_records_whose_time_the_topic_refuses_are_told_from_those_in_their_batch(
    contract: Contract, transactional: bool, refused: int, side: str
) -> None:
    topic = contract.topic(1, **{f"message_timestamp_{side}_max_ms": str(HOUR_MS)})
    limits = TopicLimits(1_048_588)._replace(**{f"{side}_ms": HOUR_MS})
    writer = contract.cluster.writer(
        transactional_id=contract.group if transactional else None, limits={topic: limits}
    )
    contract.opened.append(writer)
    writer.init_transactions()
    writer.begin()
    now_ms, sign = contract.clock.now_ms(), 1 if side == "after" else -1
    dated = [now_ms + sign * 2 * HOUR_MS + n for n in range(refused)]
    times = [now_ms, *dated, now_ms + sign * (HOUR_MS - 60_000)]
    for time_ms in times:
        writer.produce(topic, b"same", b"k", 0, time_ms)
    with pytest.raises(RecordError) as caught:
        writer.flush()
    found = caught.value
    to_blame = {content_id(topic, b"k", b"same", time_ms): time_ms for time_ms in dated}
    # Those that left in one batch.
    assert found.contents
    assert found.contents.keys() <= to_blame.keys()
    assert (found.topic, found.partition) == (topic, 0)
    for name, why in found.contents.items():
        assert iso_of(to_blame[name]) in why
    assert f"{side} this machine's time; the topic's message.timestamp.{side}.max.ms is 3,600,000" in str(
        found
    )


def test_record_is_written_when_its_time_is_within_what_its_topic_takes(contract: Contract) -> None:
    topic = contract.topic(message_timestamp_before_max_ms=str(HOUR_MS))
    writer, now_ms = contract.writer(), contract.clock.now_ms()
    writer.begin()
    for time_ms in (now_ms - HOUR_MS + 60_000, now_ms + HOUR_MS - 60_000, None):
        writer.produce(topic, b"v", b"k", 0, time_ms)
    writer.commit()
    contract.settled(TopicPartition(topic, 0), 4)
