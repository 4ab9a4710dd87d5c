"""What every implementation of ``AdminPort`` does."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import CommittedOffset, Record, TopicPartition, TopicSpec
from tests.contract.conftest import Contract


def test_missing_topics_are_absent_when_topics_are_described(contract: Contract) -> None:
    topic = contract.topic(3)
    found = contract.admin.describe_topics([topic, f"missing-{uuid.uuid4().hex}"])
    assert {name: description.partitions for name, description in found.items()} == {topic: 3}
    assert contract.admin.describe_topics([]) == {}


def test_topic_is_left_alone_when_it_exists(contract: Contract) -> None:
    topic = contract.topic(1)
    before = contract.admin.describe_topics([topic])
    contract.admin.create_topics([TopicSpec(name=topic, partitions=5)])
    contract.admin.create_topics([])
    assert contract.admin.describe_topics([topic]) == before


def test_topic_is_refused_when_its_name_is_taken_for_anothers(contract: Contract) -> None:
    topic = f"{contract.topic()}.a_b"
    made, others = TopicSpec(name=topic, partitions=1), f"{topic.partition('.')[0]}_a.b"
    contract.admin.create_topics([made])
    with pytest.raises(KafkaClientError, match=f"collides with existing topic: {topic}") as caught:
        contract.admin.create_topics([TopicSpec(name=others, partitions=1)])
    assert (caught.value.kafka_code, caught.value.is_retriable) == ("TOPIC_EXCEPTION", False)
    assert contract.admin.describe_topics([topic, others]).keys() == {topic}
    contract.admin.create_topics([made])


@pytest.mark.parametrize(
    ("name", "partitions", "code"),
    [
        ("a b", 1, "TOPIC_EXCEPTION"),
        ("n" * 250, 1, "TOPIC_EXCEPTION"),
        ("..", 1, "TOPIC_EXCEPTION"),
        ("", 1, "TOPIC_EXCEPTION"),
        ("contract-without-partitions", 0, "INVALID_PARTITIONS"),
    ],
    ids=["blank", "too long", "dots", "empty", "no partition"],
)
def test_topic_is_refused_when_it_cannot_be_made_so(
    contract: Contract, name: str, partitions: int, code: str
) -> None:
    with pytest.raises(KafkaClientError, match="creating topic") as caught:
        contract.admin.create_topics([TopicSpec(name=name, partitions=partitions)])
    assert (caught.value.kafka_code, caught.value.is_retriable) == (code, False)


def test_topics_are_refused_when_one_stands_there_twice(contract: Contract) -> None:
    name = f"{contract.topic()}-twice"
    with pytest.raises(KafkaClientError, match="Duplicate topic name") as caught:
        contract.admin.create_topics([TopicSpec(name=name, partitions=1)] * 2)
    assert caught.value.kafka_code == "INVALID_REQUEST"
    assert not contract.admin.describe_topics([name])


@pytest.mark.promise("topics-grow-once-by-the-operator")
def test_topic_gains_partitions_when_it_is_given_more(contract: Contract) -> None:
    topic, admin = contract.topic(2), contract.admin
    writer = contract.writer(None)
    writer.produce(topic, b"v", b"k", 1)
    writer.flush()
    before = admin.describe_topics([topic])[topic].topic_id
    admin.create_partitions(topic, 5)
    found = admin.describe_topics([topic])[topic]
    assert (found.partitions, found.topic_id) == (5, before)
    partitions = [TopicPartition(topic, number) for number in range(5)]
    ends = admin.end_offsets(partitions, isolation="read_uncommitted")
    assert [ends[tp] for tp in partitions] == [0, 1, 0, 0, 0]
    # As after an answer that was lost.
    admin.create_partitions(topic, 5)
    assert admin.describe_topics([topic])[topic] == found


def test_partitions_are_refused_when_the_topic_has_more(contract: Contract) -> None:
    topic = contract.topic(3)
    with pytest.raises(KafkaClientError, match=f"giving topic {topic} 2 partitions.*it has 3") as caught:
        contract.admin.create_partitions(topic, 2)
    assert (caught.value.kafka_code, caught.value.is_retriable) == ("INVALID_PARTITIONS", False)
    assert contract.admin.describe_topics([topic])[topic].partitions == 3


def test_partitions_are_refused_when_there_is_no_topic(contract: Contract) -> None:
    topic = f"missing-{uuid.uuid4().hex}"
    with pytest.raises(KafkaClientError, match=topic) as caught:
        contract.admin.create_partitions(topic, 2)
    assert (caught.value.kafka_code, caught.value.is_retriable) == ("UNKNOWN_TOPIC_OR_PART", False)
    assert contract.admin.describe_topics([topic]) == {}


def test_settings_that_are_not_named_stay_when_a_topic_is_altered(
    contract: Contract, wait_until: Callable[..., Any]
) -> None:
    topic, admin = contract.topic(), contract.admin
    admin.alter_topic(topic, {"retention.ms": "-1", "max.message.bytes": "5000"})
    admin.alter_topic(topic, {"max.message.bytes": "6000"})

    def altered() -> bool:
        found = admin.topic_configs([topic]).found[topic]
        return (found["retention.ms"], found["max.message.bytes"]) == ("-1", "6000")

    wait_until(altered, "the second change")
    missing = f"missing-{uuid.uuid4().hex}"
    with pytest.raises(KafkaClientError, match=missing) as caught:
        admin.alter_topic(missing, {"retention.ms": "-1"})
    assert (caught.value.kafka_code, caught.value.is_retriable) == ("UNKNOWN_TOPIC_OR_PART", False)


def test_topic_has_another_id_when_it_is_created_again(contract: Contract) -> None:
    topic, admin = contract.topic(), contract.admin
    ids = {admin.describe_topics([topic])[topic].topic_id}
    writer = contract.writer(None)
    writer.produce(topic, b"v", b"k", 0)
    writer.flush()
    admin.delete_topics([topic, f"missing-{uuid.uuid4().hex}"])
    assert admin.describe_topics([topic]) == {}
    admin.create_topics([TopicSpec(name=topic, partitions=1)])
    ids.add(admin.describe_topics([topic])[topic].topic_id)
    assert len(ids) == 2
    assert contract.ends(TopicPartition(topic, 0)) == (0, 0)


def test_end_of_a_log_is_of_no_earlier_epoch_than_its_records(contract: Contract) -> None:
    tp = TopicPartition(contract.topic(), 0)
    assert contract.admin.end_epochs([]) == {}
    writer = contract.writer(None)
    writer.produce(tp.topic, b"v", b"k", 0)
    writer.flush()
    reader = contract.reader()
    reader.assign({tp: 0})
    records: Sequence[Record] = ()
    while not records:
        records = reader.poll(max_records=1, timeout_seconds=1).records.get(tp, ())
    assert contract.admin.end_epochs([tp]) == {tp: records[0].leader_epoch()}


def test_settings_are_told_with_the_defaults(contract: Contract) -> None:
    topic = contract.topic(cleanup_policy="compact", delete_retention_ms="1234")
    given = {"cleanup.policy": "compact", "delete.retention.ms": "1234"}
    other, missing = contract.topic(), f"missing-{uuid.uuid4().hex}"
    found, refused = contract.admin.topic_configs([topic, missing, other])
    assert {*found} == {topic, other}
    assert found[topic].items() >= given.items()
    defaults = {
        "cleanup.policy": "delete",
        "delete.retention.ms": "86400000",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": str(2**63 - 1),
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
    assert found[other].items() >= defaults.items()
    assert {name: error.kafka_code for name, error in refused.items()} == {missing: "UNKNOWN_TOPIC_OR_PART"}
    assert contract.admin.topic_configs([]) == ({}, {})


def test_settings_of_the_broker_are_told_with_the_defaults(contract: Contract) -> None:
    expected = {
        "default.replication.factor": "1",
        "message.max.bytes": "1048588",
        "offsets.retention.minutes": "10080",
        "transaction.max.timeout.ms": "900000",
        "transactional.id.expiration.ms": "604800000",
    }
    found = contract.admin.broker_configs()
    assert found.items() >= expected.items()
    assert found["process.roles"] == "broker,controller"


def test_every_user_may_do_everything_without_an_authorizer(contract: Contract) -> None:
    assert contract.admin.allowed([contract.topic(), "no-such-topic"], ["no-such-group"]) is None


def test_replicas_are_told_when_a_topic_is_described(contract: Contract) -> None:
    topic = contract.topic(2)
    assert contract.admin.describe_topics([topic])[topic].replicas == 1


def test_committed_offsets_go_with_their_topic_when_it_is_deleted(contract: Contract) -> None:
    kept, gone = TopicPartition(contract.topic(), 0), TopicPartition(contract.topic(), 0)
    contract.reader().commit({kept: CommittedOffset(5, "kept"), gone: CommittedOffset(5, "gone")})
    contract.admin.delete_topics([gone.topic])
    contract.admin.create_topics([TopicSpec(name=gone.topic, partitions=1)])
    reader = contract.reader()
    deadline = contract.clock.monotonic_seconds() + 30
    while gone in (found := reader.committed([kept, gone])):
        assert contract.clock.monotonic_seconds() < deadline
        contract.clock.sleep(0.05)
    assert found == {kept: CommittedOffset(5, "kept")}


def test_both_ends_are_told_while_a_transaction_is_open(contract: Contract) -> None:
    tp = TopicPartition(contract.topic(), 0)
    writer = contract.writer()
    writer.begin()
    for _ in range(3):
        writer.produce(tp.topic, b"v", b"k", 0)
    writer.flush()
    assert contract.ends(tp) == (0, 3)
    writer.commit()
    contract.settled(tp, 4)


def test_log_starts_later_when_records_were_deleted(contract: Contract) -> None:
    tp, admin = TopicPartition(contract.topic(), 0), contract.admin
    writer = contract.writer(None)
    for number in range(5):
        writer.produce(tp.topic, b"%d" % number, b"k", 0)
    writer.flush()
    assert admin.start_offsets([tp]) == {tp: 0}
    admin.delete_records({tp: 3})
    admin.delete_records({tp: 2})
    admin.delete_records({})
    assert admin.start_offsets([tp]) == {tp: 3}
    assert contract.ends(tp) == (5, 5)
    records, _ = contract.read({tp: 3}, {tp: 5}, contract.reader())
    assert [record.value() for record in records[tp]] == [b"3", b"4"]
    admin.delete_records({tp: 5})
    assert admin.start_offsets([tp]) == {tp: 5}
    with pytest.raises(KafkaClientError) as caught:
        admin.delete_records({tp: 6})
    assert caught.value.kafka_code == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize("what", ["topic", "partition"])
def test_missing_partition_is_an_error_when_offsets_are_asked_for(contract: Contract, what: str) -> None:
    topic = contract.topic() if what == "partition" else f"missing-{uuid.uuid4().hex}"
    tp = TopicPartition(topic, 7)
    for ask in (
        lambda: contract.admin.end_offsets([tp], isolation="read_committed"),
        lambda: contract.admin.start_offsets([tp]),
        lambda: contract.admin.offsets_for_times({tp: 1}),
        lambda: contract.admin.delete_records({tp: 1}),
    ):
        with pytest.raises(KafkaClientError, match="no such topic or partition") as caught:
            ask()
        assert caught.value.kafka_code == "UNKNOWN_TOPIC_OR_PART"
        assert not caught.value.is_retriable


def test_names_of_topics_are_told(contract: Contract) -> None:
    topic, admin = contract.topic(), contract.admin
    assert topic in admin.topic_names()
    admin.delete_topics([topic])
    assert topic not in admin.topic_names()


def test_first_offset_at_or_after_a_time_is_told_when_records_are_out_of_order(contract: Contract) -> None:
    topic, admin = contract.topic(2), contract.admin
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    writer = contract.writer(None)
    for timestamp_ms in (1_000, 3_000, 2_000, 4_000):
        writer.produce(topic, b"v", b"k", 0, timestamp_ms)
        writer.flush()  # in a batch of its own
    found = {time_ms: admin.offsets_for_times({tp: time_ms}) for time_ms in (1, 1_000, 1_001, 2_000, 3_001)}
    assert found == {1: {tp: 0}, 1_000: {tp: 0}, 1_001: {tp: 1}, 2_000: {tp: 1}, 3_001: {tp: 3}}
    assert admin.offsets_for_times({tp: 4_001, empty: 1}) == {}
    assert admin.offsets_for_times({}) == {}
    admin.delete_records({tp: 2})
    assert admin.offsets_for_times({tp: 1, empty: 1}) == {tp: 2}


def test_marker_is_dated_when_it_was_written_when_a_time_is_looked_up(contract: Contract) -> None:
    tp, admin = TopicPartition(contract.topic(), 0), contract.admin
    writer = contract.writer()
    for committed in (True, False):
        writer.begin()
        writer.produce(tp.topic, b"v", b"k", 0, 1_000)
        writer.flush()
        assert admin.offsets_for_times({tp: 1_001}) == ({} if committed else {tp: 1})
        (writer.commit if committed else writer.abort)()
    contract.settled(tp, 4)
    assert admin.offsets_for_times({tp: 1}) == {tp: 0}
    assert admin.offsets_for_times({tp: 1_001}) == {tp: 1}


def test_group_is_listed_without_members_when_only_offsets_were_committed(contract: Contract) -> None:
    tp = TopicPartition(contract.topic(), 0)
    assert contract.group not in contract.admin.group_ids()
    assert contract.admin.group_members(contract.group) == ()
    contract.reader().commit({tp: CommittedOffset(0)})
    assert contract.group in contract.admin.group_ids()
    assert contract.admin.group_members(contract.group) == ()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_told_when_consumers_joined_the_group(contract: Contract, protocol: str) -> None:
    with contract.member(contract.topic(), protocol=protocol) as client_id:
        (member,) = contract.admin.group_members(contract.group)
        assert member.client_id == client_id
        assert str(member) == f"{client_id} at 127.0.0.1"
    contract.until(lambda: contract.admin.group_members(contract.group) == (), "the member to leave")
