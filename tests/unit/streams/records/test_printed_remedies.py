"""A run that failed at a record is mended as its error says and retried, and nothing is lost or doubled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_kstreams.streams import (
    Processor,
    RetryPolicy,
    StoreSpec,
    TumblingWindow,
    Windowed,
    serdes,
    timestamps,
)
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.graph.calls import GivenUp
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory
from tests.support.remedies import walked
from tests.support.topology.as_told import JSON, TEXT, WHOLE, Define, Forwarding, built

APP = "app"
NOW_MS = 1_700_000_000_000
COPIED = [("a", 1), ("b", 2), ("a", 3)]
Settings = Mapping[str, object]
WINDOWED = serdes.time_windowed(TEXT, 1_000)
DAY_MS = 86_400_000


class Scene:
    """Records ``a``=1, ``b``=2, ``a``=3 in ``in``, and an application whose code changes.

    :param value: of the second record, as bytes.
    :param ahead_ms: how far the second record is dated ahead.
    """

    def __init__(self, value: bytes = b"2", ahead_ms: int = 0, **out: Any) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=NOW_MS))
        self.kafka.create_topic("in")
        self.kafka.create_topic("out", **out)
        self.kafka.create_topic("side")
        for number, (key, data) in enumerate(((b"a", b"1"), (b"b", value), (b"a", b"3"))):
            ahead = ahead_ms if number == 1 else 0
            self.kafka.append("in", data, key, timestamp_ms=NOW_MS + number + ahead)

    def run(self, define: Define, settings: Settings | None = None) -> list[tuple[Any, Any]]:
        """Run, or retry, the run ``one``, and return what ``out`` and ``side`` hold of it."""
        Application(
            application_id=APP,
            topology=built(define),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"settle.ms": 0, **(settings or {})},
        ).run("one")
        return [
            ((record.key() or b"").decode("latin-1"), json.loads(record.value() or b"null"))
            for topic in ("out", "side")
            for record in self.kafka.records(topic)
        ]


def out(stream: Any, **options: Any) -> Any:
    return stream.send_to("out", **{"value_serde": JSON, **options})


def sending(**options: Any) -> Define:
    class Sending(Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Any) -> None:
            self.context.send("side", record.key, record.value, **options)

    return lambda b: out(b.stream("in").process(Sending))


class Javas(Forwarding):
    def process(self, record: Any) -> None:
        self.context.forward(record)


def spec(**options: Any) -> StoreSpec:
    return StoreSpec(name="counts", key_serde=TEXT, value_serde=JSON, **options)


def per_key(*, fails: bool, store: Any = "counts") -> Define:
    def define(b: Any) -> Any:
        counts = b.stream("in").group_by_key().count(store=store).to_stream()
        return out(counts.map_values(lambda n: n // (n - 2) if fails else n * 10))

    return define


def counts_by_window(b: Any) -> Any:
    counts = b.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=1_000, grace_ms=0)).count()
    return counts.to_stream()


def per_window(b: Any) -> Any:
    return out(counts_by_window(b).select_key(lambda window, n: window.key))


def windows(**options: Any) -> Define:
    return lambda b: out(counts_by_window(b), **options)


def by_value(**options: Any) -> Define:
    def define(b: Any) -> Any:
        counts = b.stream("in").group_by(lambda key, value: value, name="by", **options).count(store="n")
        return out(counts.to_stream().select_key(lambda value, n: str(value)))

    return define


def dated(field: Callable[[Any], Any]) -> Define:
    return lambda b: out(b.stream("in", timestamps=timestamps.extract(field)))


def windowed(key: str) -> str:
    return WINDOWED.serialize(Windowed(key, NOW_MS, NOW_MS + 1_000)).decode("latin-1")


def halved(value: int) -> float:
    return 12 / (value - 2)


async def halved_later(value: int) -> float:
    return halved(value)


def asked(*, then: GivenUp) -> Define:
    policy = RetryPolicy(attempts=2, backoff_ms=0, then=then)
    return lambda b: out(b.stream("in").map_values_async(halved_later, retry=policy, name="ask"))


WALKS = [
    walked(
        "error_handling._unprocessed: mend the function",
        {},
        (lambda b: out(b.stream("in").map_values(halved)), {}),
        (lambda b: out(b.stream("in").map_values(lambda value: value)), {}),
        COPIED,
    ),
    walked(
        "error_handling._unprocessed: give send() the serdes",
        {},
        (sending(key_serde=TEXT), {}),
        (sending(key_serde=TEXT, value_serde=JSON), {}),
        COPIED,
    ),
    walked(
        "error_handling._unprocessed: write forward(record.key, record.value)",
        {},
        (lambda b: out(b.stream("in").process(Javas)), {}),
        (lambda b: out(b.stream("in").process(Forwarding)), {}),
        COPIED,
    ),
    walked(
        "error_handling.ErrorHandling._explain: mend the extractor",
        {},
        (dated(lambda record: record.value["at"]), {}),
        (dated(lambda record: record.value), {}),
        COPIED,
    ),
    walked(
        "error_handling.ErrorHandling._explain: mend the source's serdes",
        {"value": b"{"},
        (lambda b: out(b.stream("in")), {}),
        (lambda b: out(b.stream("in", value_serde=TEXT)), {}),
        [("a", "1"), ("b", "{"), ("a", "3")],
    ),
    walked(
        "error_handling.ErrorHandling._explain: mend their producer; raise max.timestamp.ahead.ms",
        {"ahead_ms": 90 * DAY_MS, "message_timestamp_after_max_ms": str(99 * DAY_MS)},
        (per_window, {}),
        (per_window, {"max.timestamp.ahead.ms": -1, "max.late.share": 1}),
        [("a", 2), ("b", 1)],
    ),
    walked(
        "map_batches.OpenBatch._failure",
        {},
        (lambda b: out(b.stream("in").map_batches(lambda rows: rows.nothing), key_serde=TEXT), {}),
        (lambda b: out(b.stream("in").map_batches(lambda rows: rows), key_serde=TEXT), {}),
        COPIED,
    ),
    walked(
        "error_handling._unwritten: mend the sink's serdes or its input",
        {},
        (lambda b: out(b.stream("in").map_values(str), value_serde=WHOLE), {}),
        (lambda b: out(b.stream("in").map_values(str)), {}),
        [("a", "1"), ("b", "2"), ("a", "3")],
    ),
    walked(
        "error_handling._unwritten: mend the sink's serdes or its input",
        {},
        (lambda b: out(b.stream("in").map_values(lambda value: value * 1j)), {}),
        (lambda b: out(b.stream("in").map_values(lambda value: value * 1.5)), {}),
        [("a", 1.5), ("b", 3.0), ("a", 4.5)],
    ),
    walked(
        "error_handling._unprocessed: give its RetryPolicy",
        {},
        (asked(then="fail"), {}),
        (asked(then="dead-letter"), {}),
        [("a", -12.0), ("a", 12.0)],
    ),
    walked(
        "error_handling._unwritten: mend the sink's partitioner or its input",
        {},
        (lambda b: out(b.stream("in"), partitioner=lambda topic, key, value, count: 1 // (value - 2)), {}),
        (lambda b: out(b.stream("in"), partitioner=lambda topic, key, value, count: 0), {}),
        COPIED,
    ),
    walked(
        "error_handling._unwritten: pass {}_serde= to what repartitions there",
        {},
        (by_value(), {}),
        (by_value(key_serde=WHOLE), {}),
        [("1", 1), ("2", 1), ("3", 1)],
    ),
    walked(
        "error_handling.ErrorHandling._explain: give windowed keys",
        {},
        (windows(key_serde=TEXT), {}),
        (windows(key_serde=WINDOWED), {}),
        [(windowed("a"), 2), (windowed("b"), 1)],
    ),
    walked(
        "error_handling.ErrorHandling.record_error",
        {},
        (per_key(fails=True), {}),
        (per_key(fails=False, store=spec(cached=False)), {}),
        [("a", 10), ("b", 10), ("a", 20)],
    ),
]


@pytest.mark.parametrize(("given", "fault", "told", "wanted"), WALKS)
def test_run_gives_everything_once_when_it_is_mended_as_its_error_says_and_retried(
    given: Mapping[str, Any],
    fault: tuple[Define, Settings],
    told: tuple[Define, Settings],
    wanted: list[tuple[Any, Any]],
) -> None:
    scene = Scene(**given)
    run = scene.run
    with pytest.raises(KStreamsError) as failed:
        run(*fault)
    if "if that makes another topology" in failed.value.fix:
        accept_in_memory(failed.value, scene.kafka)
    assert sorted(run(*told), key=str) == sorted(wanted, key=str)
