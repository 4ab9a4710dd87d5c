"""In which order a task takes the records of its slices, and which stream time each meets: the rules naively.

Of the unfinished partitions the one with the oldest next record goes first, ties by (topic, partition). A
partition's time is the smallest time among the records that the task looks ahead to, up to the slice's stop,
and never goes back, from run to run neither. Behind the last record of a run, it is the largest time that the
partition had. At the end of a run that advances stream time, a task that has met a record has the time of the
run's moment on each of its partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.history import Entry, History


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record as its task meets it.

    :param run: number of the run, in the order in which runs finished.
    :param now_ms: stream time of the task, over its topics, with this record.
    """

    partition: TopicPartition
    entry: Entry
    run: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class RunsOut:
    """The end of a run, as its task meets it.

    :param now_ms: stream time of the task, over its topics, at the end.
    """

    run: int
    now_ms: int


def arrivals(
    history: History,
    sources: tuple[str, ...],
    group: int,
    buffered: int,
    moments: Sequence[int | None] = (),
) -> list[Arrival | RunsOut]:
    """Return what a task of equally numbered partitions meets in all its runs.

    :param buffered: how many records it looks ahead to in each partition.
    :param moments: to which each run advances stream time at its end; None if to none.
    """
    partitions = [TopicPartition(topic, group) for topic in sorted(sources)]
    read = {partition: history.per_run(partition) for partition in partitions}
    times = dict.fromkeys(partitions, -1)
    met: list[Arrival | RunsOut] = []
    for run in range(len(history.finished)):
        logs = {partition: read[partition][run] for partition in partitions}
        met += _one_run(run, logs, times, buffered)
        before_ms = max(times.values())
        for partition, log in logs.items():
            times[partition] = max([times[partition], *(entry.timestamp_ms for entry in log)])
        if max(times.values()) > before_ms:
            met.append(RunsOut(run, max(times.values())))
        moment_ms = moments[run] if moments else None
        if moment_ms is not None and max(times.values()) >= 0:
            times |= {partition: max(time_ms, moment_ms) for partition, time_ms in times.items()}
            met.append(RunsOut(run, max(times.values())))
    return met


def _one_run(
    run: int,
    logs: Mapping[TopicPartition, list[Entry]],
    times: dict[TopicPartition, int],
    buffered: int,
) -> list[Arrival]:
    at = dict.fromkeys(logs, 0)
    met: list[Arrival] = []
    while live := [partition for partition in logs if at[partition] < len(logs[partition])]:
        chosen = min(live, key=lambda p: (logs[p][at[p]].timestamp_ms, p))
        ahead = logs[chosen][at[chosen] : at[chosen] + buffered]
        times[chosen] = max(times[chosen], min(entry.timestamp_ms for entry in ahead))
        met.append(Arrival(chosen, logs[chosen][at[chosen]], run, max(times.values())))
        at[chosen] += 1
    return met
