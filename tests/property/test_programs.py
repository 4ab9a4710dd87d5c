"""Generated programs, those that are compared with Kafka Streams, cut into runs: where a run ends changes
nothing of what single records lead to; and whole runs give what the test driver gives for their slices.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from airflow_kstreams.streams import Topology
from airflow_kstreams.testing import InMemoryKafka
from tests.support.examples import examples
from tests.support.kafka.in_process import Application
from tests.support.programs.comparing import (
    APPLICATION,
    BYTES,
    DEAD_LETTERS,
    Running,
    data,
    driver_of,
    letters_of,
    plan_of,
    settings_of,
    without_arrival,
)
from tests.support.programs.drawing import draw_program
from tests.support.programs.operators import SOUGHT, build
from tests.support.programs.program import Input, Program
from tests.support.programs.refusing import Refusing

_PROGRAMS = examples(120)
_PARTS = 6
#: Added to all times: 0 stands for the clock's time where clients write.
_LATER_MS = 1_000

#: (key, value, timestamp, headers) of what a topic got, in its order.
Written = list[tuple[bytes | None, bytes | None, int, Any]]


@pytest.fixture(autouse=True)
def without_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Leave out what the engine says of records that fail on purpose, thousands of lines."""
    caplog.set_level(logging.ERROR, "airflow_kstreams")


@pytest.mark.parametrize("part", range(_PARTS))
def test_results_and_state_are_the_same_when_runs_end_between_records(part: int) -> None:
    for seed in range(part, _PROGRAMS, _PARTS):
        program = draw_program(seed, SOUGHT[seed % len(SOUGHT)])
        count = len(program.records)
        ends = frozenset(Random(seed).sample(range(count), min(4, count)))
        whole, cut = Running(program), Running(program, restart_after=ends)
        assert cut.results == whole.results, (seed, program.to_json(), ends)
        assert cut.state == whole.state, (seed, program.to_json(), ends)


@pytest.mark.parametrize("part", range(_PARTS))
def test_runs_give_what_the_driver_gives_when_it_is_fed_their_slices(part: int) -> None:
    for seed in range(part, _PROGRAMS, _PARTS):
        program = draw_program(seed, SOUGHT[seed % len(SOUGHT)])
        slices = _slices(program.records, Random(seed))
        runs, driver = _by_runs(program, slices), _by_driver(program, slices)
        runs, driver = _as_letters(runs), _as_letters(driver)
        if any(step.arguments.get("partitions", 1) > 1 for step in program.steps):
            runs, driver = _key_by_key(runs), _key_by_key(driver)
        assert runs == driver, (seed, program.to_json())


def _key_by_key(found: dict[str, Written]) -> dict[str, Written]:
    """Return what topics got, in order for each key: tasks of several partitions have no order."""
    return {topic: sorted(rows, key=lambda row: repr(row[0])) for topic, rows in found.items()}


def _as_letters(found: dict[str, Written]) -> dict[str, Written]:
    """Return what topics got, dead letters in any order: tasks run one after the other in runs only. Left out
    are the calls that led to an error, offsets, of which transactions take some, and ids of topics.
    """
    varying = {f"__streams.errors.{name}" for name in ("stacktrace", "offset", "first.place", "topic.id")}
    letters = [
        (key, value, timestamp_ms, [header for header in headers if header[0] not in varying])
        for key, value, timestamp_ms, headers in found.get(DEAD_LETTERS, ())
    ]
    return {**found, DEAD_LETTERS: sorted(letters, key=repr)}


def _slices(records: Sequence[Input], random: Random) -> list[Sequence[Input]]:
    cuts = sorted(random.sample(range(1, len(records)), 2))
    return [records[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(records)], strict=True)]


def _by_driver(program: Program, slices: Sequence[Sequence[Input]]) -> dict[str, Written]:
    topology = build(program)[0]
    with driver_of(program, topology) as driver:
        for records in slices:
            with driver.run():
                for topic, key, value, timestamp_ms in records:
                    driver.pipe_bytes(
                        topic, key=data(key), value=data(value), timestamp_ms=timestamp_ms + _LATER_MS
                    )
        return {
            topic: [
                (_key(topic, record.key), record.value, record.timestamp_ms, list(record.headers))
                for record in driver.read_output(topic, key_serde=BYTES, value_serde=BYTES)
            ]
            for topic in _written(program, topology)
        }


def _by_runs(program: Program, slices: Sequence[Sequence[Input]]) -> dict[str, Written]:
    topology, kafka = build(program)[0], InMemoryKafka()
    plan = plan_of(program, topology)
    for topic in {*plan.sources, *plan.outputs, *plan.globals, DEAD_LETTERS} - {*plan.repartition_topics}:
        kafka.create_topic(topic)
    app = Application(
        application_id=APPLICATION,
        topology=topology,
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0, **settings_of(program)},
        interceptor=Refusing(),
    )
    for number, records in enumerate(slices):
        for topic, key, value, timestamp_ms in records:
            kafka.append(topic, data(value), data(key), timestamp_ms=timestamp_ms + _LATER_MS)
        app.run(f"run-{number}", (0, number))
    found: dict[str, Written] = defaultdict(list)
    for topic in _written(program, topology):
        found[topic] = [
            (_key(topic, record.key()), record.value(), record.timestamp()[1], record.headers() or [])
            for record in kafka.records(topic)
        ]
    return dict(found)


def _written(program: Program, topology: Topology) -> list[str]:
    plan = plan_of(program, topology)
    return sorted({*plan.outputs, *plan.changelogs, *letters_of(program)})


def _key(topic: str, key: bytes | None) -> bytes | None:
    return key if key is None else without_arrival(topic, key)
