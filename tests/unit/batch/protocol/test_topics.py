"""Settings of internal topics that would lose records, or their times: never made, and refused by begin."""

from __future__ import annotations

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.commands import set_topic_command
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import ConfigsForbidden

pytestmark = pytest.mark.promise("changelog-settings-break-nothing")

APP = "sums"
CHANGELOG, REPARTITION = f"{APP}-totals-changelog", f"{APP}-totals-repartition"
METADATA, LEDGER = f"{APP}-metadata", f"{APP}-runs"


def _topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    windows = (
        builder.stream("in")
        .group_by(lambda _, number: "odd" if number % 2 else "even", name="totals")
        .windowed_by(TumblingWindow(size_ms=1_000))
    )
    windows.count(store="totals").to_stream().map(
        lambda window, count: (f"{window.key}@{window.start_ms}", count)
    ).send_to("out")
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    made = InMemoryKafka()
    for topic in ("in", "out"):
        made.create_topic(topic, message_timestamp_type="CreateTime")
    return made


@pytest.fixture
def application(kafka: InMemoryKafka) -> Application:
    return Application(application_id=APP, topology=_topology(), on=kafka)


def _append(kafka: InMemoryKafka, *numbers: int) -> None:
    for number in numbers:
        kafka.append("in", b"%d" % number, b"k", timestamp_ms=number * 1_000)


def _results(kafka: InMemoryKafka) -> dict[bytes, bytes]:
    return {record.key() or b"": record.value() or b"" for record in kafka.records("out")}


def test_event_time_is_kept_when_the_brokers_default_is_its_own_time(
    kafka: InMemoryKafka, application: Application
) -> None:
    kafka.configure_broker(log_message_timestamp_type="LogAppendTime")
    for run, numbers in enumerate(((1, 2, 3), (3, 4)), start=1):
        _append(kafka, *numbers)
        application.run(f"run-{run}")

    assert _results(kafka) == {
        b"odd@1000": b"1",
        b"even@2000": b"1",
        b"odd@3000": b"2",
        b"even@4000": b"1",
    }


@pytest.mark.parametrize(
    ("topic", "name", "value", "needed"),
    [
        (CHANGELOG, "message.timestamp.type", "LogAppendTime", "CreateTime"),
        (REPARTITION, "message.timestamp.type", "LogAppendTime", "CreateTime"),
        (CHANGELOG, "cleanup.policy", "delete", "compact"),
        (CHANGELOG, "cleanup.policy", "compact,delete", "compact"),
        (REPARTITION, "cleanup.policy", "compact", "delete"),
        (REPARTITION, "retention.ms", "1000", "-1"),
        (REPARTITION, "retention.bytes", "1000", "-1"),
        (METADATA, "cleanup.policy", "delete", "compact"),
        (LEDGER, "cleanup.policy", "delete", "compact"),
    ],
)
@pytest.mark.parametrize("begun", [False, True], ids=["next run", "run that was begun"])
def test_run_is_refused_with_the_command_that_mends_it_when_a_setting_was_changed(
    kafka: InMemoryKafka,
    application: Application,
    topic: str,
    name: str,
    value: str,
    needed: str,
    begun: bool,
) -> None:
    _append(kafka, 1, 2)
    application.run("run-1")
    _append(kafka, 3)
    if begun:
        application.begin("run-2")
    kafka.alter_topic(topic, **{name.replace(".", "_"): value})

    with pytest.raises(ConfigError) as refused:
        application.begin("run-2", (0, 2))

    cause, remedy = str(refused.value).split("\n")
    assert f"{topic} has {name}={value}, it must be {needed}" in cause
    assert set_topic_command(topic, {name: needed}) in remedy
    assert not refused.value.is_retriable
    kafka.alter_topic(topic, **{name.replace(".", "_"): needed})
    application.run("run-2", (0, 3))
    assert _results(kafka)[b"odd@3000"] == b"1"


def test_every_topic_is_named_when_several_settings_were_changed(
    kafka: InMemoryKafka, application: Application
) -> None:
    _append(kafka, 1)
    application.run("run-1")
    for topic in (CHANGELOG, REPARTITION):
        kafka.alter_topic(topic, message_timestamp_type="LogAppendTime")

    with pytest.raises(ConfigError) as refused:
        application.begin("run-2")

    for topic in (CHANGELOG, REPARTITION):
        assert set_topic_command(topic, {"message.timestamp.type": "CreateTime"}) in str(refused.value)


def test_run_goes_on_with_a_line_in_the_log_when_settings_may_not_be_seen(
    kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    _append(kafka, 1)
    Application(application_id=APP, topology=_topology(), on=kafka).run("run-1")
    application = Application(
        application_id=APP, topology=_topology(), on=FaultyCluster(kafka, ConfigsForbidden())
    )
    _append(kafka, 3)

    application.run("run-2")

    assert "settings of internal topics are not checked" in caplog.text
