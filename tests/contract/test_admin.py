"""What every implementation of ``AdminPort`` does."""

from __future__ import annotations

import uuid

import pytest

from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition, TopicSpec
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


def test_settings_are_told_with_the_defaults(contract: Contract) -> None:
    topic = contract.topic(cleanup_policy="compact", delete_retention_ms="1234")
    given = {"cleanup.policy": "compact", "delete.retention.ms": "1234"}
    assert contract.admin.topic_configs(topic).items() >= given.items()
    defaults = {
        "cleanup.policy": "delete",
        "delete.retention.ms": "86400000",
        "max.message.bytes": "1048588",
        "retention.ms": "604800000",
    }
    assert contract.admin.topic_configs(contract.topic()).items() >= defaults.items()
    with pytest.raises(KafkaClientError) as caught:
        contract.admin.topic_configs(f"missing-{uuid.uuid4().hex}")
    assert caught.value.code == "UNKNOWN_TOPIC_OR_PART"


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
    assert caught.value.code == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize("what", ["topic", "partition"])
def test_missing_partition_is_an_error_when_offsets_are_asked_for(contract: Contract, what: str) -> None:
    topic = contract.topic() if what == "partition" else f"missing-{uuid.uuid4().hex}"
    tp = TopicPartition(topic, 7)
    for ask in (
        lambda: contract.admin.end_offsets([tp], isolation="read_committed"),
        lambda: contract.admin.start_offsets([tp]),
        lambda: contract.admin.delete_records({tp: 1}),
    ):
        with pytest.raises(KafkaClientError, match="no such topic or partition") as caught:
            ask()
        assert caught.value.code == "UNKNOWN_TOPIC_OR_PART"
        assert not caught.value.is_retriable
