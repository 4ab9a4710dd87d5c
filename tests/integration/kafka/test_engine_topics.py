"""On a cluster that dates records itself, and after an administrator has changed an internal topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.errors import ConfigError
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def _set(admin: AdminClient, resource: ConfigResource, name: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource.add_incremental_config(entry)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


@pytest.fixture
def dated_by_the_cluster(kafka_admin: AdminClient) -> Iterator[None]:
    """The cluster's default for topics that do not say otherwise."""
    name = "log.message.timestamp.type"
    (broker,) = map(str, kafka_admin.list_topics(timeout=30).brokers)
    _set(kafka_admin, ConfigResource(ResourceType.BROKER, broker), name, "LogAppendTime")
    yield
    _set(kafka_admin, ConfigResource(ResourceType.BROKER, broker), name, None)


@pytest.fixture
def application(
    kafka: str, application_id: str, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> Application:
    source = create_topic(topic_name("in"), 1, message_timestamp_type="CreateTime")
    target = create_topic(topic_name("out"), 1, message_timestamp_type="CreateTime")
    return Application(bootstrap=kafka, application_id=application_id, topology=_counts(source, target))


def _counts(source: str, target: str) -> Topology:
    """Counts of odd and even numbers by second."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    parity = builder.stream(source).group_by(lambda _, number: "odd" if number % 2 else "even", name="totals")
    counts = parity.windowed_by(TumblingWindow(size_ms=1_000)).count(store="totals")
    named = counts.to_stream().map(lambda window, count: (f"{window.key}@{window.start_ms}", count))
    named.send_to(target)
    return builder.build()


def _topics(application: Application) -> tuple[str, str]:
    plan = application.topology.plan(application.application_id)
    return plan.inputs[0], plan.outputs[0]


@pytest.mark.usefixtures("dated_by_the_cluster")
def test_event_time_is_kept_through_intermediate_topics_and_state_when_the_cluster_dates_records(
    application: Application, produce: Callable[..., None], consume_all: Callable[..., Any]
) -> None:
    source, target = _topics(application)
    for run, numbers in enumerate(((1, 2, 3), (3, 4)), start=1):
        produce(source, [{"key": "k", "value": n, "timestamp_ms": n * 1_000} for n in numbers])
        application.run(f"run-{run}")

    results = {row.key: row.json() for row in consume_all(target)}
    assert results == {b"odd@1000": 1, b"even@2000": 1, b"odd@3000": 2, b"even@4000": 1}


def test_run_is_refused_when_the_changelog_was_set_to_the_brokers_time_and_goes_on_when_mended(
    application: Application,
    kafka_admin: AdminClient,
    produce: Callable[..., None],
    consume_all: Callable[..., Any],
) -> None:
    source, target = _topics(application)
    changelog = f"{application.application_id}-totals-changelog"
    name = "message.timestamp.type"
    produce(source, [{"key": "k", "value": 3, "timestamp_ms": 3_000}])
    application.run("run-1")
    _set(kafka_admin, ConfigResource(ResourceType.TOPIC, changelog), name, "LogAppendTime")
    produce(source, [{"key": "k", "value": 3, "timestamp_ms": 3_000}])

    with pytest.raises(ConfigError, match=f"{changelog} has {name}=LogAppendTime, it must be CreateTime"):
        application.begin("run-2")

    _set(kafka_admin, ConfigResource(ResourceType.TOPIC, changelog), name, "CreateTime")
    application.run("run-2")
    assert {row.key: row.json() for row in consume_all(target)} == {b"odd@3000": 2}
