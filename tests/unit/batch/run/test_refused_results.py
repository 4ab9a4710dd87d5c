"""Results that their topic does not take are left out and counted (``production.exception.handler``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    StoreSpec,
    Topology,
    serdes,
    timestamps,
)
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.records.timestamp_reading import iso_of
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("only-refused-results-are-left-out")

APP = "refused"
DEAD = f"{APP}-dead-letter"
SKIP = {"production.exception.handler": "skip"}
DEAD_LETTERS = {"production.exception.handler": "dead-letter"}
BOTH = pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])


@pytest.fixture
def kafka() -> InMemoryKafka:
    made = InMemoryKafka(clock=ManualClock(now_ms=1_600_000_000_000))
    for topic in ("in", "out"):
        made.create_topic(topic)
    return made


def large(seed: int) -> bytes:
    """Return what no compression makes small enough for a topic that takes 20,000 bytes."""
    return Random(seed).randbytes(30_000)


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())


def copied() -> Topology:
    made = builder()
    made.stream("in").send_to("out", name="copies")
    return made.build()


def counted() -> Topology:
    """Every record is counted, the count in its store; what is written is the record."""
    made = builder()
    made.stream("in").process(
        Counting, StoreSpec(name="n", key_serde=serdes.bytes(), value_serde=serdes.int64())
    )
    return made.build()


class Counting(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.state_store("n")

    def process(self, record: ProcessorRecord) -> None:
        self.store.put(record.key, (self.store.get(record.key) or 0) + 1)
        self.context.send("out", record.key, record.value, key_serde=BYTES, value_serde=BYTES)


BYTES = serdes.bytes()


def application(
    kafka: InMemoryKafka, topology: Topology, settings: Mapping[str, str], guarantee: str = "exactly_once"
) -> Application:
    return Application(
        application_id=APP,
        topology=topology,
        on=kafka,
        settings={"processing.guarantee": guarantee, **settings},
    )


def left_out(summary: Any) -> list[tuple[str, str, int]]:
    return [(each.node, each.rule, each.records) for each in summary.counts.left_out]


@BOTH
def test_result_that_the_client_refuses_is_left_out_and_counted(kafka: InMemoryKafka, guarantee: str) -> None:
    for value in (b"a", b"x" * 3_000_000, b"b"):
        kafka.append("in", value, b"k")

    summary = application(kafka, copied(), SKIP, guarantee).run("run-1")

    assert kafka.values("out") == [b"a", b"b"]
    assert left_out(summary) == [("copies", "skipped", 1)]
    assert [(task.attempts, task.records_out) for task in summary.tasks] == [(1, 2)]


@BOTH
def test_results_that_the_broker_refuses_are_left_out_by_other_attempts(
    kafka: InMemoryKafka, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.alter_topic("out", max_message_bytes="20000")
    values = [b"%d" % n if n % 2 else large(n) for n in range(16)]
    for value in values:
        kafka.append("in", value, b"k")

    summary = application(kafka, copied(), SKIP, guarantee).run("run-1")

    small = values[1::2]
    assert kafka.values("out")[-len(small) :] == small
    if guarantee == "exactly_once":
        assert kafka.values("out") == small
    assert left_out(summary) == [("copies", "skipped", 8)]
    assert "out-0 was refused" in caplog.text
    assert "it is left out, and the task resumes" in caplog.text


def test_result_is_written_when_it_is_small_enough_compressed(kafka: InMemoryKafka) -> None:
    kafka.alter_topic("out", max_message_bytes="20000")
    kafka.append("in", b"x" * 30_000, b"k")
    kafka.append("in", large(0), b"k")

    summary = application(kafka, copied(), SKIP).run("run-1")

    assert kafka.values("out") == [b"x" * 30_000]
    assert left_out(summary) == [("copies", "skipped", 1)]


@pytest.mark.parametrize("size", [30_000, 3_000_000])
def test_consumed_record_becomes_a_dead_letter_when_its_result_is_refused(
    kafka: InMemoryKafka, size: int
) -> None:
    kafka.alter_topic("out", max_message_bytes="20000")
    made = builder()
    made.stream("in").map_values(lambda value: Random(0).randbytes(size)).send_to("out", name="grown")
    kafka.append("in", b"seed", b"k", headers=[("own", b"1")])

    summary = application(kafka, made.build(), DEAD_LETTERS).run("run-1")

    (letter,) = kafka.records(DEAD)
    headers = dict(letter.headers() or [])
    assert (letter.key(), letter.value(), headers["own"]) == (b"k", b"seed", b"1")
    assert headers["__streams.errors.node"] == b"grown"
    assert b"MSG_SIZE_TOO_LARGE" in (headers["__streams.errors.message"] or b"")
    assert kafka.values("out") == []
    assert left_out(summary) == [("grown", "dead-lettered", 1)]


def test_state_has_what_was_processed_when_results_sent_by_name_are_refused(kafka: InMemoryKafka) -> None:
    for value in (b"a", b"x" * 3_000_000, b"b"):
        kafka.append("in", value, b"k")

    summary = application(kafka, counted(), SKIP).run("run-1")

    assert kafka.values("out") == [b"a", b"b"]
    assert [(rule, records) for _, rule, records in left_out(summary)] == [("skipped", 1)]
    changes = kafka.values(f"{APP}-n-changelog")
    assert serdes.int64().deserialize((changes[-1] or b"")[-8:]) == 3


def test_change_of_a_store_is_never_left_out(kafka: InMemoryKafka) -> None:
    made = builder()
    made.stream("in").to_table(store="last").to_stream().send_to("out")
    topology = made.build()
    kafka.append("in", b"v", b"k")
    application(kafka, topology, SKIP).run("run-1")
    kafka.append("in", large(0), b"k")
    kafka.alter_topic(f"{APP}-last-changelog", max_message_bytes="20000")

    with pytest.raises(RecordError, match=f"a record sent to {APP}-last-changelog-0 was refused"):
        application(kafka, topology, SKIP).run("run-2")


def test_processing_error_still_ends_the_run_when_only_production_skips(kafka: InMemoryKafka) -> None:
    made = builder()
    made.stream("in").map_values(lambda value: "no bytes").send_to("out", name="copies")
    kafka.append("in", b"v", b"k")

    with pytest.raises(
        RecordError, match="cannot encode the result for topic 'out' of in-0@0 at node 'copies'"
    ):
        application(kafka, made.build(), SKIP).run("run-1")


def test_refused_result_ends_the_run_when_only_processing_skips(kafka: InMemoryKafka) -> None:
    kafka.append("in", b"x" * 3_000_000, b"k")

    with pytest.raises(RecordError, match=r"the result of in-0@0 at node 'copies'.* was refused"):
        application(kafka, copied(), {"processing.exception.handler": "skip"}).run("run-1")


@pytest.mark.parametrize("settings", [SKIP, DEAD_LETTERS])
def test_table_goes_on_when_what_it_emits_at_a_commit_point_is_refused(
    kafka: InMemoryKafka, settings: Mapping[str, str]
) -> None:
    kafka.alter_topic("out", max_message_bytes="20000")
    made = builder()
    joined = made.stream("in").group_by_key().reduce(lambda so_far, value: so_far + value, store="joined")
    joined.to_stream().send_to("out", name="results")
    topology = made.build()
    for value, key in ((large(0), b"k"), (b"a", b"l")):
        kafka.append("in", value, key)

    summary = application(kafka, topology, settings).run("run-1")

    assert kafka.values("out") == [b"a"]
    assert [records for *_, records in left_out(summary)] == [1]
    kafka.append("in", b"b", b"l")
    application(kafka, topology, settings).run("run-2")
    assert kafka.values("out") == [b"a", b"ab"]


# == times

HOUR_MS = 3_600_000


def dated(kafka: InMemoryKafka, *hours: float) -> list[int]:
    """Append records that are dated so many hours after now, and return their times."""
    times = [kafka.clock.now_ms() + int(each * HOUR_MS) for each in hours]
    for number, time_ms in enumerate(times):
        kafka.append("in", b"%d" % number, b"k", timestamp_ms=time_ms)
    return times


@pytest.mark.promise("refused-times-are-named")
@pytest.mark.parametrize("side", ["before", "after"])
def test_run_fails_with_time_limit_and_setting_when_a_results_time_is_refused(
    kafka: InMemoryKafka, side: str
) -> None:
    kafka.alter_topic("out", **{f"message_timestamp_{side}_max_ms": str(HOUR_MS)})
    _, time_ms = dated(kafka, 0, 2 if side == "after" else -2)

    with pytest.raises(RecordError) as caught:
        application(kafka, copied(), {}).run("run-1")

    setting = f"message.timestamp.{side}.max.ms"
    cause = caught.value.cause
    assert "a record sent to out-0 was refused: INVALID_TIMESTAMP: dated " + iso_of(time_ms) in cause
    assert (
        f"{side} this machine's time; the topic's {setting} is 3,600,000; it comes from in-0@[0, 2)" in cause
    )
    assert caught.value.fix == (
        "change what the topology sends, or the topic's limits (max.message.bytes, message.timestamp.*, "
        "cleanup.policy=compact needs keys); then retry the run; or leave such records out: "
        'settings={"production.exception.handler": "dead-letter"} (or "skip") of the operators, --setting '
        "production.exception.handler=dead-letter of a command"
    )
    kafka.alter_topic("out", **{f"message_timestamp_{side}_max_ms": str(3 * HOUR_MS)})
    application(kafka, copied(), {}).run("run-1", (0, 2))
    assert kafka.values("out") == [b"0", b"1"]


@BOTH
@pytest.mark.parametrize("side", ["before", "after"])
def test_results_whose_time_the_topic_refuses_are_left_out_and_counted(
    kafka: InMemoryKafka, guarantee: str, side: str
) -> None:
    kafka.alter_topic("out", **{f"message_timestamp_{side}_max_ms": str(HOUR_MS)})
    beyond = 2 if side == "after" else -2
    dated(kafka, 0, beyond, 0.5, beyond * 2, 0)

    summary = application(kafka, copied(), SKIP, guarantee).run("run-1")

    assert kafka.values("out") == [b"0", b"2", b"4"]
    assert left_out(summary) == [("copies", "skipped", 2)]
    assert [task.attempts for task in summary.tasks] == [2], "all that one batch is refused for"


@pytest.mark.promise("refused-times-are-named")
def test_result_is_written_when_only_another_of_its_content_is_dated_too_late(kafka: InMemoryKafka) -> None:
    now_ms = kafka.clock.now_ms()
    for time_ms in (now_ms, now_ms + 2 * HOUR_MS, now_ms + 1):
        kafka.append("in", b"v", b"k", timestamp_ms=time_ms)

    summary = application(kafka, copied(), SKIP).run("run-1")

    assert [record.timestamp()[1] for record in kafka.records("out")] == [now_ms, now_ms + 1]
    assert left_out(summary) == [("copies", "skipped", 1)]


def test_consumed_record_becomes_a_dead_letter_with_its_time_when_that_is_refused(
    kafka: InMemoryKafka,
) -> None:
    times = dated(kafka, 2, 3)

    summary = application(kafka, copied(), DEAD_LETTERS).run("run-1")

    letters = kafka.records(DEAD)
    assert [letter.timestamp()[1] for letter in letters] == times
    for letter, time_ms in zip(letters, times, strict=True):
        said = dict(letter.headers() or [])["__streams.errors.message"] or b""
        assert b"INVALID_TIMESTAMP: dated " + iso_of(time_ms).encode() in said
    assert kafka.values("out") == []
    assert left_out(summary) == [("copies", "dead-lettered", 2)]


def test_time_that_an_extractor_gives_is_refused_by_name(kafka: InMemoryKafka) -> None:
    made = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.int64())
    made.stream("in", timestamps=timestamps.extract(lambda record: record.value)).send_to("out")
    late_ms = kafka.clock.now_ms() + 2 * HOUR_MS
    kafka.append("in", serdes.int64().serialize(late_ms), b"k")

    with pytest.raises(
        RecordError, match=rf"dated {re.escape(iso_of(late_ms))}.*after\.max\.ms is 3,600,000"
    ):
        application(kafka, made.build(), {}).run("run-1")
    summary = application(kafka, made.build(), SKIP).run("run-1", (0, 2))
    assert [records for *_, records in left_out(summary)] == [1]


def test_dead_letter_whose_time_its_topic_refuses_fails_the_run(kafka: InMemoryKafka) -> None:
    kafka.create_topic("letters")
    dated(kafka, 2)
    named = {**DEAD_LETTERS, "errors.dead.letter.queue.topic.name": "letters"}

    with pytest.raises(RecordError, match="a record sent to letters-0 was refused: INVALID_TIMESTAMP"):
        application(kafka, copied(), named).run("run-1")
