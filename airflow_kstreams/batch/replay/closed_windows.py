"""Tells which records of dead letters come back after their windows have closed.

Rule: a letter's record is judged by its own time, as the windowed stores will judge it, against the stream
time of the task that will process it, and the windows that this task has closed. The ledger has both, as the
last finished run left them. Stream time never goes back, so a record that is late then stays late; one that
is in time may be late when a run reads it.

A store reads the record's topic itself, so the task of the record's partition decides; or it lies behind a
repartition or other topic between, so any task may process it: then it is late if it is late in every one.

It is not known where a task knows another time than the record's own (from its value, by ``set_timestamp``,
by a fold or join on the way), where records wait for later calls on the way, and while the application runs
continuously, since the ledger has no times of such a run.

What depends on other records of the key only the store can tell: a record that is late by itself is taken if
it joins a session that is still open; one that a sliding window could still hold is late if there is no such
window. Both are counted by the record's own time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_kstreams.batch.evidence.prior_runs import PriorRuns, recall
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.protocol.slice.slice import RunPlan
from airflow_kstreams.streams.partitioning.partition_groups import equal_ids, partitions_in
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import Closing
from airflow_kstreams.streams.runtime.window_closings import closings_in

#: How a record of a topic comes to a store: read by the store's task, by way of other tasks, or by a way on
#: which its time may change.
_Way = Literal["own task", "any task", "unclear"]
_WINDOWED = ("windowed-", "session-", "sliding-")
_JOINED = ("-left", "-right")
#: Beginning of the meaning of a store of windows that begin at multiples, see ``SubtopologyPlan``.
_ALIGNED = re.compile(r"window size_ms=([0-9]+)(?: advance_ms=([0-9]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgedTask:
    """A task, as the last finished run left it.

    :param partitions: the partitions that it reads.
    :param times: topic -> its stream time, epoch milliseconds; -1 before the first record.
    :param closings: windowed store -> its closing.
    """

    partitions: frozenset[TopicPartition]
    times: Mapping[str, int]
    closings: Mapping[str, Closing]


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgedWindows:
    """The windows of a fold, or of a join.

    :param name: name of the fold's store, or of the join.
    :param stores: stores that hold them; of a join the left one, then the right one.
    :param ways: topic -> way by which its records come.
    :param sides: topic -> the store that takes its records, where only one does.
    :param exact: whether the tasks' stream time of the windows is the latest one of ``heads``; else it is at
        least the earliest one.
    :param heads: topics of the tasks that bring the records.
    :param advance_ms: milliseconds between the starts of windows; 0 where these do not begin at multiples.
    :param by_start: whether a window takes no record at the moment at which its time is up.
    :param tasks: the tasks that keep them.
    """

    name: str
    stores: tuple[str, ...]
    ways: Mapping[str, _Way]
    sides: Mapping[str, str]
    exact: bool
    heads: Collection[str]
    advance_ms: int
    by_start: bool
    tasks: Sequence[_JudgedTask]

    def late(self, topic: str, partition: int, time_ms: int) -> bool | None:
        """Return whether a record comes too late; None if that is not known."""
        way = self.ways.get(topic)
        if way is None:
            return False
        stores = (self.sides[topic],) if topic in self.sides else self.stores
        at = TopicPartition(topic, partition)
        own = [task for task in self.tasks if way == "own task" and at in task.partitions]
        late = all(self._late_in(task, store, time_ms) for task in own or self.tasks for store in stores)
        if way != "unclear":
            return late
        begun = any(time >= 0 for task in self.tasks for time in task.times.values())
        return None if begun else False

    def _late_in(self, task: _JudgedTask, store: str, time_ms: int) -> bool:
        closing = task.closings.get(store)
        if closing is None:
            return False
        choose = max if self.exact else min
        now_ms = choose(task.times[topic] for topic in self.heads)
        passed = [now_ms] if now_ms >= 0 else []
        if closing.closed_ms is not None:
            passed.append(closing.closed_ms + closing.open_ms)
        if not passed:
            return False
        start_ms = time_ms // self.advance_ms * self.advance_ms if self.advance_ms else time_ms
        due_ms = start_ms + closing.open_ms
        return due_ms <= max(passed) if self.by_start else due_ms < max(passed)


class ClosedWindows:
    """The windowed stores of an application, as its last finished run left them.

    :param facts: facts of the application's runs.
    """

    def __init__(self, facts: RunFacts) -> None:
        last = facts.last_work
        self._endless = facts.ledger.current_continuous is not None
        self._windows = [] if last is None else [*_all_windows(last.plan, recall(last.plan.topology, facts))]

    def judge(self, topic: str, partition: int, time_ms: int) -> dict[str, bool]:
        """Return the windows for which a record of a topic comes too late: name of the fold's store or of the
        join -> True, or False where it is not known whether it does.

        :param partition: partition of the record; one that tasks do not know stands for any.
        :param time_ms: time of the record, epoch milliseconds.
        """
        found: dict[str, bool] = {}
        for windows in self._windows:
            if self._endless:
                if topic in windows.ways:
                    found[windows.name] = False
                continue
            late = windows.late(topic, partition, time_ms)
            if late is not False:
                found[windows.name] = bool(late)
        return found


def _all_windows(plan: RunPlan, prior: PriorRuns) -> Iterator[_JudgedWindows]:
    """Return the windows of all folds and joins of a plan."""
    for sub in plan.topology.subtopologies:
        stores: dict[str, list[str]] = {}
        for store, made_of in sub.made_of.items():
            joined = made_of.family == "join" and store in {f"{made_of.name}{end}" for end in _JOINED}
            if joined or made_of.kind.startswith(_WINDOWED):
                stores.setdefault(made_of.name if joined else store, []).append(store)
        tasks = _tasks(plan, sub, prior) if stores else ()
        for name, members in stores.items():
            yield _windows(plan.topology, sub, tasks, name, tuple(sorted(members)))


def _tasks(plan: RunPlan, sub: SubtopologyPlan, prior: PriorRuns) -> tuple[_JudgedTask, ...]:
    groups = plan.groups.get(str(sub.id)) or equal_ids(
        {topic: plan.partitions[topic] for topic in sub.sources}
    )
    found: list[_JudgedTask] = []
    for group in groups:
        times = {tp: prior.times_of(tp) for tp in partitions_in(group)}
        latest = dict.fromkeys(sub.sources, -1)
        for tp, each in times.items():
            latest[tp.topic] = max(latest[tp.topic], each.stream_time_ms)
        found.append(
            _JudgedTask(partitions=frozenset(times), times=latest, closings=closings_in(times.values()))
        )
    return tuple(found)


def _windows(
    topology: TopologyPlan,
    sub: SubtopologyPlan,
    tasks: Sequence[_JudgedTask],
    name: str,
    stores: tuple[str, ...],
) -> _JudgedWindows:
    made_of = sub.made_of[stores[0]]
    reads = [
        topic for read in made_of.reads for topic in topology.patterns.get(read, (read,))
    ]  # topics, or names of results
    above = {topic: _above(topology, topic) for topic in sub.sources}
    heads = {topic for topic, ways in above.items() if not {topic, *ways}.isdisjoint(reads)}
    exact = {*reads} <= {*topology.sources}
    ways: dict[str, _Way] = {}
    heads = heads if exact else {*sub.sources}
    for head in heads:
        for topic, plain in above[head].items():
            ways[topic] = "any task" if exact and plain and ways.get(topic) != "unclear" else "unclear"
    for head in heads:
        ways.setdefault(head, "own task" if exact or head in reads else "unclear")
    if sub.stream_time.by_name:
        ways = dict.fromkeys(ways, "unclear")
    kind = sub.state_kinds.get(sub.changelogs.get(stores[0], ""), "")
    aligned = _ALIGNED.match(kind)
    sides: dict[str, str] = {}
    if len(stores) > 1 and exact and len(reads) == len({*reads}) == len(stores):
        into = {topic: {read for read in reads if _leads(above, topic, read, heads)} for topic in ways}
        sides = {topic: stores[reads.index(min(ends))] for topic, ends in into.items() if len(ends) == 1}
    return _JudgedWindows(
        name=name,
        stores=stores,
        ways=ways,
        sides=sides,
        exact=exact,
        heads=heads,
        advance_ms=int(aligned[2] or aligned[1]) if aligned else 0,
        by_start=made_of.kind.startswith("windowed-"),
        tasks=tasks,
    )


def _leads(above: Mapping[str, Mapping[str, bool]], topic: str, read: str, heads: Collection[str]) -> bool:
    """Return whether records of a topic come to a store as those of one that it reads."""
    return any({topic, read} <= {head, *above[head]} for head in heads)


def _above(topology: TopologyPlan, topic: str) -> dict[str, bool]:
    """Return the topics from which records of a topic come, and whether they keep their times on the way."""
    found: dict[str, bool] = {}
    for sub in topology.writers_of(topic):
        plain = all(made_of.family == "table" for made_of in sub.made_of.values())
        for source in sub.sources:
            for each, kept in {source: True, **_above(topology, source)}.items():
                found[each] = found.get(each, True) and kept and plain
    return found
