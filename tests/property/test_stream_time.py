"""Stream time is a function of the logs: whatever the fetches and crashes, each record meets the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.records.record_queue import PartitionTimes
from tests.support.examples import examples
from tests.support.topology.records import FakeRecord

pytestmark = pytest.mark.promise("stream-time-follows-the-logs")

Log = dict[TopicPartition, list[int]]
Seen = list[tuple[TopicPartition, int, int]]

logs = st.lists(st.lists(st.integers(0, 40), max_size=20), min_size=1, max_size=4).map(
    lambda entries: {
        TopicPartition("ab"[number % 2], number // 2): times for number, times in enumerate(entries)
    }
)


def specified(log: Log, buffered: int) -> Seen:
    """The rule, naively: (partition, offset, stream time of its topic) in processing order."""
    position = dict.fromkeys(log, 0)
    time = dict.fromkeys(log, -1)
    seen: Seen = []
    while live := [p for p in log if position[p] < len(log[p])]:
        chosen = min(live, key=lambda p: (log[p][position[p]], p))
        floors = {p: max(time[p], min(log[p][position[p] : position[p] + buffered])) for p in live}
        time[chosen] = floors[chosen]
        stream = min(floor for p, floor in floors.items() if p.topic == chosen.topic)
        seen.append((chosen, position[chosen], stream))
        position[chosen] += 1
    return seen


def attempt(
    log: Log, start: dict[TopicPartition, int], times: dict[TopicPartition, PartitionTimes], case: Case
) -> tuple[Seen, PartitionGroup]:
    """Run a task from a committed position until it is done or crashes."""
    rng, group = (
        case.rng,
        PartitionGroup(
            {p: (start[p], len(entries)) for p, entries in log.items()},
            buffered=case.buffered,
            timed=True,
            times=times,
        ),
    )
    sent = dict(start)
    seen: Seen = []
    while not group.complete and len(seen) < case.crash_after:
        partition = rng.choice(list(log))
        end = min(sent[partition] + rng.randint(0, 6), len(log[partition]))
        group.add(
            partition,
            [
                FakeRecord(
                    at=at,
                    timestamp_ms=log[partition][at],
                    in_topic=partition.topic,
                    in_partition=partition.partition,
                )
                for at in range(sent[partition], end)
            ],
        )
        sent[partition] = end
        while (run := group.choose(rng.randint(1, 7))) is not None and len(seen) < case.crash_after:
            done = rng.randint(1, len(run.records))
            group.advance(run.partition, done)
            seen += [
                (run.partition, record.offset(), time_ms)
                for record, time_ms in zip(run.records[:done], run.stream_times_ms, strict=False)
            ]
    return seen, group


class Case:
    def __init__(self, seed: int, buffered: int) -> None:
        self.rng = random.Random(seed)
        self.buffered = buffered
        self.crash_after = self.rng.randint(1, 30)


@settings(max_examples=examples(300), deadline=None)
@given(log=logs, buffered=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_every_record_meets_the_specified_time_when_fetches_and_crashes_come_anyhow(
    log: Log, buffered: int, seed: int
) -> None:
    case = Case(seed, buffered)
    position, times = dict.fromkeys(log, 0), dict[TopicPartition, PartitionTimes]()
    seen: Seen = []
    while any(position[p] < len(log[p]) for p in log):
        more, group = attempt(log, position, times, case)
        seen += more
        position = group.positions()
        times = {p: PartitionTimes(time, latest, -1) for p, (time, latest) in group.partition_times().items()}
        case.crash_after = case.rng.randint(1, 30)
    assert seen == specified(log, buffered)
    for partition in log:
        own = [time_ms for p, _, time_ms in seen if p == partition]
        assert own == sorted(own), "time never goes back"
