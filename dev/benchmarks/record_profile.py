"""``dev/bench --profile``: where the time of one record goes in a task, without client, broker and Spark.

The task is the real one, the records are the client's own objects; only fetching and sending are left out.
Times are CPU times of this process, so that others on the machine hardly matter.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from confluent_kafka import Message
from rich.table import Table

from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId, TaskProgress
from airflow_kstreams.streams.settings import ApplicationSettings
from dev.benchmarks.inputs import events
from dev.benchmarks.suite_topologies import EVENTS, TOPOLOGIES, Event, Slim
from dev.benchmarks.workloads import WORKLOADS

_PARTITION = TopicPartition(EVENTS, 0)
_FETCH = 2_000
_ROUNDS = 5
_LINES = 12


def measure(records: int = 200_000) -> tuple[Table, list[str]]:
    """Return CPU microseconds of a record, in a task and by hand, and the profiles of the tasks."""
    table = Table("topology", "task, µs", "by hand, µs", "ratio")
    profiles = []
    messages = _messages(records)
    for name, by_hand in (("stateless", _filter_and_map), ("sum_by_key", _sum)):
        engine = min(_cpu_seconds(partial(_run_task, name, messages)) for _ in range(_ROUNDS))
        yardstick = min(_cpu_seconds(partial(by_hand, messages)) for _ in range(_ROUNDS))
        table.add_row(
            name,
            f"{engine / records * 1e6:.2f}",
            f"{yardstick / records * 1e6:.2f}",
            f"{yardstick / engine:.2f}",
        )
        profiles.append(f"{name}\n{_profile(name, messages)}")
    return table, profiles


def _messages(records: int) -> list[Any]:
    made = events(WORKLOADS["stateless"], EVENTS, 0, records)
    return [
        Message(topic=EVENTS, partition=0, offset=at, key=key, value=value, timestamp=(1, at))
        for at, (_, value, key, _) in enumerate(made)
    ]


def _cpu_seconds(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _run_task(name: str, messages: Sequence[Any]) -> None:
    task = StreamTask(
        TOPOLOGIES[name](),
        task_id=TaskId(subtopology=0, group=0),
        bounds={_PARTITION: (0, len(messages))},
        produce=_drop,
        settings=ApplicationSettings.parse("bench", {}),
        progress=TaskProgress(),
    )
    task.open()
    for start in range(0, len(messages), _FETCH):
        task.add(_PARTITION, messages[start : start + _FETCH])
        if start + _FETCH >= len(messages):
            task.group.reached(_PARTITION, len(messages))
        while task.process(_FETCH):
            if task.commit_due(interval_elapsed=False):
                _flush(task)
    _flush(task)
    task.close()


def _flush(task: StreamTask) -> None:
    task.flush()
    for changelog, changes in task.changes():
        for key, value, timestamp_ms in changes:
            _drop(changelog, value, key, 0, timestamp_ms, None)


def _drop(
    topic: str,
    value: bytes | None = None,
    key: bytes | None = None,
    partition: int = -1,
    timestamp_ms: int | None = None,
    headers: Any = None,
) -> None:
    """Stand for the client's produce."""


def _filter_and_map(messages: Sequence[Any]) -> None:
    decode, encode = msgspec.json.Decoder(Event).decode, msgspec.json.Encoder().encode
    for message in messages:
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        event = decode(message.value())
        if event.amount % 10 != 0:
            _drop("", encode(Slim(event.id, event.user, event.amount * 100)), message.key())


def _sum(messages: Sequence[Any]) -> None:
    decode = msgspec.json.Decoder(Event).decode
    totals: dict[bytes, int] = {}
    dirty: set[bytes] = set()
    for number, message in enumerate(messages, start=1):
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        key = message.key()
        totals[key] = totals.get(key, 0) + decode(message.value()).amount
        dirty.add(key)
        if number % 100_000 == 0:
            for changed in dirty:
                value = b"%d" % totals[changed]
                _drop("", value, changed, 0)
                _drop("", value, changed)
            dirty.clear()


def _profile(name: str, messages: Sequence[Any]) -> str:
    profiler = cProfile.Profile()
    profiler.runcall(_run_task, name, messages)
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("tottime").print_stats(_LINES)
    return "\n".join(line for line in text.getvalue().splitlines() if line.strip())
