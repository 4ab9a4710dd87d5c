"""Freezes the moment to which the end of a run brings stream time; rule and crash argument:
:mod:`airflow_kstreams.batch.protocol.slice.slice`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from airflow_kstreams.batch.evidence.prior_runs import PriorRuns
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, TaskReport, subtopology_of
from airflow_kstreams.batch.protocol.offsets.parked import retry_nodes
from airflow_kstreams.batch.protocol.slice.slice import EndOfRun, FrozenPartition, RunPlan, Slice
from airflow_kstreams.batch.protocol.slice.stops import task_partitions
from airflow_kstreams.batch.run.begin.groundwork import Groundwork, known_due
from airflow_kstreams.batch.run.begin.intervals import any_dated
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.records.record_queue import PartitionTimes
from airflow_kstreams.streams.records.timestamp_reading import iso_of
from airflow_kstreams.streams.settings import ApplicationSettings

_ALSO = "stream.time.advance.also"
#: An input that is in use is seldom quiet for longer than this, milliseconds.
_QUIET_MS = 3_600_000


def refuse_unfit_end_of_run(settings: ApplicationSettings, plan: TopologyPlan) -> None:
    """Refuse a run that is to advance stream time to a moment that it does not have.

    :raises ConfigError: the run has no cut by time, or no end, or a name is not one of a node or topic that
        holds stream time.
    """
    to = settings.advances_to
    app = f"application {settings.application_id!r} has stream.time.advance={to}"
    if to == "cut" and not settings.by_interval:
        raise ConfigError(
            f"{app}, and autostop.at={settings.autostop_at or 'unset'}, which cuts at no time",
            fix="set autostop.at=interval_end, or stream.time.advance=wall_clock_of_begin",
        )
    if to == "wall_clock_of_begin" and settings.by_interval:
        raise ConfigError(
            f"{app}, and autostop.at={settings.autostop_at}: what is dated between the end of the data "
            "interval and the begin of the run is the next run's, and would be late there",
            fix="leave stream.time.advance out: stream time then comes to the end of the data interval",
        )
    if to != "none" and settings.continuous:
        raise ConfigError(
            f"{app}, and runs continuously: it has no end at which stream time could advance",
            fix="leave stream.time.advance out, or set autostop.at",
        )
    holding = _holding(plan)
    unknown = sorted(settings.advanced_also - holding)
    if unknown:
        known = ", ".join(sorted(holding)) or "nothing does in this topology"
        raise ConfigError(
            f"application {settings.application_id!r} has {_ALSO}={settings.stream_time_advance_also}: "
            f"{', '.join(unknown)} does not keep stream time from advancing",
            fix=f"name only what does: {known}",
        )


def frozen_end_of_run(
    settings: ApplicationSettings, plan: TopologyPlan, *, begun_ms: int, interval_ms: tuple[int, int] | None
) -> EndOfRun | None:
    """Return the moment to which the end of a run brings stream time.

    :param begun_ms: time at which the run began, epoch milliseconds.
    :param interval_ms: data interval of the run, ``(start, end)`` in epoch milliseconds; None without one.
    """
    to = settings.advances_to
    moment_ms = interval_ms[1] if to == "cut" and interval_ms is not None else begun_ms
    if to == "none":
        return None
    return EndOfRun(
        moment_ms=moment_ms,
        subtopologies={
            str(sub.id): moment_ms - sub.stream_time.behind_ms
            for sub in plan.subtopologies
            if settings.advanced_also.issuperset(sub.stream_time.by_name)
        },
        also=tuple(sorted(settings.advanced_also)),
    )


def bounded_end_of_run(
    session: CoordinatorSession,
    end_of_run: EndOfRun | None,
    inputs: Collection[FrozenPartition],
    plan: TopologyPlan,
    prior: PriorRuns,
) -> tuple[EndOfRun | None, tuple[str, ...]]:
    """Bring stream time no further past the newest record than ``max.timestamp.ahead.ms``, where the end of
    the run goes by its driver's clock: if that clock is ahead, records that come later would be late.

    The newest record is that of the slice, if one is dated that near to the moment, else that of earlier
    runs: a slice without such a record is not read to its end here, so its own records count in the next
    run. The bound is frozen with the moment.

    :param inputs: start and stop of every input partition of the slice.
    :param prior: the traces of earlier runs.
    :return: the end of the run, None if no record bounds it, and a warning if it was moved.
    """
    ahead_ms = session.settings.max_timestamp_ahead_ms
    if end_of_run is None or session.settings.advances_to != "wall_clock_of_begin" or ahead_ms < 0:
        return end_of_run, ()
    moment_ms = end_of_run.moment_ms
    near_ms = max(0, moment_ms - ahead_ms), moment_ms + ahead_ms
    newest_ms = max((prior.times_of(part.topic_partition).latest_ms for part in inputs), default=-1)
    spans = {part.topic_partition: (part.start_offset, part.stop_offset) for part in inputs}
    if newest_ms >= near_ms[0] or any_dated(
        session.admin, session.reader, spans, near_ms, clock=session.clock
    ):
        return end_of_run, ()
    said = () if not closes_any(end_of_run, plan) else (_bounded(moment_ms, newest_ms, ahead_ms),)
    if newest_ms < 0:
        return None, said
    back_ms = moment_ms - newest_ms - ahead_ms
    subtopologies = {sub: to_ms - back_ms for sub, to_ms in end_of_run.subtopologies.items()}
    bounded = msgspec.structs.replace(end_of_run, moment_ms=moment_ms - back_ms, subtopologies=subtopologies)
    return bounded, said


def _bounded(moment_ms: int, newest_ms: int, ahead_ms: int) -> str:
    to = "is not brought on: earlier runs have read no record"
    if newest_ms >= 0:
        to = f"is brought to {iso_of(newest_ms + ahead_ms)} only: the newest record of earlier runs is dated "
        to += iso_of(newest_ms)
    return (
        f"the run began at {iso_of(moment_ms)} by its driver's clock, and no record that it reads is dated "
        f"within max.timestamp.ahead.ms = {ahead_ms:,} of that, so stream time {to}; windows that wait close "
        "when later records come; if the driver's clock is wrong, mend it; if the topics are quiet for so "
        "long, and their windows are to close all the same, raise the setting (-1 = no bound)"
    )


def held_by_blocked(
    end_of_run: EndOfRun | None, plan: TopologyPlan, blocked: Collection[str]
) -> EndOfRun | None:
    """Leave out the subtopologies that read a topic with blocked partitions, and all below them, so that the
    records there do not become late.

    :param blocked: topics that have blocked partitions.
    """
    if end_of_run is None or not blocked:
        return end_of_run
    held, left = {*blocked}, dict(end_of_run.subtopologies)
    for sub in plan.subtopologies:
        if not held.isdisjoint(sub.sources):
            left.pop(str(sub.id), None)
            held |= {*sub.sinks}
    return msgspec.structs.replace(end_of_run, subtopologies=left)


def anything_due(end_of_run: EndOfRun | None, plan: TopologyPlan, ground: Groundwork) -> bool:
    """Whether a task has work before the moment to which the end of the run brings it, so that a run without
    new records has work all the same.
    """
    known = known_due(ground)
    for sub in plan.subtopologies:
        moment_ms = None if end_of_run is None else end_of_run.moment_of(sub.id)
        if moment_ms is None:
            continue
        for tp in ground.partitions:
            if tp.topic not in sub.sources:
                continue
            stream_ms = ground.prior.times_of(tp).stream_time_ms
            told = OffsetMetadata(stream_time_ms=stream_ms, next_due_ms=known.get(tp))
            if told.due_at(moment_ms):
                return True
    return False


def with_time_passed(
    slice_: Slice, committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets of a run that is to finish, with the run's moment as the stream time of
    tasks that did not run. Nothing was due there before it, so nothing but their time moves.
    """
    found = dict(committed)
    for sub in slice_.plan.topology.subtopologies:
        moment_ms = slice_.plan.moment_of(sub.id)
        if moment_ms is None:
            continue
        for group in range(slice_.plan.tasks[str(sub.id)]):
            partitions = [tp for tp in task_partitions(slice_, sub.id, group) if tp in committed]
            told = {tp: OffsetMetadata.decode(committed[tp].metadata) for tp in partitions}
            idle = all(each.run_id == slice_.run_id and not each.task_id for each in told.values())
            if idle and any(each.stream_time_ms >= 0 for each in told.values()):
                for tp, each in told.items():
                    stream_ms = max(each.stream_time_ms, moment_ms)
                    passed = msgspec.structs.replace(each, stream_time_ms=stream_ms)
                    found[tp] = CommittedOffset(committed[tp].offset, passed.encode())
    return found


def closes_any(end_of_run: EndOfRun | None, plan: TopologyPlan) -> bool:
    """Whether the end of the run closes windows or joins anywhere."""
    return end_of_run is not None and any(
        sub.stream_time.windowed and end_of_run.moment_of(sub.id) is not None for sub in plan.subtopologies
    )


def early_warnings(plan: TopologyPlan, end_of_run: EndOfRun | None, begun_ms: int) -> tuple[str, ...]:
    """Return a warning that a run's data interval is not over yet, where its end closes windows or joins."""
    if end_of_run is None or end_of_run.moment_ms <= begun_ms or not closes_any(end_of_run, plan):
        return ()
    return (
        f"the data interval ends {(end_of_run.moment_ms - begun_ms) / 1000:g} s after the run began, and "
        "stream time advances to its end: records that come until then are late, by their windows' grace; "
        "begin runs when their interval is over, or set stream.time.advance=none",
    )


def held_warnings(
    settings: ApplicationSettings, plan: TopologyPlan, *, foreign_stops: bool
) -> tuple[str, ...]:
    """Return warnings that name the subtopologies with windows or joins whose stream time is not advanced,
    and the way to advance it.

    :param foreign_stops: whether another program has frozen the stop offsets, by a rule of its own.
    """
    if settings.advances_to == "none":
        return ()
    if foreign_stops:
        return _not_with_foreign_stops(plan)
    held = [(sub, {*sub.stream_time.by_name} - settings.advanced_also) for sub in plan.subtopologies]
    return tuple(
        f"stream time of subtopology {sub.id} is not advanced to the end of the run: records of, or behind, "
        f"{', '.join(sorted(names))} may be dated before any moment; its windows close when later records "
        f"come, or name them in {_ALSO}"
        for sub, names in held
        if names and sub.stream_time.windowed
    )


def _not_with_foreign_stops(plan: TopologyPlan) -> tuple[str, ...]:
    if not any(sub.stream_time.windowed for sub in plan.subtopologies):
        return ()
    return (
        "stream time is not advanced to the end of the run: another program has frozen its stop offsets, and "
        "records behind them may be dated before that; windows close in the next run, or when later records "
        "come",
    )


def clock_warnings(plan: RunPlan, times: Mapping[TopicPartition, PartitionTimes]) -> tuple[str, ...]:
    """Warn if the moment of begin lies far ahead of the newest record, where that closes windows or joins:
    the driver's clock may be wrong.

    :param times: times of the partitions that the run read.
    """
    newest_ms = max((its.latest_ms for its in times.values()), default=-1)
    moment_ms = -1 if plan.end_of_run is None else plan.end_of_run.moment_ms
    if newest_ms < 0 or moment_ms - newest_ms <= _QUIET_MS or not closes_any(plan.end_of_run, plan.topology):
        return ()
    if moment_ms < plan.begun_ms:  # begin has said so
        return ()
    return (
        f"stream time was brought to {iso_of(moment_ms)}, when the run began by its driver's clock, and the "
        f"newest record that was read is dated {iso_of(newest_ms)}: what is dated between them and comes "
        "later is late, by its windows' grace; if the driver's clock is wrong, mend it before the next run; "
        "if records come as late as that, give windows a grace, or set stream.time.advance=none",
    )


def parked_warnings(
    plan: TopologyPlan, end_of_run: EndOfRun | None, done: Iterable[TaskReport]
) -> tuple[str, ...]:
    """Return a warning that names the tasks with windows or joins whose stream time was not advanced because
    they have records parked.

    :param done: the reports of a run's tasks.
    """
    if end_of_run is None:
        return ()
    held = [
        task.task_id
        for task in done
        if end_of_run.moment_of(subtopology_of(task.task_id)) is not None
        and plan.subtopology(subtopology_of(task.task_id)).stream_time.windowed
        and any(count != 0 for node, count in task.parked.items() if node not in end_of_run.also)
    ]
    if not held:
        return ()
    return (
        f"stream time of {counted(len(held), 'task')} ({held[0]} is the first) was not advanced to the end "
        "of the run: they have records parked, which may be dated before it; to advance all the same, name "
        f"their nodes in {_ALSO}",
    )


def _holding(plan: TopologyPlan) -> set[str]:
    """Return the names of topics and nodes that may keep stream time from advancing."""
    changelogs = [topic for sub in plan.subtopologies for topic in sub.changelogs.values()]
    names = {name for sub in plan.subtopologies for name in sub.stream_time.by_name}
    return names | {*retry_nodes(plan.application_id, changelogs)}
