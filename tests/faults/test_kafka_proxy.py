"""The proxy that the other fault tests trust: it knows requests, and does what a rule says, only that."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import pack, unpack
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from dev.proxy.kafka_proxy import Action, KafkaProxy, Rule
from dev.proxy.kafka_proxy_control import ProxyControl, RemoteProxy
from dev.proxy.kafka_request import Api, end_txn_error, parse_request
from dev.servers.embedded import HOST
from tests.conftest import Row

INVALID_TXN_STATE = 48


def header(api: Api, version: int, client: bytes = b"rdkafka") -> bytes:
    return pack(">hhih", api, version, 7, len(client)) + client


def test_transaction_is_known_in_every_encoding() -> None:
    old = header(Api.END_TXN, 1) + pack(">h5sqh?", 5, b"app-0", 900, 3, True)
    compact = header(Api.END_TXN, 3) + b"\x00" + b"\x06app-0" + pack(">qh?", 900, 3, False) + b"\x00"
    tagged = header(Api.INIT_PRODUCER_ID, 4) + b"\x01\x05\x02xy" + b"\x06app-0" + pack(">i", 60_000)
    none = header(Api.INIT_PRODUCER_ID, 4) + b"\x00" + b"\x00" + pack(">i", 60_000)
    produce = header(Api.PRODUCE, 7) + pack(">h5shi", 5, b"app-0", -1, 30_000)
    told = [parse_request(frame) for frame in (old, compact, tagged, none, produce)]
    assert [request.transactional_id for request in told] == ["app-0", "app-0", "app-0", "", "app-0"]
    assert [request.commits for request in told] == [True, False, None, None, None]
    assert {request.correlation_id for request in told} == {7}
    unanswered = parse_request(header(Api.PRODUCE, 2) + pack(">hi", 0, 30_000))
    assert (unanswered.transactional_id, unanswered.answered) == ("", False)
    fetch = parse_request(header(Api.FETCH, 11) + pack(">iii", -1, 500, 1))
    assert (fetch.api, fetch.version, fetch.transactional_id) == (Api.FETCH, 11, "")


@pytest.fixture
def producer(proxy: KafkaProxy, application_id: str) -> Iterator[Producer]:
    made = Producer(
        {
            "bootstrap.servers": proxy.bootstrap,
            "transactional.id": application_id,
            "transaction.timeout.ms": 60_000,
            "socket.timeout.ms": 1_000,
            "log_level": 0,
        }
    )
    made.init_transactions(30)
    yield made
    proxy.clear()
    with suppress(KafkaException):  # a client in its fatal state says so once more
        made.close()


def begun(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.produce(topic, b"v", b"k", 0)
    assert producer.flush(30) == 0


#: Action, whether the client is told of a commit on its own, and how often it sends EndTxn for that.
MENDED: list[tuple[Action, int]] = [
    ("watch", 1),
    ("drop", 2),
    ("drop_answer", 2),
    ("cut", 2),
    ("cut_answered", 2),
]


@pytest.mark.parametrize(("action", "sent"), MENDED)
def test_commit_is_sent_again_when_its_request_or_answer_is_lost(
    proxy: KafkaProxy,
    producer: Producer,
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
    consume_all: Callable[..., list[Row]],
    action: Action,
    sent: int,
) -> None:
    topic = create_topic(topic_name())
    begun(producer, topic)
    every = Rule(action="watch", apis=(Api.END_TXN,), times=0)
    harmful = proxy.add(Rule(action=action, apis=(Api.END_TXN,), commits=True))
    others = proxy.add(every)
    producer.commit_transaction(30)
    (hit,) = proxy.hits(harmful)
    assert hit.request.commits
    assert hit.forwarded == (action not in ("drop", "cut"))
    assert (hit.answer is not None) == hit.forwarded
    assert 1 + len(proxy.hits(others)) == sent
    assert [row.value for row in consume_all(topic)] == [b"v"]


def test_late_commit_ends_a_later_transaction_when_a_plain_client_goes_on(
    proxy: KafkaProxy,
    producer: Producer,
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
    consume_all: Callable[..., list[Row]],
    wait_until: Callable[..., Any],
) -> None:
    """What the writer must defend itself against (``kafka/writer.py``) does happen on this broker."""
    topic = create_topic(topic_name())
    begun(producer, topic)
    held = proxy.add(Rule(action="hold", apis=(Api.END_TXN,)))
    again = proxy.add(Rule(action="watch", apis=(Api.END_TXN,)))
    producer.commit_transaction(30)
    assert len(proxy.hits(again)) == 1, "the client gave up on the held request and repeated it"
    begun(producer, topic)
    assert len(consume_all(topic)) == 1
    proxy.release(held)
    wait_until(lambda: proxy.hits(held)[0].answer, "the broker's answer to the late request")
    assert end_txn_error(proxy.hits(held)[0].answer or b"") == 0
    wait_until(lambda: len(consume_all(topic)) == 2, "the half-done transaction, committed by nobody")
    with pytest.raises(KafkaException):
        producer.abort_transaction(30)


def test_answer_waits_when_it_is_held(
    proxy: KafkaProxy, producer: Producer, create_topic: Callable[..., str], topic_name: Callable[..., str]
) -> None:
    begun(producer, create_topic(topic_name()))
    held = proxy.add(Rule(action="hold_answer", apis=(Api.END_TXN,), seconds=0.4))
    again = proxy.add(Rule(action="watch", apis=(Api.END_TXN,)))
    producer.commit_transaction(30)
    assert time.monotonic() - proxy.hits(held)[0].at_seconds >= 0.4
    assert proxy.hits(again) == [], "it came in time"


def connected(proxy: KafkaProxy) -> socket.socket:
    """Open a connection that has asked for the cluster's metadata and got it."""
    connection = socket.create_connection((HOST, proxy.port), timeout=30)
    ask(connection)
    read_answer(connection)
    return connection


def ask(connection: socket.socket) -> None:
    request = header(Api.METADATA, 1) + pack(">i", 0)
    connection.sendall(pack(">i", len(request)) + request)


def read_answer(connection: socket.socket) -> None:
    (length,) = unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    assert len(connection.recv(length, socket.MSG_WAITALL)) == length


def test_only_one_side_ends_when_a_rule_says_so(proxy: KafkaProxy, wait_until: Callable[..., Any]) -> None:
    with connected(proxy) as left, connected(proxy) as kept:
        ours = proxy.add(Rule(action="cut_client", apis=(Api.METADATA,)))
        ask(left)
        assert left.recv(1) == b""
        wait_until(lambda: proxy.hits(ours)[0].answer, "the broker's answer, which nobody gets")
        theirs = proxy.add(Rule(action="cut_broker", apis=(Api.METADATA,)))
        ask(kept)
        wait_until(lambda: proxy.hits(theirs), "the request")
        kept.settimeout(0.2)
        with pytest.raises(TimeoutError):
            kept.recv(1)
        ask(kept)
        assert not proxy.hits(theirs)[0].forwarded
        proxy.release(theirs)
        kept.settimeout(30)
        assert kept.recv(1) == b"", "the release ends it"


def test_another_process_gives_the_same_orders(proxy: KafkaProxy) -> None:
    with ProxyControl(proxy) as control, connected(proxy) as connection:
        orders = RemoteProxy(control.port)
        number = orders.add(Rule(action="watch", apis=(Api.METADATA,), skip=1))
        for _ in range(2):
            ask(connection)
            read_answer(connection)
        assert [hit.request.api for hit in orders.hits(number)] == [Api.METADATA]
        orders.release(number)
        orders.clear()
        assert orders.cut_all() >= 1, "clients of earlier tests may still try to come back"
        assert connection.recv(1) == b""
        with pytest.raises(LookupError):
            orders.hits(99)
