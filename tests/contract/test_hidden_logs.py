"""Somebody leaves a transaction open on the metadata topic or the ledger: what the error says of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.logs.log_read import OpenTransactionError
from airflow_kstreams.batch.protocol.slice.metadata import read_metadata
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
from tests.contract.conftest import Contract
from tests.support.kafka.printed_commands import printed_commands

pytestmark = pytest.mark.promise("hanging-transactions-are-named")


@pytest.mark.parametrize(
    ("which", "read"),
    [("metadata", read_metadata), ("ledger", read_ledger)],
    ids=["metadata topic", "ledger"],
)
def test_error_names_offsets_age_and_the_command_when_an_open_transaction_hides_what_is_committed(
    contract: Contract, which: str, read: Callable[..., object]
) -> None:
    app = contract.group
    at = TopicPartition(contract.topic(name=getattr(ProtocolTopics(app), which), cleanup_policy="compact"), 0)
    plain, hanging = contract.writer(None), contract.writer(f"{app}-foreign")
    plain.produce(at.topic, b"1", b"before", 0)
    plain.flush()
    hanging.begin()
    hanging.produce(at.topic, b"1", b"open", 0)
    hanging.flush()
    plain.produce(at.topic, b"1", b"hidden", 0)
    plain.flush()
    with pytest.raises(OpenTransactionError) as caught:
        read(contract.cluster, app, wait_ms=200, clock=contract.clock)
    error = caught.value
    assert re.search(
        rf"{at}: a transaction that is still open hides committed records: last stable offset 1, high "
        r"watermark 3, open for \d+ s",
        error.cause,
    )
    assert error.is_retriable
    find, abort = printed_commands(error.fix)
    place = ["--topic", at.topic, "--partition", "0"]
    assert find[3:] == ["describe-producers", *place]
    assert abort[3:] == ["abort", *place, "--start-offset", "1"]
    hanging.abort()
