"""``airflow-kstreams topics`` does what errors ask for, to the topics that it names and to no other."""

from __future__ import annotations

import pytest

from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.unit.cli.test_app import invoke

AT = ("--bootstrap-server", "in-memory:9092")


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=0))
    kafka.create_topic("orders", partitions=2)
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda config, **_: kafka)
    return kafka


def said(*arguments: str, exit_code: int = 0) -> str:
    result = invoke("topics", *arguments, *AT)
    assert result.exit_code == exit_code, result.stderr
    return result.stderr if exit_code else result.stdout


def partitions(kafka: InMemoryKafka) -> dict[str, int]:
    described = kafka.admin().describe_topics(kafka.topics())
    return {name: found.partitions for name, found in described.items()}


@pytest.mark.promise("dry-runs-of-topics-change-nothing")
def test_missing_topics_are_created_and_others_stay(kafka: InMemoryKafka) -> None:
    create = ("create", "orders", "sales", "--partitions", "3", "--config", "retention.ms=-1")
    assert said(*create, "--dry-run").splitlines() == [
        "orders: stays as it is, partitions: 2",
        "sales: would be created, partitions: 3",
    ]
    assert partitions(kafka) == {"orders": 2}
    assert said(*create).splitlines()[1] == "sales: created, partitions: 3"
    assert partitions(kafka) == {"orders": 2, "sales": 3}
    configs = kafka.admin().topic_configs(["orders", "sales"]).found
    assert configs["sales"]["retention.ms"] == "-1" != configs["orders"]["retention.ms"]


def test_what_is_named_is_set_and_the_rest_stays(kafka: InMemoryKafka) -> None:
    kafka.alter_topic("orders", max_message_bytes="5000")
    changes = ("set", "orders", "--config", "retention.ms=-1", "--partitions", "4")
    assert said(*changes, "--dry-run") == "orders: would be set: retention.ms=-1, 4 partitions\n"
    assert partitions(kafka) == {"orders": 2}
    assert said(*changes) == "orders: set: retention.ms=-1, 4 partitions\n"
    configs = kafka.admin().topic_configs(["orders"]).found["orders"]
    assert (configs["retention.ms"], configs["max.message.bytes"]) == ("-1", "5000")
    assert partitions(kafka) == {"orders": 4}
    assert "name at least one change" in said("set", "orders", exit_code=2)


@pytest.mark.remedy("topics._refuse_missing")
def test_nothing_is_set_where_a_topic_is_missing(kafka: InMemoryKafka) -> None:
    refused = said("set", "orders", "sales", "--partitions", "4", exit_code=1)
    assert partitions(kafka) == {"orders": 2}
    assert "sales does not exist" in refused
    assert "airflow-kstreams topics create sales --bootstrap-server <broker>" in refused
    said("create", "sales", "--partitions", "1")
    said("set", "orders", "sales", "--partitions", "4")
    assert partitions(kafka) == {"orders": 4, "sales": 4}


def test_named_topics_are_deleted_and_those_that_match(kafka: InMemoryKafka) -> None:
    for name in ("orders-backfill-may-runs", "orders-backfill-may-metadata", "sales"):
        kafka.create_topic(name)
    named = ("delete", "orders-backfill-*", "sales", "gone")
    assert said(*named, "--dry-run").splitlines() == [
        "orders-backfill-may-metadata: would be deleted",
        "orders-backfill-may-runs: would be deleted",
        "sales: would be deleted",
        "gone: does not exist",
    ]
    assert len(kafka.topics()) == 4
    assert "sales: deleted" in said(*named)
    assert partitions(kafka) == {"orders": 2}
    assert "name how they begin" in said("delete", "*", exit_code=2)
    assert partitions(kafka) == {"orders": 2}
