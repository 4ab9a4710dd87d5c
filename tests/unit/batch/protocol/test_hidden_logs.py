"""Somebody else's open transaction hides what the application's own topics say, when a run begins."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.protocol.logs.log_read import OpenTransactionError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from tests.support.kafka.copies import APP, copying, kafka_with_topics, publish, results
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("hanging-transactions-are-named")


@pytest.mark.remedy("log_read._hidden")
@pytest.mark.parametrize("topic", [ProtocolTopics(APP).metadata, ProtocolTopics(APP).ledger])
@pytest.mark.parametrize("program", ["found", "ended"])
def test_nothing_is_begun_when_an_open_transaction_hides_what_is_committed(topic: str, program: str) -> None:
    kafka = kafka_with_topics()
    app = copying(kafka)
    publish(kafka, 1, 2)
    app.run("run-1")
    publish(kafka, 3)
    hanging = kafka.writer(transactional_id="foreign", transaction_timeout_ms=900_000)
    hanging.init_transactions()
    hanging.begin()
    hanging.produce(topic, b"1", b"open", 0)
    hanging.flush()
    kafka.clock.sleep(60)
    before = kafka.records(ProtocolTopics(APP).metadata, isolation="read_uncommitted")
    with pytest.raises(OpenTransactionError) as caught:
        app.begin("run-2")
    error = caught.value
    assert f"{topic}-0: a transaction that is still open hides committed records" in error.cause
    assert "open for 9" in error.cause, "a minute, and as long as begin waited"
    assert f"describe-producers --topic {topic} --partition 0" in error.fix
    assert error.is_retriable
    assert kafka.records(ProtocolTopics(APP).metadata, isolation="read_uncommitted") == before
    if program == "ended":
        accept_in_memory(error, kafka)
    else:
        hanging.abort()
    app.run("run-2")
    assert results(kafka) == ["1", "2", "3"]
