"""The admin port on the real broker."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable

import pytest
from confluent_kafka import TopicCollection

from airflow_kstreams.kafka.admin import ClusterAdmin
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import AdminPort, TopicPartition, TopicSpec


@pytest.fixture
def admin(kafka: str) -> AdminPort:
    return KafkaCluster({"bootstrap.servers": kafka}).admin()


def test_topics_can_be_used_at_once_when_they_were_just_created(
    admin: AdminPort, topic_name: Callable[..., str]
) -> None:
    names = [topic_name("new") for _ in range(4)]
    assert admin.describe_topics(names) == {}
    admin.create_topics([TopicSpec(name=name, partitions=3) for name in names])
    partitions = [TopicPartition(name, number) for name in names for number in range(3)]
    assert admin.end_offsets(partitions, isolation="read_committed") == dict.fromkeys(partitions, 0)
    assert {name: found.partitions for name, found in admin.describe_topics(names).items()} == dict.fromkeys(
        names, 3
    )


def test_topic_is_left_alone_when_it_exists(admin: AdminPort, topic_name: Callable[..., str]) -> None:
    name = topic_name("kept")
    admin.create_topics([TopicSpec(name=name, partitions=1)])
    before = admin.describe_topics([name])
    admin.create_topics([TopicSpec(name=name, partitions=5)])
    assert admin.describe_topics([name]) == before


def test_topic_id_changes_when_a_topic_is_created_again(
    admin: AdminPort, topic_name: Callable[..., str]
) -> None:
    name = topic_name("again")
    ids = set()
    for _ in range(2):
        admin.create_topics([TopicSpec(name=name, partitions=1)])
        ids.add(admin.describe_topics([name])[name].topic_id)
        admin.delete_topics([name])
        assert admin.describe_topics([name]) == {}
    assert len(ids) == 2
    admin.delete_topics([name])


def test_settings_in_force_are_told_when_some_are_the_brokers_own(
    admin: AdminPort, topic_name: Callable[..., str]
) -> None:
    name = topic_name("set")
    admin.create_topics([TopicSpec(name=name, partitions=1, configs={"delete.retention.ms": "1234"})])
    absent = topic_name("absent")
    found, refused = admin.topic_configs([name, absent])
    assert {*found} == {name} and {*refused} == {absent}
    configs = found[name]
    assert (configs["delete.retention.ms"], configs["cleanup.policy"]) == ("1234", "delete")
    assert refused[absent].cause.startswith(f"describing the settings of topic {absent}")


def test_configs_reach_the_broker_when_a_topic_is_created(
    admin: AdminPort, topic_name: Callable[..., str]
) -> None:
    with pytest.raises(KafkaClientError, match="creating topic"):
        admin.create_topics(
            [TopicSpec(name=topic_name("bad"), partitions=1, configs={"cleanup.policy": "shred"})]
        )


def test_log_start_moves_when_records_are_deleted(
    admin: AdminPort,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
) -> None:
    tp = TopicPartition(create_topic(topic_name("purged")), 0)
    produce(tp.topic, [("k", "v")] * 5)
    admin.delete_records({tp: 3})
    assert admin.start_offsets([tp]) == {tp: 3}
    assert admin.end_offsets([tp], isolation="read_uncommitted") == {tp: 5}


@pytest.mark.remedy("admin.ClusterAdmin._refuse_missing")
def test_offsets_of_a_missing_topic_are_an_error_until_it_is_created(
    admin: AdminPort, topic_name: Callable[..., str]
) -> None:
    tp = TopicPartition(topic_name("missing"), 0)
    with pytest.raises(KafkaClientError, match=f"no such topic or partition: {tp}"):
        admin.end_offsets([tp], isolation="read_committed")
    admin.create_topics([TopicSpec(name=tp.topic, partitions=1)])
    assert admin.end_offsets([tp], isolation="read_committed") == {tp: 0}


@pytest.mark.remedy("admin.ClusterAdmin.create_partitions")
def test_topic_gets_the_partitions_that_the_refusal_of_fewer_names(
    admin: AdminPort, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> None:
    name = create_topic(topic_name("wide"), 3)
    with pytest.raises(KafkaClientError) as refused:
        admin.create_partitions(name, 2)
    (count,) = re.findall(r"ask for (\d+) or more", refused.value.fix)
    for each in (int(count), int(count) + 1):
        admin.create_partitions(name, each)
        assert admin.describe_topics([name])[name].partitions == each


@pytest.mark.remedy("client_errors.from_kafka_error")
def test_offsets_of_a_missing_partition_are_an_error_until_the_topic_has_it(
    admin: AdminPort, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> None:
    name = create_topic(topic_name("narrow"), 1)
    with pytest.raises(KafkaClientError, match=f"{name}-5.*no such topic or partition"):
        admin.end_offsets([TopicPartition(name, 0), TopicPartition(name, 5)], isolation="read_committed")
    admin.create_partitions(name, 6)
    end = {TopicPartition(name, 5): 0}
    assert admin.end_offsets([*end], isolation="read_committed") == end


def test_request_is_answered_when_its_client_was_given_up_meanwhile(
    kafka: str, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> None:
    name = create_topic(topic_name("in"), 1)
    admin = KafkaCluster({"bootstrap.servers": kafka}).admin()
    assert isinstance(admin, ClusterAdmin)
    answers = admin._requests.ask("describing topics", "describe_topics", TopicCollection([name]))
    admin.close()  # as a thread does whose client knows no leader of a partition
    gc.collect()
    assert answers[name].result(30).name == name


def test_empty_requests_need_no_broker_when_there_is_nothing_to_ask() -> None:
    admin = KafkaCluster({"bootstrap.servers": "127.0.0.1:1"}).admin()
    assert admin.describe_topics([]) == {}
    assert admin.end_offsets([], isolation="read_committed") == {}
    assert admin.start_offsets([]) == {}
    admin.create_topics([])
    admin.delete_topics([])
    admin.delete_records({})
    admin.close()
