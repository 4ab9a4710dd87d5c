from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.protocol.logs.log_read import log_bounds, refuse_unfit_timeouts
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka, ManualClock
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application
from tests.support.kafka.waiting import WaitingClock

pytestmark = pytest.mark.promise("transactions-below-the-limit")

T = TypeVar("T")


def copied() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream("in").send_to("out")
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    kafka.append("in", b"v")
    return kafka


def test_nothing_is_written_when_the_timeout_exceeds_the_brokers_limit(kafka: InMemoryKafka) -> None:
    kafka.configure_broker(transaction_max_timeout_ms="60000")
    app = Application(application_id="app", topology=copied(), on=kafka, clock=kafka.clock)
    text = (
        r"transaction\.timeout\.ms = 120000 exceeds the broker's limit transaction\.max\.timeout\.ms = 60000"
    )
    with pytest.raises(ConfigError, match=text) as caught:
        app.begin("run")
    assert "set transaction.timeout.ms to 60000 or less" in caught.value.fix
    assert kafka.topics() == ["in", "out"]


def test_continuous_run_does_not_begin_when_the_timeout_exceeds_the_brokers_limit(
    kafka: InMemoryKafka,
) -> None:
    kafka.configure_broker(transaction_max_timeout_ms="60000")
    app = SwitchingApplication(topology=copied(), cluster=kafka, clock=kafka.clock)
    with pytest.raises(ConfigError, match=r"limit transaction\.max\.timeout\.ms = 60000"):
        app.run_continuously("run")
    assert kafka.topics() == ["in", "out"]


def test_task_claims_nothing_when_the_limit_was_lowered_since_begin(kafka: InMemoryKafka) -> None:
    app = Application(application_id="app", topology=copied(), on=kafka, clock=kafka.clock)
    slice_ = app.begin("run")
    kafka.configure_broker(transaction_max_timeout_ms="60000")
    with pytest.raises(ConfigError, match=r"transaction\.max\.timeout\.ms = 60000"):
        app.task(slice_, 0, 0)
    kafka.configure_broker(transaction_max_timeout_ms="900000")
    app.tasks(slice_)
    app.finish("run")


@pytest.mark.parametrize(
    ("guarantee", "interval_ms", "refused"),
    [("exactly_once", 5_000, False), ("exactly_once", 5_001, True), ("at_least_once", 600_000, False)],
)
def test_commit_interval_must_leave_transactions_room_below_their_timeout(
    kafka: InMemoryKafka, guarantee: str, interval_ms: int, refused: bool
) -> None:
    app = Application(
        application_id="app",
        topology=copied(),
        on=kafka,
        clock=kafka.clock,
        settings={
            "processing.guarantee": guarantee,
            "transaction.timeout.ms": 10_000,
            "commit.interval.ms": interval_ms,
        },
    )
    if not refused:
        app.run("run")
        return
    text = r"commit\.interval\.ms = 5001 leaves .* below transaction\.timeout\.ms = 10000"
    with pytest.raises(ConfigError, match=text) as caught:
        app.begin("run")
    assert (
        "set commit.interval.ms to 5000 or less, or transaction.timeout.ms to 10002 or more"
        in caught.value.fix
    )
    assert kafka.topics() == ["in", "out"]


class Forbidding:
    """Refuses to tell the broker's settings."""

    def __init__(self, error: KafkaClientError) -> None:
        self.error = error

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if name == "admin.broker_configs":
            raise self.error
        return effect()


def test_brokers_limit_is_left_to_the_broker_when_its_settings_may_not_be_seen(kafka: InMemoryKafka) -> None:
    settings = ApplicationSettings.parse("app", {})
    forbidden = KafkaClientError("no", kafka_code="CLUSTER_AUTHORIZATION_FAILED")
    refuse_unfit_timeouts(settings, FaultyCluster(kafka, Forbidding(forbidden)).admin())
    passing = KafkaClientError("no answer", kafka_code="_TIMED_OUT", retriable_code=True)
    with pytest.raises(KafkaClientError, match="no answer"):
        refuse_unfit_timeouts(settings, FaultyCluster(kafka, Forbidding(passing)).admin())


@pytest.mark.promise("ends-at-stop-offsets")
def test_what_arrives_while_others_settle_is_left_to_the_next_run() -> None:
    kafka = InMemoryKafka(clock=ManualClock())
    kafka.create_topic("in", partitions=2)
    held, other = kafka.partitions("in")
    writer = kafka.writer(transactional_id="another-program")
    writer.init_transactions()
    writer.begin()
    writer.produce("in", b"v", b"k", held.partition)
    writer.flush()
    kafka.append("in", b"v", b"k", partition=other.partition)

    def settle() -> None:
        if clock.waited_seconds < 0.03:
            writer.commit()
        for each in (held, other):
            kafka.append("in", b"later", b"k", partition=each.partition)

    clock = WaitingClock(kafka.clock, settle)
    with closing(kafka.admin()) as admin:
        bounds = log_bounds(admin, (held, other), settle_ms=1_000, clock=clock)

    assert clock.waited_seconds > 0
    assert {tp: (each.stable, each.high) for tp, each in bounds.items()} == {held: (1, 1), other: (1, 1)}
