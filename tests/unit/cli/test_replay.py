"""``airflow-kstreams replay`` on the in-memory Kafka: options, tables, one line per error."""

from __future__ import annotations

import pytest

from airflow_kstreams.testing import InMemoryKafka
from tests.unit.cli.test_app import invoke

OPTIONS = ("--application-id", "app", "--bootstrap-server", "in-memory:9092")


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> InMemoryKafka:
    """Two letters from ``in`` and one of a timer; the command's cluster is this one."""
    kafka = InMemoryKafka()
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda config, **_: kafka)
    kafka.create_topic("in")
    for topic in ("app-dead-letter", "named"):
        kafka.create_topic(topic)
        for origin in (b"in", b"in", b""):
            headers = [("__streams.errors.topic", origin), ("__streams.errors.partition", b"0")]
            kafka.append(topic, topic.encode(), b"k", headers=[("own", b"1"), *headers])
    return kafka


def test_records_are_back_and_counted_when_run(kafka: InMemoryKafka) -> None:
    result = invoke("replay", *OPTIONS)

    assert (result.exit_code, result.stderr) == (0, "")
    assert ["in", "2"] in [line.split() for line in result.stdout.splitlines()]
    assert "Left alone: 1 letters" in result.stdout
    assert result.stdout.endswith("Done.\n")
    assert kafka.values("in") == [b"app-dead-letter"] * 2
    assert "There is nothing to bring back from app-dead-letter." in invoke("replay", *OPTIONS).stdout


def test_nothing_changes_when_run_dry(kafka: InMemoryKafka) -> None:
    result = invoke("replay", *OPTIONS, "--dead-letter-topic", "named", "--dry-run")

    assert (result.exit_code, result.stderr) == (0, "")
    assert "Dead letters of named" in result.stdout
    assert result.stdout.endswith("Dry run: nothing was changed.\n")
    assert kafka.values("in") == []


def test_one_line_says_what_to_do_when_there_is_no_such_topic(kafka: InMemoryKafka) -> None:
    result = invoke("replay", *OPTIONS, "--dead-letter-topic", "misspelt")

    assert result.exit_code == 1
    assert "'misspelt' does not exist -- what to do: check the application id" in result.stderr
    assert result.stderr.count("\n") == 1
