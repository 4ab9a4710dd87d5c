"""What every implementation of ``ReaderPort`` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import CommittedOffset, Headers, TopicPartition
from tests.contract.conftest import CLUSTERS_AND_WAYS, Contract, made_contract


@pytest.fixture(params=CLUSTERS_AND_WAYS)
def contract(request: pytest.FixtureRequest) -> Iterator[Contract]:
    yield from made_contract(request)


def filled(contract: Contract, count: int = 3) -> TopicPartition:
    """A partition with records 0, 1, 2, ... outside any transaction."""
    tp = TopicPartition(contract.topic(), 0)
    writer = contract.writer(None)
    for number in range(count):
        writer.produce(tp.topic, b"%d" % number, b"k", 0)
    writer.flush()
    return tp


def transaction(contract: Contract, tp: TopicPartition, *values: bytes, commit: bool = True) -> None:
    writer = contract.writer()
    writer.begin()
    for value in values:
        writer.produce(tp.topic, value, b"k", tp.partition)
    writer.flush()
    (writer.commit if commit else writer.abort)()


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"k", b"v", None),
        (None, b"v", None),
        (b"k", None, None),
        (b"", b"", None),
        (b"k", b"v", [("h", b"1"), ("h", None), ("\u00e9", b"")]),
    ],
)
def test_record_comes_back_as_it_was_sent(
    contract: Contract, key: bytes | None, value: bytes | None, headers: Headers | None
) -> None:
    tp = TopicPartition(contract.topic(), 0)
    writer = contract.writer(None)
    writer.produce(tp.topic, value, key, 0, 1_234_567, headers)
    writer.flush()
    records, _ = contract.read({tp: 0}, {tp: 1}, contract.reader())
    (record,) = records[tp]
    assert (record.topic(), record.partition(), record.offset()) == (tp.topic, 0, 0)
    assert (record.key(), record.value(), record.headers()) == (key, value, headers)
    assert record.timestamp() == (1, 1_234_567)


def test_record_has_the_time_it_was_sent_when_it_was_given_none(contract: Contract) -> None:
    tp = filled(contract, 1)
    records, _ = contract.read({tp: 0}, {tp: 1}, contract.reader())
    kind, timestamp_ms = records[tp][0].timestamp()
    assert kind == 1
    clock = getattr(contract.cluster, "clock", None)
    now_ms = time.time() * 1000 if clock is None else clock.now_ms()
    assert 0 <= now_ms - timestamp_ms < 60_000


@pytest.mark.parametrize("transactional", [False, True])
def test_record_dated_0_is_sent_as_1_and_not_as_now(contract: Contract, transactional: bool) -> None:
    tp = TopicPartition(contract.topic(), 0)
    writer = contract.writer() if transactional else contract.writer(None)
    writer.begin()
    writer.produce(tp.topic, b"v", b"k", 0, 0)
    writer.commit()
    contract.settled(tp, 2 if transactional else 1)
    records, _ = contract.read({tp: 0}, {tp: 1}, contract.reader())
    assert [record.timestamp() for record in records[tp]] == [(1, 1)]


def test_each_partition_is_read_from_its_own_start(contract: Contract) -> None:
    topic = contract.topic(2)
    writer = contract.writer(None)
    for number, count in ((0, 4), (1, 2)):
        for index in range(count):
            writer.produce(topic, b"%d" % index, b"k", number)
    writer.flush()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    records, ends = contract.read({first: 2, second: 0}, {first: 4, second: 2}, contract.reader())
    assert [r.offset() for r in records[first]] == [2, 3]
    assert [r.offset() for r in records[second]] == [0, 1]
    assert ends == {first: 4, second: 2}


def test_end_is_told_once_until_the_position_moves(contract: Contract) -> None:
    tp = filled(contract, 1)
    reader = contract.reader()
    assert contract.read({tp: 1}, {tp: 1}, reader) == ({tp: []}, {tp: 1})
    for _ in range(3):
        assert reader.poll(max_records=10, timeout_seconds=0.1) == ({}, {})
    writer = contract.writer(None)
    writer.produce(tp.topic, b"new", b"k", 0)
    writer.flush()
    records, ends = contract.go_on({tp: 2}, reader)
    assert ([r.value() for r in records[tp]], ends) == ([b"new"], {tp: 2})


def test_end_is_told_again_when_a_partition_is_assigned_again(contract: Contract) -> None:
    tp = filled(contract, 0)
    reader = contract.reader()
    for _ in range(2):
        assert contract.read({tp: 0}, {tp: 0}, reader) == ({tp: []}, {tp: 0})


def test_nothing_is_read_when_nothing_is_assigned_any_more(contract: Contract) -> None:
    tp = filled(contract)
    reader = contract.reader()
    contract.read({tp: 0}, {tp: 3}, reader)
    reader.assign({})
    assert reader.poll(max_records=10, timeout_seconds=0.05) == ({}, {})


def test_no_more_records_come_at_once_than_asked_for(contract: Contract) -> None:
    tp = filled(contract, 10)
    reader = contract.reader()
    reader.assign({tp: 0})
    seen: list[int] = []

    def all_seen() -> bool:
        records = reader.poll(max_records=3, timeout_seconds=0.1).records.get(tp, ())
        assert len(records) <= 3
        seen.extend(record.offset() for record in records)
        return len(seen) == 10

    contract.until(all_seen, "ten records")
    assert seen == list(range(10))


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 5])
def test_end_lies_past_markers_and_aborted_records(contract: Contract, start: int) -> None:
    tp = TopicPartition(contract.topic(), 0)
    transaction(contract, tp, b"kept")
    transaction(contract, tp, b"lost", b"lost", commit=False)
    contract.settled(tp, 5)
    records, ends = contract.read({tp: start}, {tp: 5}, contract.reader())
    assert [record.offset() for record in records[tp]] == [0][start:]
    assert ends == {tp: 5}


def test_end_lies_past_aborted_records_when_there_is_nothing_else(contract: Contract) -> None:
    tp = TopicPartition(contract.topic(), 0)
    for _ in range(10):
        transaction(contract, tp, b"lost", commit=False)
    contract.settled(tp, 20)
    assert contract.values(tp, 20) == []
    assert contract.values(tp, 20, "read_uncommitted") == [b"lost"] * 10


def test_end_is_the_last_stable_offset_while_a_transaction_is_open(contract: Contract) -> None:
    tp = filled(contract, 2)
    writer = contract.writer()
    writer.begin()
    writer.produce(tp.topic, b"open", b"k", 0)
    writer.flush()
    committed = contract.reader()
    records, ends = contract.read({tp: 0}, {tp: 2}, committed)
    assert ([r.value() for r in records[tp]], ends) == ([b"0", b"1"], {tp: 2})
    assert contract.values(tp, 3, "read_uncommitted") == [b"0", b"1", b"open"]
    writer.commit()
    records, ends = contract.go_on({tp: 4}, committed)
    assert ([r.value() for r in records[tp]], ends) == ([b"open"], {tp: 4})


def test_nothing_behind_an_open_transaction_is_seen_when_transactions_interleave(contract: Contract) -> None:
    tp = TopicPartition(contract.topic(), 0)
    writers = [contract.writer(f"{contract.group}-{name}") for name in ("a", "b", "c")]
    for writer in writers:
        writer.begin()
    for value in (b"1", b"2"):
        for writer in writers:
            writer.produce(tp.topic, value, b"k", 0)
            writer.flush()
    writers[1].commit()
    contract.until(lambda: contract.ends(tp) == (0, 7), "the commit marker of the second")
    writers[0].abort()
    contract.until(lambda: contract.ends(tp) == (2, 8), "the abort marker of the first")
    assert contract.values(tp, 2) == [b"1"]
    writers[2].commit()
    contract.settled(tp, 9)
    records, _ = contract.read({tp: 0}, {tp: 9}, contract.reader())
    assert [record.offset() for record in records[tp]] == [1, 2, 4, 5]


def test_nothing_comes_from_a_partition_while_it_is_paused(contract: Contract) -> None:
    topic = contract.topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = contract.reader()
    contract.read({first: 0, second: 0}, {first: 0, second: 0}, reader)
    reader.pause([first])
    writer = contract.writer(None)
    for number in (0, 1):
        writer.produce(topic, b"v", b"k", number)
    writer.flush()

    def next_records() -> set[TopicPartition]:
        found = contract.until(lambda: reader.poll(max_records=9, timeout_seconds=0.1).records, "a record")
        return set(found)

    assert next_records() == {second}
    reader.resume([first])
    assert next_records() == {first}


def test_partition_is_read_again_when_it_was_paused_before_it_was_assigned_anew(contract: Contract) -> None:
    tp = filled(contract)
    reader = contract.reader()
    contract.read({tp: 0}, {tp: 1}, reader)
    reader.pause([tp])
    reader.assign({})
    contract.read({tp: 0}, {tp: 1}, reader)


@pytest.mark.parametrize("position", ["past the end", "before the start"])
def test_position_outside_the_log_is_an_error(contract: Contract, position: str) -> None:
    tp = filled(contract)
    contract.admin.delete_records({tp: 2})
    reader = contract.reader()
    reader.assign({tp: 99 if position == "past the end" else 0})
    with pytest.raises(KafkaClientError, match="not in the log") as caught:
        contract.until(lambda: reader.poll(max_records=9, timeout_seconds=0.1).records, "an error")
    assert not caught.value.is_retriable
    assert caught.value.kafka_code == "_AUTO_OFFSET_RESET"


def test_committed_offsets_come_back_with_their_metadata(contract: Contract) -> None:
    topic = contract.topic(3)
    one, two, three = (TopicPartition(topic, number) for number in range(3))
    reader = contract.reader()
    assert reader.committed([one, two]) == {}
    reader.commit({one: CommittedOffset(7, '{"run":"\u00fc"}'), two: CommittedOffset(1)})
    reader.commit({two: CommittedOffset(0)})
    assert contract.reader().committed([one, two, three]) == {
        one: CommittedOffset(7, '{"run":"\u00fc"}'),
        two: CommittedOffset(0),
    }
    assert contract.reader(group=f"{contract.group}-other").committed([one]) == {}


def test_offsets_of_no_partition_are_refused(contract: Contract) -> None:
    tp = TopicPartition(contract.topic(), 0)
    reader = contract.reader()
    for other in (TopicPartition(tp.topic, 1), TopicPartition(f"{tp.topic}-missing", 0)):
        with pytest.raises(KafkaClientError) as caught:
            reader.commit({other: CommittedOffset(1)})
        assert caught.value.kafka_code == "UNKNOWN_TOPIC_OR_PART"
        assert reader.committed([other]) == {}
    with pytest.raises(KafkaClientError) as caught:
        reader.commit({tp: CommittedOffset(-1)})
    assert caught.value.kafka_code == "_NO_OFFSET"
    assert reader.committed([tp]) == {}


def test_reader_may_be_closed_twice(contract: Contract) -> None:
    reader = contract.reader()
    reader.close()
    reader.close()


def test_closed_reader_refuses_to_read(contract: Contract) -> None:
    tp = filled(contract)
    reader = contract.reader()
    reader.assign({tp: 0})
    reader.close()
    uses: list[Callable[[], object]] = [
        lambda: reader.assign({tp: 0}),
        lambda: reader.poll(max_records=1, timeout_seconds=0),
        lambda: reader.committed([tp]),
        lambda: reader.commit({tp: CommittedOffset(1)}),
        lambda: reader.pause([tp]),
    ]
    for use in uses:
        with pytest.raises(KafkaClientError, match="closed"):
            use()
    assert contract.reader().committed([tp]) == {}
    writer = contract.writer()
    writer.begin()
    with pytest.raises(KafkaClientError, match="closed"):
        writer.send_offsets({tp: CommittedOffset(1)}, reader)
    records, _ = contract.read({tp: 0}, {tp: 3}, contract.reader())
    assert len(records[tp]) == 3
