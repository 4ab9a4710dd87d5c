"""Records up to the largest that an input holds: copied, repartitioned, kept, dead-lettered, or named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.topics import ROOM_BYTES
from airflow_kstreams.streams import KStreamBuilder, Processor, StoreSpec, Topology, TopologyBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError, RecordError
from airflow_kstreams.streams.naming.commands import set_topic_command
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.faults import Interceptor
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import ConfigsForbidden

pytestmark = pytest.mark.promise("large-records-are-taken-or-named", "dead-letters-name-their-record")

APP = "sizes"
DEAD, CHANGELOG, REPARTITION = f"{APP}-dead-letter", f"{APP}-last-changelog", f"{APP}-moved-repartition"
LIMIT = 1_048_588
#: More than the client takes by itself, and with key and what Kafka adds not more than a topic takes.
LARGE = Random(0).randbytes(LIMIT - 100)
BYTES: Any = {"key_serde": serdes.bytes(), "value_serde": serdes.bytes()}
DEAD_LETTERS = {"processing.exception.handler": "dead-letter"}


@pytest.fixture
def kafka() -> InMemoryKafka:
    made = InMemoryKafka()
    for topic in ("in", "out"):
        made.create_topic(topic)
    return made


def copied(on_value: Callable[[bytes], bytes] = lambda value: value) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream("in").map_values(on_value).send_to("out")
    return builder.build()


def kept() -> Topology:
    """Every record goes through a repartition topic, and into a store with a changelog."""
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    moved = builder.stream("in").group_by(lambda key, _: key * 2, name="moved")
    moved.reduce(lambda _, new: new, store="last").to_stream().send_to("out")
    return builder.build()


def fails(value: bytes) -> bytes:
    raise ValueError("!" * 100_000)


def application(
    kafka: InMemoryKafka,
    topology: Topology,
    settings: Mapping[str, str] | None = None,
    interceptor: Interceptor | None = None,
) -> Application:
    return Application(
        application_id=APP, topology=topology, on=kafka, settings=settings or {}, interceptor=interceptor
    )


def limit_of(kafka: InMemoryKafka, topic: str) -> int:
    return int(kafka.admin().topic_configs([topic]).found[topic]["max.message.bytes"])


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("topology", [copied, kept])
def test_record_as_large_as_its_topic_takes_is_written_everywhere(
    kafka: InMemoryKafka, topology: Callable[[], Topology], guarantee: str
) -> None:
    kafka.append("in", LARGE, b"k")

    application(kafka, topology(), {"processing.guarantee": guarantee}).run("run-1")

    assert kafka.values("out") == [LARGE]


def test_own_topics_take_what_the_largest_input_holds_with_room_for_what_is_added(
    kafka: InMemoryKafka,
) -> None:
    kafka.alter_topic("in", max_message_bytes="5000000")
    kafka.alter_topic("out", max_message_bytes="5000000")

    slice_ = application(kafka, kept(), DEAD_LETTERS).begin("run-1")

    for topic in (CHANGELOG, REPARTITION):
        assert limit_of(kafka, topic) == 5_000_000 + ROOM_BYTES
    assert limit_of(kafka, DEAD) == 5_000_000 + 2 * ROOM_BYTES
    assert slice_.plan.warnings == ()


def test_dead_letter_of_a_large_record_holds_it_and_cuts_what_is_said_of_the_error(
    kafka: InMemoryKafka,
) -> None:
    kafka.append("in", LARGE, b"k", headers=[("own", b"1")])

    application(kafka, copied(fails), DEAD_LETTERS).run("run-1")

    (letter,) = kafka.records(DEAD)
    assert (letter.key(), letter.value()) == (b"k", LARGE)
    headers = dict(letter.headers() or [])
    assert headers["own"] == b"1"
    assert headers["__streams.errors.message"] == b"!" * 4_000 + b"... (cut, 100,000 characters)"
    assert (headers["__streams.errors.stacktrace"] or b"").startswith(b"(cut, 10")
    assert len(headers["__streams.errors.stacktrace"] or b"") < 8_100
    assert "__streams.errors.left.out" not in headers


def test_run_that_failed_goes_on_when_dead_letters_are_asked_for_before_it_is_taken_up(
    kafka: InMemoryKafka,
) -> None:
    kafka.alter_topic("in", max_message_bytes="5000000")
    kafka.append("in", b"v", b"k")
    with pytest.raises(RecordError):
        application(kafka, copied(fails), {}).run("run-1")

    application(kafka, copied(fails), DEAD_LETTERS).run("run-1")

    assert [letter.value() for letter in kafka.records(DEAD)] == [b"v"]
    assert limit_of(kafka, DEAD) == 5_000_000 + 2 * ROOM_BYTES


@pytest.mark.remedy("source_topics.ensure_dead_letter_topic")
def test_run_is_not_taken_up_when_the_dead_letter_topic_of_its_new_settings_does_not_exist(
    kafka: InMemoryKafka,
) -> None:
    kafka.append("in", b"v", b"k")
    with pytest.raises(RecordError):
        application(kafka, copied(fails), {}).run("run-1")
    named = {**DEAD_LETTERS, "errors.dead.letter.queue.topic.name": "letters"}
    with pytest.raises(ConfigError, match="the dead-letter topic 'letters' does not exist"):
        application(kafka, copied(fails), named).run("run-1")
    kafka.create_topic("letters")
    application(kafka, copied(fails), named).run("run-1")
    assert len(kafka.records("letters")) == 1


def test_dead_letter_loses_its_value_not_its_place_when_it_does_not_fit(
    kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    # As a producer wrote it that compresses: 3 MB in a topic that takes 1 MB.
    value = b"x" * 3_000_000
    kafka.append("in", value, b"k", headers=[("own", b"1")])

    summary = application(kafka, copied(fails), DEAD_LETTERS).run("run-1")

    (letter,) = kafka.records(DEAD)
    headers = dict(letter.headers() or [])
    assert (letter.key(), letter.value(), headers["own"]) == (b"k", None, b"1")
    assert headers["__streams.errors.left.out"] == f"the value ({len(value):,} bytes)".encode()
    place = [headers[f"__streams.errors.{name}"] for name in ("topic", "partition", "offset")]
    assert place == [b"in", b"0", b"0"]
    assert f"in-0@0 is larger than {DEAD} takes: its dead letter leaves out the value" in caplog.text
    assert [task.records_dead_lettered for task in summary.tasks] == [1]


@pytest.mark.remedy("errors.record_refused")
def test_run_fails_with_the_records_place_when_its_result_is_too_large_for_the_client(
    kafka: InMemoryKafka,
) -> None:
    kafka.append("in", b"a", b"k")
    kafka.append("in", b"x" * 3_000_000, b"k")

    with pytest.raises(RecordError) as caught:
        application(kafka, copied()).run("run-1")

    error = caught.value
    assert "the result of in-0@1 at node" in error.cause
    assert "a record sent to out was refused: MSG_SIZE_TOO_LARGE" in error.cause
    assert "3,000,037 bytes" in error.cause
    assert f"{LIMIT:,}" in error.cause
    assert "max.message.bytes" in error.fix
    assert (error.topic, error.partition) == ("out", -1)
    kafka.alter_topic("out", max_message_bytes="4000000")
    application(kafka, copied()).run("run-1", (0, 2))
    assert [len(value or b"") for value in kafka.values("out")] == [1, 3_000_000]


def test_run_fails_with_the_topics_limit_when_the_broker_refuses_a_result(kafka: InMemoryKafka) -> None:
    kafka.alter_topic("out", max_message_bytes="20000")
    for size in (1, 30_000, 1):
        kafka.append("in", Random(0).randbytes(size), b"k")

    with pytest.raises(RecordError) as caught:
        application(kafka, copied(), {"commit.every.records": "1"}).run("run-1")

    cause = caught.value.cause
    assert re.search(r"out-0 was refused: MSG_SIZE_TOO_LARGE.*30,037.*20,000", cause)
    assert cause.endswith("; it comes from in-0@[1, 2)")


def test_run_fails_with_the_records_place_when_the_changelog_does_not_take_it(kafka: InMemoryKafka) -> None:
    kafka.append("in", b"v", b"k")
    application(kafka, kept()).run("run-1")
    kafka.append("in", Random(0).randbytes(30_000), b"k")
    kafka.alter_topic(CHANGELOG, max_message_bytes="20000")

    with pytest.raises(RecordError) as caught:
        application(kafka, kept()).run("run-2")

    assert f"a record sent to {CHANGELOG}-0 was refused" in caught.value.cause
    assert f"it comes from {REPARTITION}-0@[" in caught.value.cause


def test_small_records_do_not_fail_together_when_the_topic_takes_each(kafka: InMemoryKafka) -> None:
    kafka.alter_topic("out", max_message_bytes="2000")
    random = Random(0)
    values = [random.randbytes(100) for _ in range(500)]
    for value in values:
        kafka.append("in", value, b"k")

    application(kafka, copied()).run("run-1")

    assert kafka.values("out") == values


def test_begin_names_every_topic_that_takes_less_than_an_input_holds(
    kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    letters = {**DEAD_LETTERS, "errors.dead.letter.queue.topic.name": "dead"}
    kafka.create_topic("dead")
    # As after an upgrade: the application has topics of its own, and then the input's limit is raised.
    application(kafka, kept(), letters).run("run-0")
    kafka.alter_topic(REPARTITION, max_message_bytes=str(LIMIT))
    assert application(kafka, kept(), letters).begin("run-1").plan.warnings == ()
    kafka.append("in", b"v", b"k")
    application(kafka, kept(), letters).run("run-1", (0, 2))
    kafka.alter_topic("in", max_message_bytes="5000000")
    kafka.append("in", b"v", b"k")

    application(kafka, kept(), letters).run("run-2")

    warnings = application(kafka, kept(), letters).begin("run-3").plan.warnings
    whole = {"out": 5_000_000} | dict.fromkeys(("dead", CHANGELOG, REPARTITION), 5_000_000 + ROOM_BYTES)
    assert len(warnings) == len(whole)
    for topic, wanted in whole.items():
        (warning,) = (each for each in warnings if f" {topic} takes records of at most " in each)
        assert "its input in holds up to 5,000,000" in warning
        assert set_topic_command(topic, {"max.message.bytes": str(wanted)}) in warning
        assert warning in caplog.text


@pytest.mark.promise("refused-times-are-foreseen")
@pytest.mark.parametrize("side", ["before", "after"])
def test_begin_names_an_output_topic_that_refuses_times_which_an_input_takes(
    kafka: InMemoryKafka, side: str
) -> None:
    name = f"message_timestamp_{side}_max_ms"
    kafka.alter_topic("in", **{name: "86400000"})
    kafka.alter_topic("out", **{name: "3600000"})
    (warning,) = application(kafka, copied()).begin("run-0").plan.warnings
    setting = name.replace("_", ".")
    assert f"output topic out refuses records dated more than 3,600,000 ms {side} the broker's" in warning
    assert f"({setting}), its input takes up to 86,400,000" in warning
    command = set_topic_command("out", {setting: "86400000"})
    assert command in warning
    kafka.alter_topic("out", **{name: "86400000"})
    assert application(kafka, copied()).begin("run-0").plan.warnings == (warning,), "as it was frozen"
    kafka.append("in", b"v", b"k")
    application(kafka, copied()).run("run-0", (0, 1))
    assert application(kafka, copied()).begin("run-1").plan.warnings == ()


@pytest.mark.promise("refused-times-are-foreseen")
def test_begin_names_every_topic_of_the_users_that_refuses_times_which_an_input_takes(
    kafka: InMemoryKafka,
) -> None:
    for topic in ("between", "letters"):
        kafka.create_topic(topic, message_timestamp_after_max_ms="3600000")
    for topic in ("in", "out"):
        kafka.alter_topic(topic, message_timestamp_after_max_ms="86400000")
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream("in").through("between").group_by(lambda key, _: key, name="moved").reduce(
        lambda _, new: new, store="last"
    ).to_stream().send_to("out")
    settings = {**DEAD_LETTERS, "errors.dead.letter.queue.topic.name": "letters"}
    warnings = application(kafka, builder.build(), settings).begin("run-0").plan.warnings
    assert [warning.split(" refuses")[0] for warning in warnings] == [
        "intermediate topic between",
        "dead-letter topic letters",
    ]


@pytest.mark.promise("refused-times-are-foreseen")
@pytest.mark.parametrize("topic", ["in", "out"])
def test_nothing_is_said_of_times_when_a_topic_has_the_brokers(kafka: InMemoryKafka, topic: str) -> None:
    kafka.alter_topic("in", message_timestamp_after_max_ms="86400000")
    kafka.alter_topic(topic, message_timestamp_type="LogAppendTime")
    if topic == "in":
        kafka.alter_topic("out", message_timestamp_after_max_ms="0", message_timestamp_before_max_ms="0")
    assert application(kafka, copied()).begin("run-0").plan.warnings == ()


def test_run_goes_on_when_limits_may_not_be_seen(kafka: InMemoryKafka) -> None:
    kafka.append("in", LARGE, b"k")
    slice_ = application(kafka, copied()).begin("run-1")

    application(kafka, copied(), interceptor=ConfigsForbidden()).tasks(slice_)

    assert kafka.values("out") == [LARGE]


def test_changelog_takes_what_its_store_says_when_it_says_something(kafka: InMemoryKafka) -> None:
    class Keep(Processor):
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Any) -> None:
            self.context.forward(record.key, record.value)

    builder = TopologyBuilder().add_source("source", "in", **BYTES)
    builder.add_processor("kept", Keep, "source").add_sink("sink", "out", "kept", **BYTES)
    configs = {"max.message.bytes": "7000000"}
    builder.add_state_store(StoreSpec(name="last", changelog_configs=configs, **BYTES), "kept")

    application(kafka, builder.build()).begin("run-1")

    assert limit_of(kafka, CHANGELOG) == 7_000_000


class Asked:
    """Notes of which topics the settings are asked for."""

    def __init__(self) -> None:
        self.topics: list[list[str]] = []

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "admin.topic_configs":
            self.topics.append(list(arguments[0]))
        return effect()


@pytest.mark.parametrize("outputs", [1, 12])
def test_attempt_asks_for_the_settings_of_all_topics_that_it_writes_at_once(
    kafka: InMemoryKafka, outputs: int
) -> None:
    names = [f"out-{number}" for number in range(outputs)]
    builder = TopologyBuilder().add_source("source", "in", **BYTES)
    for name in names:
        kafka.create_topic(name)
        builder.add_sink(f"sink-{name}", name, "source", **BYTES)
    kafka.append("in", b"v", b"k")
    asked = Asked()
    slice_ = application(kafka, builder.build()).begin("run-1")
    application(kafka, builder.build(), interceptor=asked).task(slice_, 0, 0)
    assert asked.topics == [sorted(names)]
    asked.topics.clear()
    application(kafka, builder.build()).finish("run-1")
    # Of inputs and outputs, and of the internal topics, of which there are none.
    application(kafka, builder.build(), interceptor=asked).begin("run-2")
    assert len(asked.topics) <= 2


def test_begin_names_a_topic_of_the_users_that_gives_records_between_the_brokers_time(
    kafka: InMemoryKafka,
) -> None:
    kafka.create_topic("between", message_timestamp_type="LogAppendTime")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").through("between").send_to("out")
    (warning,) = application(kafka, builder.build()).begin("run-0").plan.warnings
    assert warning.startswith("intermediate topic between gives its records the broker's time")
    command = set_topic_command("between", {"message.timestamp.type": "CreateTime"})
    assert warning.endswith(f"run {command}")
    application(kafka, builder.build()).run("run-0", (0, 1))
    kafka.alter_topic("between", message_timestamp_type="CreateTime")
    kafka.append("in", b"v", b"k", timestamp_ms=7)
    assert application(kafka, builder.build()).run("run-1").warnings == ()
    assert kafka.records("out")[-1].timestamp() == (1, 7)
