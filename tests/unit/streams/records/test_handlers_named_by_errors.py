"""An error names a handler where one can take its record, and only there: turning it on, as the text says,
resumes the failed run to a right result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from airflow_kstreams.streams import Processor, RetryPolicy, StoreSpec, timestamps
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application
from tests.support.remedies import walked
from tests.support.topology.as_told import JSON, TEXT, Define, Forwarding, Keeping, built

APP = "app"
LETTERS = f"{APP}-dead-letter"
NOW_MS = 1_600_000_000_000
KEPT = StoreSpec(name="kept", key_serde=TEXT, value_serde=JSON)
ALL_HANDLERS = {
    f"{kind}.exception.handler": "dead-letter" for kind in ("deserialization", "processing", "production")
}


class Story:
    """Records ``a``=1, ``b``=2, ``a``=3 in ``in``, of which ``b`` is at fault."""

    def __init__(self, value: bytes = b"2", ahead_ms: int = 0, letters_take: int = 0) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=NOW_MS))
        self.kafka.create_topic("in", message_timestamp_after_max_ms=str(2**62))
        self.kafka.create_topic("out")
        self.kafka.create_topic("small", max_message_bytes="20000")
        self.kafka.create_topic("table")
        if letters_take:
            self.kafka.create_topic(LETTERS, max_message_bytes=str(letters_take))
        for number, (key, data) in enumerate(((b"a", b"1"), (b"b", value), (b"a", b"3"))):
            later = ahead_ms if key == b"b" else 0
            self.kafka.append("in", data, key, timestamp_ms=NOW_MS + number + later)
        self.kafka.append("table", b"{", b"b")

    def application(self, define: Define, settings: Mapping[str, object]) -> Application:
        return Application(
            application_id=APP,
            topology=built(define),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"settle.ms": 0, **settings},
        )

    def written(self) -> list[Any]:
        return [
            json.loads(record.value() or b"null")
            for topic in ("out", "small")
            for record in self.kafka.records(topic)
        ]

    def letters(self) -> int:
        return (
            len(self.kafka.records(LETTERS))
            if LETTERS in self.kafka.admin().describe_topics([LETTERS])
            else 0
        )


def fails(value: int) -> int:
    return value + 0 // (value - 2)


async def fails_later(value: int) -> int:
    return fails(value)


class Failing(Forwarding):
    def process(self, record: Any) -> None:
        fails(record.value)
        super().process(record)


class Sending(Forwarding):
    def process(self, record: Any) -> None:
        value = 1j if record.value == 2 else record.value
        self.context.send("out", record.key, value, key_serde=TEXT, value_serde=JSON)


class FailingInInit(Forwarding):
    def init(self, context: Any) -> None:
        raise ValueError("always")


class SendingInInit(Sending):
    def init(self, context: Any) -> None:
        super().init(context)
        context.send("out", "a", 1j, key_serde=TEXT, value_serde=JSON)


class FailingInClose(Forwarding):
    def close(self) -> None:
        raise ValueError("always")


class ForwardingInClose(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        pass

    def close(self) -> None:
        for value in (1, 2, 3):
            self.context.forward("late", value)


class FailingTimer(Forwarding):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1)

    def punctuate(self, time_ms: int) -> None:
        fails(time_ms - NOW_MS + 1)


class Timed(FailingTimer):
    def punctuate(self, time_ms: int) -> None:
        pass


class KeptTooLarge(Keeping):
    def process(self, record: Any) -> None:
        self.kept.put(record.key, "x" * 3_000_000 if record.value == 2 else record.value)
        self.context.forward(record.key, record.value)


def out(stream: Any, **options: Any) -> Any:
    return stream.send_to("out", **{"value_serde": JSON, **options})


def shaped(shape: Callable[[Any], Any]) -> Define:
    return lambda builder: out(shape(builder.stream("in")))


def large(value: int) -> Any:
    return Random(1).randbytes(30_000).hex() if value == 2 else value


def refused_by_broker(builder: Any) -> Any:
    return builder.stream("in").map_values(large).send_to("small", value_serde=JSON)


def beside_global_table(builder: Any) -> Any:
    stream, table = builder.stream("in"), builder.global_table("table")
    return out(stream.left_join(table, lambda value, found: value, key=lambda key, value: key))


def keeping_too_large(builder: Any) -> Any:
    builder.add_state_store(KEPT)
    return out(builder.stream("in").process(KeptTooLarge, "kept"))


#: Where it fails -> (the story, the topology, what is written without the record, letters of it).
TAKEN: dict[str, tuple[dict[str, Any], Define, list[Any], int]] = {
    "a function": ({}, shaped(lambda s: s.map_values(fails)), [1, 3], 1),
    "a processor": ({}, shaped(lambda s: s.process(Failing)), [1, 3], 1),
    "send": ({}, lambda b: b.stream("in").process(Sending), [1, 3], 1),
    "a call": ({}, shaped(lambda s: s.map_values_async(fails_later)), [1, 3], 1),
    "an aggregator": (
        {},
        shaped(lambda s: s.group_by_key().aggregate(int, lambda k, v, a: a + fails(v)).to_stream()),
        [4],
        1,
    ),
    "below a cached table": (
        {},
        shaped(lambda s: s.group_by_key().count().to_stream().map_values(fails)),
        [1],
        1,
    ),
    "a timer": ({}, shaped(lambda s: s.process(FailingTimer)), [1, 2, 3], 1),
    "below what close forwards": (
        {},
        shaped(lambda s: s.process(ForwardingInClose).map_values(fails)),
        [1, 3],
        1,
    ),
    "a global table's entry": ({}, beside_global_table, [1, 3], 1),
    "a sink's serde": ({}, shaped(lambda s: s.map_values(lambda v: 1j if v == 2 else v)), [1, 3], 1),
    "a partitioner": (
        {},
        lambda b: out(b.stream("in"), partitioner=lambda topic, key, value, count: 0 * fails(value)),
        [1, 3],
        1,
    ),
    "a repartition topic's serde": (
        {},
        shaped(lambda s: s.group_by(lambda k, v: 1j if v == 2 else k).count().to_stream()),
        [2],
        1,
    ),
    "a source's serde": ({"value": b"{"}, shaped(lambda s: s), [1, 3], 1),
    "an extractor": (
        {"value": b'"no"'},
        lambda b: out(b.stream("in", timestamps=timestamps.extract(lambda record: record.value + NOW_MS))),
        [1, 3],
        1,
    ),
    "a time far ahead": (
        {"ahead_ms": 90 * 86_400_000},
        shaped(lambda s: s.process(Timed)),
        [1, 3],
        1,
    ),
    "a result too large for the client": (
        {},
        shaped(lambda s: s.map_values(lambda v: "x" * 3_000_000 if v == 2 else v)),
        [1, 3],
        1,
    ),
    "a result too large for the broker": ({}, refused_by_broker, [1, 3], 1),
}

#: One of each handler.
SKIPPED = ("a function", "a source's serde", "a result too large for the broker")

#: What no handler takes.
NOT_TAKEN: dict[str, tuple[dict[str, Any], Define]] = {
    "init": ({}, shaped(lambda s: s.process(FailingInInit))),
    "what init sends": ({}, lambda b: b.stream("in").process(SendingInInit)),
    "close": ({}, shaped(lambda s: s.process(FailingInClose))),
    "a batch of rows": ({}, shaped(lambda s: s.map_batches(lambda rows: rows.nothing))),
    "the last call that a policy lets fail": (
        {},
        shaped(
            lambda s: s.map_values_async(
                fails_later, retry=RetryPolicy(attempts=2, backoff_ms=0, then="fail"), name="ask"
            )
        ),
    ),
    "a change too large for the changelog": (
        {},
        keeping_too_large,
    ),
    "a letter larger than its topic takes": (
        {"value": b'"' + b"x" * 3_000 + b"{", "letters_take": 100},
        shaped(lambda s: s),
    ),
}


def failure(story: Story, define: Define, settings: Mapping[str, object]) -> RecordError:
    with pytest.raises(RecordError) as failed:
        story.application(define, settings).run("one")
    return failed.value


def named_settings(error: RecordError) -> Mapping[str, str]:
    """Return the settings that an error asks for."""
    (printed,) = re.findall(r"settings=({.*?})", error.fix)
    settings: dict[str, str] = json.loads(printed)
    return settings


@pytest.mark.parametrize(
    ("place", "policy"),
    [
        *((place, "dead-letter") for place in TAKEN if "too large" not in place),
        *((place, "skip") for place in SKIPPED),
        walked("error_handling.ErrorHandling.refused", "a result too large for the client", "dead-letter"),
        walked("commit.TaskCommit._placed", "a result too large for the broker", "dead-letter"),
    ],
)
def test_handler_that_an_error_names_resumes_the_failed_run(place: str, policy: str) -> None:
    given, define, wanted, letters = TAKEN[place]
    story = Story(**given)
    told = named_settings(failure(story, define, {}))
    assert {*told.values()} == {"dead-letter"}

    summary = story.application(define, dict.fromkeys(told, policy)).run("one")

    assert story.written() == wanted
    assert story.letters() == (letters if policy == "dead-letter" else 0)
    assert summary.counts is not None
    rule = "dead-lettered" if policy == "dead-letter" else "skipped"
    assert {each.rule: each.records for each in summary.counts.left_out} == {rule: letters}


@pytest.mark.parametrize("place", NOT_TAKEN)
def test_no_handler_is_named_where_none_would_take_the_record(place: str) -> None:
    given, define = NOT_TAKEN[place]
    story = Story(**given)
    before = ALL_HANDLERS if "letters_take" in given else {}
    assert "exception.handler" not in failure(story, define, before).fix
    assert "exception.handler" not in failure(story, define, ALL_HANDLERS).fix


def test_another_run_takes_the_failed_one_over_with_the_handler_that_it_named() -> None:
    story, define = Story(), shaped(lambda s: s.map_values(fails))
    told = named_settings(failure(story, define, {}))

    SwitchingApplication(
        topology=built(define),
        cluster=story.kafka,
        clock=story.kafka.clock,
        settings={"settle.ms": 0, **told},
    ).batch_and_what_was_left("two")

    assert (story.written(), story.letters()) == ([1, 3], 1)


@pytest.mark.parametrize("first", ["batch", "continuous"])
def test_run_without_an_end_goes_on_with_the_handler_that_a_failed_run_named(first: str) -> None:
    story, define = Story(), shaped(lambda s: s.map_values(fails))

    def application(settings: Mapping[str, object]) -> SwitchingApplication:
        return SwitchingApplication(
            topology=built(define),
            cluster=story.kafka,
            clock=story.kafka.clock,
            settings={"settle.ms": 0, **settings},
        )

    if first == "batch":
        told = named_settings(failure(story, define, {}))
    else:
        running = application({}).run_continuously("one")
        with pytest.raises(RecordError) as failed:
            running.rounds(3)
        running.close()
        told = named_settings(failed.value)

    running = application(told).run_continuously("two")
    running.rounds(3)
    running.stop()

    assert (story.written(), story.letters()) == ([1, 3], 1)
