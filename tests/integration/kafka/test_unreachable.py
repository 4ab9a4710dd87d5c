"""A wrong address and wrong credentials: one line of cause, one of what to do, in bounded time, nothing on
stderr."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

SETTINGS = ApplicationSettings.parse("app", {"client.timeout.ms": 2_000})
PLAN = TopologyPlan(
    application_id="app",
    topology_hash="h",
    subtopologies=(SubtopologyPlan(id=0, sources=("in",), sinks=("out",)),),
)


def coordinate(cluster: KafkaCluster) -> None:
    coordinator = Coordinator(cluster, SETTINGS)
    try:
        coordinator.begin("run-1", PLAN, hold_lease=False)
    finally:
        coordinator.close()


CALLS: dict[str, Callable[[KafkaCluster], object]] = {
    "reader": lambda cluster: cluster.reader(group_id="app").committed([TopicPartition("in", 0)]),
    "assign": lambda cluster: cluster.reader(group_id="app").assign({TopicPartition("in", 0): 0}),
    "writer": lambda cluster: cluster.writer(transactional_id="app-0_0").init_transactions(),
    "idempotent writer": lambda cluster: cluster.writer(transactional_id=None).begin(),
    "admin": lambda cluster: cluster.admin().describe_topics(["in"]),
    "coordinator": coordinate,
}
each_client = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


def failure(call: Callable[[KafkaCluster], object], cluster: KafkaCluster) -> tuple[KafkaClientError, float]:
    started = time.monotonic()
    with pytest.raises(KafkaClientError) as caught:
        call(cluster)
    return caught.value, time.monotonic() - started


@each_client
def test_address_is_named_within_the_timeout_when_nobody_listens(
    free_port: int, call: Callable[[KafkaCluster], object], capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{free_port}"
    error, seconds = failure(call, KafkaCluster({"bootstrap.servers": address}, settings=SETTINGS))
    assert error.cause.startswith(f"broker unreachable at {address}: ")
    assert "Connection refused" in error.cause
    assert "\n" not in error.cause + error.fix
    assert error.is_retriable
    assert 1.5 < seconds < 5
    assert capfd.readouterr() == ("", "")


@pytest.mark.remedy("client_errors.unreachable")
def test_cluster_is_reached_when_the_address_is_corrected(kafka: str, free_port: int) -> None:
    wrong = KafkaCluster({"bootstrap.servers": f"127.0.0.1:{free_port}"}, settings=SETTINGS)
    error, _ = failure(lambda cluster: cluster.admin().describe_topics(["no-such-topic"]), wrong)
    assert error.fix.startswith("check bootstrap.servers")
    right = KafkaCluster({"bootstrap.servers": kafka}, settings=SETTINGS)
    assert right.admin().describe_topics(["no-such-topic"]) == {}


def sasl(bootstrap: str, password: str) -> KafkaCluster:
    return KafkaCluster(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": password,
        },
        settings=ApplicationSettings.parse("app", {"client.timeout.ms": 30_000}),
    )


@each_client
def test_credentials_are_named_at_once_when_the_password_is_wrong(
    sasl_bootstrap: str, call: Callable[[KafkaCluster], object], capfd: pytest.CaptureFixture[str]
) -> None:
    error, seconds = failure(call, sasl(sasl_bootstrap, "canary"))
    assert error.cause.startswith(f"the broker at {sasl_bootstrap} refused the credentials: ")
    assert "sasl.password" in error.fix
    assert "\n" not in error.cause + error.fix
    assert "canary" not in str(error)
    assert not error.is_retriable
    assert seconds < 10
    assert capfd.readouterr() == ("", "")


@pytest.mark.remedy("client_errors.wrong_credentials: {remedy}")
def test_cluster_is_reached_when_the_password_is_corrected(sasl_bootstrap: str) -> None:
    error, _ = failure(CALLS["admin"], sasl(sasl_bootstrap, "canary"))
    assert error.fix == "correct sasl.username and sasl.password"
    assert sasl(sasl_bootstrap, "alice-secret").admin().describe_topics(["no-such-topic"]) == {}
