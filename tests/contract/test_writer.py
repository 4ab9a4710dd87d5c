"""What every implementation of ``WriterPort`` does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from airflow_kstreams.streams.errors import ConfigError, KafkaClientError, RecordError, TaskFencedError
from airflow_kstreams.streams.ports import CommittedOffset, ReaderPort, TopicPartition, WriterPort
from tests.contract.conftest import Contract


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


def test_closed_writer_refuses_records(contract: Contract) -> None:
    topic = contract.topic()
    for transactional_id in ("", None):
        writer = contract.writer(transactional_id)
        writer.close()
        writer.close()
        with pytest.raises(ValueError, match="closed"):
            writer.produce(topic, b"v", b"k")


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
    writer = contract.writer(transactional_id)
    writer.begin()
    writer.produce(topic, Random(0).randbytes(20_000 if reason == "too large" else 9), None)
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
