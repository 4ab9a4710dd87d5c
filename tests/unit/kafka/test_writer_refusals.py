from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_kstreams.kafka import delivery as module
from airflow_kstreams.kafka.client_errors import Access
from airflow_kstreams.kafka.delivery import DeliveryFailures, WriterRefusals
from airflow_kstreams.kafka.events import ClientEvents

TOPIC = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed")
OF_OFFSETS = KafkaError(
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "Failed to commit offsets: in.a((null))[0](Broker: Topic authorization failed)",
)


class Client:
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
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.mark.parametrize("steps", [0, 1, 20])
def test_topic_is_named_when_the_client_says_it_later_than_the_error(client: Client, steps: int) -> None:
    client.told = [lambda: None] * steps + [lambda: client.log_refusal("out")]

    error = client.refused(TOPIC)

    assert str(error.permission) == "Write on topic out"
    assert "User:carol needs the permission" in error.cause
    assert not error.is_retriable


def test_topic_is_named_when_a_delivery_report_says_it(client: Client) -> None:
    client.told = [lambda: client.lose_record("out", KafkaError.TOPIC_AUTHORIZATION_FAILED)]

    assert client.refused(TOPIC).permission.name == "out"


def test_topic_of_a_record_that_was_only_dropped_is_not_taken_for_the_refused_one(client: Client) -> None:
    client.told = [
        lambda: client.lose_record("permitted", KafkaError._PURGE_QUEUE),
        lambda: client.log_refusal("out"),
    ]

    assert client.refused(TOPIC).permission.name == "out"


def test_topic_is_named_when_serving_callbacks_fails_on_the_way(client: Client) -> None:
    client.told = [client.fail, lambda: client.log_refusal("out")]

    assert client.refused(TOPIC).permission.name == "out"


def test_refusal_is_told_all_the_same_when_the_client_never_names_the_topic(client: Client) -> None:
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
    client: Client, error: KafkaError, permission: str
) -> None:
    assert permission in str(client.refused(error).permission)
    assert client.now == 0


@pytest.mark.parametrize("error", [None, KafkaError(KafkaError._TRANSPORT, "gone")])
def test_nothing_is_said_of_permissions_when_something_else_is_wrong(
    client: Client, error: KafkaError | None
) -> None:
    assert client.refused(error) is None
