"""``dev/bench --profile``: where the time of one record goes in a task, without broker and Spark.

The task is the real one, the records are the client's own objects; fetching is left out. Sending is left out
or is the client's own, on the cluster that the client pretends to have (``test.mock.num.brokers``): its
threads send, and only the time of the task's thread counts. Both sides run in turn, and times are CPU times,
so that others on the machine hardly matter; the ratio is the median over the turns.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
from confluent_kafka import Message, Producer
from rich.table import Table

from airflow_kstreams.kafka.client_errors import convert
from airflow_kstreams.kafka.delivery import DeliveryFailures
from airflow_kstreams.kafka.writer import make_produce
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from dev.benchmarks.inputs import events
from dev.benchmarks.suite_topologies import EVENTS, OUTPUT, TOPOLOGIES, Event, Slim
from dev.benchmarks.workloads import WORKLOADS

_PARTITION = TopicPartition(EVENTS, 0)
_FETCH = 2_000
_ROUNDS = 9
_LINES = 12
_SECONDS = 60
_CLIENT = {
    "bootstrap.servers": "unused:9092",
    "test.mock.num.brokers": 1,
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "compression.type": "lz4",
    "delivery.report.only.error": True,
    "partitioner": "murmur2_random",
    "log_level": 0,
}

#: Timestamp of the first record, epoch milliseconds, as of real records: one of January 1970 is looked at as
#: seconds that someone took for milliseconds.
_FIRST_MS = 1_700_000_000_000

Produce = Callable[..., None]


def measure(records: int = 200_000) -> tuple[Table, list[str]]:
    """Return CPU microseconds of a record, in a task and by hand, and the profiles of the tasks."""
    table = Table("topology", "sending", "task, µs", "by hand, µs", "ratio")
    profiles = []
    messages = _messages(records)
    for name, by_hand in (("stateless", _filter_and_map), ("sum_by_key", _sum)):
        with _client() as (wrapped, plain, settle):
            for sending, for_task, for_hand in (
                ("left out", _drop, _drop),
                ("the client's", wrapped, plain),
            ):
                times = []
                for _ in range(_ROUNDS):
                    task = _cpu_seconds(partial(_run_task, name, messages, for_task))
                    settle()
                    hand = _cpu_seconds(partial(by_hand, messages, for_hand))
                    settle()
                    times.append((task, hand))
                table.add_row(
                    name,
                    sending,
                    f"{min(task for task, _ in times) / records * 1e6:.2f}",
                    f"{min(hand for _, hand in times) / records * 1e6:.2f}",
                    f"{statistics.median(hand / task for task, hand in times):.2f}",
                )
        profiles.append(f"{name}\n{_profile(name, messages)}")
    return table, profiles


@contextmanager
def _client() -> Iterator[tuple[Produce, Produce, Callable[[], object]]]:
    """Give the engine's produce, the client's own, and what waits until all is sent."""
    producer = Producer(_CLIENT)
    wrapped, _ = make_produce(
        producer,
        bootstrap="unused",
        timeout_seconds=_SECONDS,
        explain=lambda error, what: convert(error, what=what, where="unused"),
        refused=DeliveryFailures({}, {}),
    )
    for topic in (OUTPUT, "changelog"):
        producer.produce(topic, b"")
    producer.flush(_SECONDS)
    yield wrapped, producer.produce, lambda: producer.flush(_SECONDS)
    producer.flush(_SECONDS)


def _messages(records: int) -> list[Any]:
    made = events(WORKLOADS["stateless"], EVENTS, 0, records)
    return [
        Message(topic=EVENTS, partition=0, offset=at, key=key, value=value, timestamp=(1, _FIRST_MS + at))
        for at, (_, value, key, _) in enumerate(made)
    ]


def _cpu_seconds(work: Callable[[], None]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def _run_task(name: str, messages: Sequence[Any], produce: Produce) -> None:
    task = StreamTask(
        TOPOLOGIES[name](),
        task_id=TaskId(subtopology=0, group=0),
        bounds={_PARTITION: (0, len(messages))},
        produce=produce,
        settings=ApplicationSettings.parse("bench", {}),
        progress=TaskProgress(),
    )
    task.restored()
    task.open()
    for start in range(0, len(messages), _FETCH):
        task.add(_PARTITION, messages[start : start + _FETCH])
        if start + _FETCH >= len(messages):
            task.group.reached(_PARTITION, len(messages))
        while task.process(_FETCH):
            if task.commit_due(interval_elapsed=False):
                _flush(task, produce)
    _flush(task, produce)
    task.stop()
    task.close_processors()


def _flush(task: StreamTask, produce: Produce) -> None:
    task.flush()
    for _, _, _, changes in task.changes():
        for key, value, timestamp_ms in changes:
            produce("changelog", value, key, 0, timestamp_ms, None)


def _drop(
    topic: str,
    value: bytes | None = None,
    key: bytes | None = None,
    partition: int = -1,
    timestamp_ms: int | None = None,
    headers: Any = None,
) -> None:
    """Stand for the client's produce."""


def _filter_and_map(messages: Sequence[Any], produce: Produce) -> None:
    decode, encode = msgspec.json.Decoder(Event).decode, msgspec.json.Encoder().encode
    for message in messages:
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        event = decode(message.value())
        if event.amount % 10 != 0:
            produce(OUTPUT, encode(Slim(event.id, event.user, event.amount * 100)), message.key())


def _sum(messages: Sequence[Any], produce: Produce) -> None:
    decode = msgspec.json.Decoder(Event).decode
    totals: dict[bytes, int] = {}
    dirty: set[bytes] = set()
    unlogged: set[bytes] = set()
    for number, message in enumerate(messages, start=1):
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        key = message.key()
        totals[key] = totals.get(key, 0) + decode(message.value()).amount
        dirty.add(key)
        if number % 100_000 == 0:
            for changed in dirty:
                produce(OUTPUT, b"%d" % totals[changed], changed)
            unlogged |= dirty
            dirty.clear()
    for changed in unlogged:
        produce("changelog", b"%d" % totals[changed], changed, 0)


def _profile(name: str, messages: Sequence[Any]) -> str:
    profiler = cProfile.Profile()
    profiler.runcall(_run_task, name, messages, _drop)
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("tottime").print_stats(_LINES)
    return "\n".join(line for line in text.getvalue().splitlines() if line.strip())
