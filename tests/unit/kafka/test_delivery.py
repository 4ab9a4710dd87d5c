"""The produce call that tasks bind, the limits of its records, and what a writer is refused."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_kstreams.kafka import delivery as module
from airflow_kstreams.kafka import sent_times
from airflow_kstreams.kafka.client_errors import Access
from airflow_kstreams.kafka.delivery import DeliveryFailures, WriterRefusals, sized, warn_of_small_limit
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.kafka.writer import make_produce
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.ports import TopicLimits
from airflow_kstreams.streams.records.first_place import content_id


class Client:
    """Stands in for the client's producer."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def produce(self, *arguments: Any) -> None:
        self.sent.append(arguments)

    def poll(self, _seconds: float) -> int:
        return 0


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's collector comes late, as in a process with many objects."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_client_ends_with_its_writer_although_a_task_still_holds_the_call() -> None:
    client: Any = Client()
    alive = weakref.ref(client)
    produce, release = make_produce(
        client,
        bootstrap="b:1",
        timeout_seconds=1.0,
        explain=lambda error, _: KStreamsError(str(error), fix=""),
        refused=DeliveryFailures({}, {}),
    )
    task: dict[str, Any] = {"produce": produce}
    task["itself"] = task
    produce("out", b"v", b"k")
    assert [sent[:3] for sent in client.sent] == [("out", b"v", b"k")]
    del client, task
    assert alive() is not None

    release()

    assert alive() is None
    with pytest.raises(ValueError, match="closed"):
        produce("out", b"v")


@pytest.mark.parametrize(
    ("limits", "record_bytes", "batch_bytes"),
    [
        ({}, 1_000_000, 1_000_000),
        ({"a": 1_048_588}, 1_048_588, 1_000_000),
        ({"a": 5_000_000, "b": 20_000}, 5_000_000, 20_000),
        # The broker decides whether it fits when it is compressed.
        ({"b": 20_000}, 1_000_000, 20_000),
        # More than the client takes for the setting.
        ({"a": 2**31 - 1}, 1_000_000_000, 1_000_000),
        ({"a": 0}, 1_000_000, 1),
    ],
)
def test_client_takes_what_the_topics_take(
    limits: dict[str, int], record_bytes: int, batch_bytes: int
) -> None:
    assert sized({topic: TopicLimits(limit) for topic, limit in limits.items()}) == {
        "message.max.bytes": str(record_bytes),
        "batch.size": str(batch_bytes),
    }


@pytest.mark.parametrize(("given", "warned"), [("500000", True), ("5000000", False), ("9000000", False)])
def test_users_own_smaller_limit_is_named(caplog: pytest.LogCaptureFixture, given: str, warned: bool) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_small_limit(
            {"message.max.bytes": given}, {"orders": TopicLimits(5_000_000), "small": TopicLimits(1_000)}
        )
    text = "the client setting message.max.bytes = 500000 refuses records that orders takes"
    assert (text in caplog.text) is warned


@pytest.mark.remedy("delivery.warn_of_small_limit")
def test_no_limit_is_too_small_when_it_was_raised_or_left_out(caplog: pytest.LogCaptureFixture) -> None:
    limits = {"orders": TopicLimits(5_000_000)}
    with caplog.at_level(logging.WARNING):
        warn_of_small_limit({"message.max.bytes": "500000"}, limits)
    (message,) = caplog.messages
    assert message.endswith("raise it, or leave it out, then it follows the topics")
    caplog.clear()
    for told in ({"message.max.bytes": "5000000"}, {}):
        config = {**sized(limits), **told}
        warn_of_small_limit(config, limits)
        assert int(config["message.max.bytes"]) >= 5_000_000
    assert caplog.messages == []


HOUR_MS, NOW_MS = 3_600_000, 1_600_000_000_000


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> DeliveryFailures:
    """The failures of a producer that has sent records to "out" at each hour from four before now on to four
    after it, in this order; each value is its hour.
    """
    monkeypatch.setattr(sent_times, "_now_ms", lambda: NOW_MS)
    failures = DeliveryFailures({}, {"out": TopicLimits(1_000, HOUR_MS, HOUR_MS), "any": TopicLimits(1_000)})
    produce, _ = make_produce(
        Client(),  # type: ignore[arg-type]
        bootstrap="b:1",
        timeout_seconds=1.0,
        explain=lambda error, _: KStreamsError(str(error), fix=""),
        refused=failures,
    )
    for hour in range(-4, 5):
        produce("out", b"%d" % hour, b"k", 0, NOW_MS + hour * HOUR_MS)
    return failures


@pytest.mark.promise("refused-times-are-named")
@pytest.mark.parametrize("limits", [TopicLimits(1_000), TopicLimits(1_000, HOUR_MS, HOUR_MS)])
def test_times_at_the_edges_are_sent_and_compared(
    limits: TopicLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_times, "_now_ms", lambda: NOW_MS)
    failures, client = DeliveryFailures({}, {"out": limits}), Client()
    compared: list[int] = []
    note = failures.times.note

    def noting(topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int) -> tuple[int, int]:
        compared.append(timestamp_ms)
        return note(topic, key, value, timestamp_ms)

    monkeypatch.setattr(type(failures.times), "note", staticmethod(noting))
    produce, _ = make_produce(
        client,  # type: ignore[arg-type]
        bootstrap="b:1",
        timeout_seconds=1.0,
        explain=lambda error, _: KStreamsError(str(error), fix=""),
        refused=failures,
    )
    first, last = failures.times.taken()
    given = [None, -1, 0, 1, first - 1, first, NOW_MS, last, last + 1, 2**62]
    for timestamp_ms in given:
        produce("out", b"v", b"k", 0, timestamp_ms)
    assert [arguments[6] for arguments in client.sent] == [
        {None: 0, 0: 1}.get(timestamp_ms, timestamp_ms) for timestamp_ms in given
    ]
    early = [-1, 1, 1] if limits.before_ms > NOW_MS else [-1, 1, 1, first - 1]
    assert compared == [*early, last + 1, 2**62]


def report(failures: DeliveryFailures, code: int, *hours: int) -> None:
    for hour in hours:
        message = SimpleNamespace(
            topic=lambda: "out", partition=lambda: 0, key=lambda: b"k", value=lambda hour=hour: b"%d" % hour
        )
        failures.on_delivery(KafkaError(code), message)  # type: ignore[arg-type]


@pytest.mark.promise("refused-times-are-named")
def test_records_that_the_reports_blame_are_named_with_their_times(sent: DeliveryFailures) -> None:
    for hour in range(-4, 5):
        blamed = hour in (-3, 2, 4)
        report(sent, KafkaError.INVALID_RECORD if blamed else KafkaError._INVALID_DIFFERENT_RECORD, hour)
    refused = sent.refused_record()
    assert refused is not None
    assert {*refused.contents} == {
        content_id("out", b"k", b"%d" % hour, NOW_MS + hour * HOUR_MS) for hour in (-3, 2, 4)
    }
    assert "dated 2020-09-13T09:26:40.000+00:00, 10,800,000 ms before this machine's time" in refused.cause
    assert refused.cause.endswith("message.timestamp.before.max.ms is 3,600,000 (2 more are refused)")


@pytest.mark.promise("refused-times-are-named")
@pytest.mark.parametrize(("hours", "furthest"), [((-2, 0, 3), 3), ((-4, 0, 3), -4), ((-3, 1), -3)])
def test_record_dated_furthest_is_to_blame_when_every_report_of_its_batch_is_alike(
    sent: DeliveryFailures, hours: tuple[int, ...], furthest: int
) -> None:
    report(sent, KafkaError.INVALID_TIMESTAMP, *hours)
    refused = sent.refused_record()
    assert refused is not None
    time_ms = NOW_MS + furthest * HOUR_MS
    assert [*refused.contents] == [content_id("out", b"k", b"%d" % furthest, time_ms)]


def test_none_is_to_blame_when_the_topic_takes_every_time_by_this_machines_clock(
    sent: DeliveryFailures,
) -> None:
    report(sent, KafkaError.INVALID_TIMESTAMP, 0)
    refused = sent.refused_record()
    assert refused is not None
    assert refused.contents == {}
    assert "compare the clock with the broker's" in refused.cause


def test_record_without_a_key_is_not_blamed_for_a_time(sent: DeliveryFailures) -> None:
    report(sent, KafkaError.INVALID_RECORD, 0)
    refused = sent.refused_record()
    assert refused is not None
    assert (refused.contents, "dated" in refused.cause) == ({}, False)


def test_times_are_forgotten_when_a_transaction_begins(sent: DeliveryFailures) -> None:
    sent.clear()
    report(sent, KafkaError.INVALID_TIMESTAMP, 4)
    refused = sent.refused_record()
    assert refused is not None
    assert refused.contents == {}


TOPIC = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed")
OF_OFFSETS = KafkaError(
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "Failed to commit offsets: in.a((null))[0](Broker: Topic authorization failed)",
)


class RefusingClient:
    """The client as far as it tells what was refused.

    :ivar told: what each poll serves, in turn.
    """

    def __init__(self) -> None:
        self.events = ClientEvents()
        self.failures = DeliveryFailures({}, {})
        self.told: list[Callable[[], None]] = []
        self.now = 0.0

    def poll(self, seconds: float) -> None:
        self.now += seconds
        if self.told:
            self.told.pop(0)()

    def log_refusal(self, topic: str) -> None:
        self.events.log(3, "", "ADDPARTS", f'add partition "{topic}" [0]: Broker: Topic authorization failed')

    def lose_record(self, topic: str, code: int) -> None:
        message = SimpleNamespace(topic=lambda: topic, partition=lambda: 0)
        self.failures.on_delivery(KafkaError(code, "lost"), message)  # type: ignore[arg-type]

    def fail(self) -> None:
        raise KafkaException(TOPIC)

    def refused(self, error: KafkaError | None) -> Any:
        config = {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL"}
        config |= {"sasl.mechanism": "PLAIN", "sasl.username": "carol"}
        refusals = WriterRefusals(
            Access(config), events=self.events, failures=self.failures, transactional_id="app-0_0"
        )
        return refusals.explain(error, "committing", poll=self.poll, group_id="app")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> RefusingClient:
    made = RefusingClient()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.mark.parametrize("steps", [0, 1, 20])
def test_topic_is_named_when_the_client_says_it_later_than_the_error(
    client: RefusingClient, steps: int
) -> None:
    client.told = [lambda: None] * steps + [lambda: client.log_refusal("out")]

    error = client.refused(TOPIC)

    assert str(error.permission) == "Write on topic out"
    assert "User:carol needs the permission" in error.cause
    assert not error.is_retriable


@pytest.mark.error_example("KS-KAFKA-003")
def test_topic_is_named_when_a_delivery_report_says_it(client: RefusingClient) -> None:
    client.told = [lambda: client.lose_record("out", KafkaError.TOPIC_AUTHORIZATION_FAILED)]

    assert client.refused(TOPIC).permission.name == "out"


def test_topic_of_a_record_that_was_only_dropped_is_not_taken_for_the_refused_one(
    client: RefusingClient,
) -> None:
    client.told = [
        lambda: client.lose_record("permitted", KafkaError._PURGE_QUEUE),
        lambda: client.log_refusal("out"),
    ]

    assert client.refused(TOPIC).permission.name == "out"


def test_topic_is_named_when_serving_callbacks_fails_on_the_way(client: RefusingClient) -> None:
    client.told = [client.fail, lambda: client.log_refusal("out")]

    assert client.refused(TOPIC).permission.name == "out"


def test_refusal_is_told_all_the_same_when_the_client_never_names_the_topic(client: RefusingClient) -> None:
    assert client.refused(TOPIC).permission.name == ""
    client.lose_record("perhaps", KafkaError._PURGE_QUEUE)
    assert client.refused(TOPIC).permission.name == "perhaps"


@pytest.mark.parametrize(
    ("error", "permission"),
    [
        (OF_OFFSETS, "Read on topic in.a"),
        (KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "no"), "Read on group app"),
        (KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no"), "IdempotentWrite on cluster"),
        (
            KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no"),
            "Write on transactional id app-*",
        ),
    ],
)
def test_permission_is_known_without_asking_the_client(
    client: RefusingClient, error: KafkaError, permission: str
) -> None:
    assert permission in str(client.refused(error).permission)
    assert client.now == 0


@pytest.mark.parametrize("error", [None, KafkaError(KafkaError._TRANSPORT, "gone")])
def test_nothing_is_said_of_permissions_when_something_else_is_wrong(
    client: RefusingClient, error: KafkaError | None
) -> None:
    assert client.refused(error) is None
