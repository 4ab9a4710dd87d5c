"""What brokers before Kafka 3.6 do not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_kstreams.batch.protocol.topics import PROTOCOL, REPARTITION
from airflow_kstreams.kafka.admin import ClusterAdmin
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import AdminPort, TopicSpec

if TYPE_CHECKING:
    from confluent_kafka.cimpl import NewTopic

_SIDES = {"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}


@pytest.fixture
def asked() -> list[dict[str, Mapping[str, str]]]:
    """Each request to create topics: topic -> settings."""
    return []


@pytest.fixture
def broker_of(
    monkeypatch: pytest.MonkeyPatch, asked: list[dict[str, Mapping[str, str]]]
) -> Callable[..., AdminPort]:
    """Make the admin of a broker that refuses topics with settings that it does not know."""

    def make(*unknown: str) -> AdminPort:
        admin = KafkaCluster({"bootstrap.servers": "127.0.0.1:1"}).admin()
        assert isinstance(admin, ClusterAdmin)

        def ask(what: str, method: str, request: Sequence[NewTopic], **_: Any) -> dict[str, Future[Any]]:
            assert method == "create_topics"
            asked.append({topic.topic: dict(topic.config or {}) for topic in request})
            answers: dict[str, Future[Any]] = {topic.topic: Future() for topic in request}
            for topic in request:
                names = [name for name in topic.config or () if name in unknown]
                if names:
                    error = KafkaError(KafkaError.INVALID_CONFIG, f"Unknown topic config name: {names[0]}")
                    answers[topic.topic].set_exception(KafkaException(error))
                else:
                    answers[topic.topic].set_result(None)
            return answers

        monkeypatch.setattr(admin._requests, "ask", ask)
        monkeypatch.setattr(admin._requests, "wait_until", lambda *_: None)
        return admin

    return make


def test_topics_of_the_engine_are_created_when_the_broker_knows_one_setting_for_both_sides(
    broker_of: Callable[..., AdminPort],
    asked: list[dict[str, Mapping[str, str]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    specs = [
        TopicSpec(name="ledger", partitions=1, configs=PROTOCOL),
        TopicSpec(name="between", partitions=4, configs=REPARTITION),
        TopicSpec(name="others", partitions=4, configs={"retention.ms": "-1"}),
    ]

    broker_of(*_SIDES).create_topics(specs)

    _, created = asked
    assert all(not _SIDES & configs.keys() for configs in created.values())
    for spec in specs[:2]:
        kept = {name: value for name, value in spec.configs.items() if name not in _SIDES}
        assert created[spec.name] == {**kept, "message.timestamp.difference.max.ms": str(2**63 - 1)}
    assert created["others"] == {"retention.ms": "-1"}
    assert "older than Kafka 3.6" in caplog.text


def test_brokers_first_answer_is_told_when_it_does_not_know_another_setting(
    broker_of: Callable[..., AdminPort], caplog: pytest.LogCaptureFixture
) -> None:
    configs = {**PROTOCOL, "segment.msec": "1"}
    with pytest.raises(KafkaClientError, match=r"segment\.msec"):
        broker_of("segment.msec", "message.timestamp.difference.max.ms").create_topics(
            [TopicSpec(name="ledger", partitions=1, configs=configs)]
        )
    assert caplog.text == ""
