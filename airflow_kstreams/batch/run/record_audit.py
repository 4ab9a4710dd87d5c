"""Checks that what a run says it did adds up, from what its tasks committed with their offsets.

What is counted, per task and slice: records read, per source topic (those dated outside a backfill's interval
apart); records that went no further, per node and rule (filtered, unmatched, null, late, undated, skipped,
dead-lettered); records written, per topic. Operators may make any number of records of one, so "in = out +
left out" holds only where none does. What must hold, and is checked:

1. Twice counted: the totals of a task's report and its counts by topic and node are kept apart from each
   other and travel side by side, over crashes, too. Read, left out of the interval, written, dropped and
   dead-lettered must each add up to the report's total.
2. Within a task: what was read, less what went no further, was written, as far as each operator on the way
   gives one record for one (``streams/runtime/flow_check.py``, worked out by the task, which knows the
   topology).
3. At the inputs: no more records were read, with those outside the interval, than lie between the slice's
   start and stop offsets. Fewer is no error: transaction markers and compaction leave gaps.
4. Between subtopologies: at least as many records were read from an intermediate topic as were written to it.
   More is no error: others write there (a user's ``through`` topic, replayed dead letters), and so do
   at-least-once attempts that died before they committed.

A number that is not known, because there was no room for it in an offset's metadata, is not checked. What
does not add up is a warning of the run that says so, and an error in the log: the records are where they are,
only the numbers about them are wrong, so the run is finished. But what an intermediate topic has lost before
its stop was frozen shows nowhere but in the fourth, which says so; it is no error either, for a user's topic
may be compacted.

Late records (``max.late.share``) are judged at finish, before anything is written: a run that dropped too
many fails, is not finished and keeps its slice. Nothing of it is processed again: with a larger share, or
``late.share.exceeded=warn``, the retry only writes the marker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.offsets.task_report import subtopology_of
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.record_counts import DROPPING, OTHER_NODES, RecordCounts, counts_in_all
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)

_BUG = ". This is a bug of the engine in what it counts, not in what it wrote: please report this line"
#: How many nodes a warning names.
_NAMED = 3


def counts_of(plan: TopologyPlan, tasks: Mapping[str, OffsetMetadata]) -> RecordCounts | None:
    """Add up what tasks counted.

    :param tasks: what each committed last, by task id.
    :return: None if it is not known of one of them.
    """
    return counts_in_all(_counts(plan, tasks[task_id]) for task_id in tasks)


def counts_by_subtopology(plan: TopologyPlan, tasks: Mapping[str, OffsetMetadata]) -> dict[int, RecordCounts]:
    """Add up what the tasks of each subtopology counted, where it is known of all of them."""
    of_each: dict[int, dict[str, OffsetMetadata]] = {}
    for task_id, committed in tasks.items():
        of_each.setdefault(subtopology_of(task_id), {})[task_id] = committed
    added = {number: counts_of(plan, its_tasks) for number, its_tasks in of_each.items()}
    return {number: counts for number, counts in added.items() if counts is not None}


def audit(
    plan: TopologyPlan, tasks: Mapping[str, OffsetMetadata], inputs: Sequence[FrozenPartition], run_id: str
) -> tuple[str, ...]:
    """Return what does not add up, one line each, and log it.

    :param tasks: what each task of the run committed last, by task id.
    :param inputs: the slice.
    """
    counts = counts_of(plan, tasks)
    bugs = [
        *(line for task_id, committed in tasks.items() for line in _task(plan, task_id, committed)),
        *_inputs(plan, counts, inputs),
    ]
    found = [*(f"{what}{_BUG}" for what in bugs), *_between(plan, counts)]
    lines = tuple(f"the counts of run {run_id} do not add up: {what}" for what in found)
    for line in lines:
        log.error("%s", line)
    return lines


def _counts(plan: TopologyPlan, committed: OffsetMetadata) -> RecordCounts | None:
    if committed.counts is None:
        return None
    return committed.counts.unpacked(plan.subtopology(subtopology_of(committed.task_id)))


def _task(plan: TopologyPlan, task_id: str, committed: OffsetMetadata) -> Iterator[str]:
    """Yield what does not add up within a task: identities 1 and 2."""
    counts = _counts(plan, committed)
    if counts is None or committed.counts is None:
        return
    twice = {
        "read": (committed.records_in, sum(counts.read.values())),
        "left out of the interval": (committed.records_skipped, sum(counts.outside.values())),
        "written": (committed.records_out, sum(counts.output.values())),
        "dropped": (committed.records_dropped, counts.by(*DROPPING)),
        "dead-lettered": (committed.records_dead_lettered, counts.by("dead-lettered")),
    }
    for what, (total, parts) in twice.items():
        if total != parts:
            yield f"task {task_id} counted {total} records {what} in all, and {parts} by topic and node"
    wrong = committed.counts.wrong(plan.subtopology(subtopology_of(task_id)))
    if wrong is not None:
        topic, arrived, written = wrong
        yield (
            f"task {task_id} counted {written} records written to {topic}, and by what it read and left out "
            f"it must have been {arrived}"
        )


def _inputs(
    plan: TopologyPlan, counts: RecordCounts | None, inputs: Sequence[FrozenPartition]
) -> Iterator[str]:
    """Yield what does not add up at the inputs: identity 3."""
    if counts is None:
        return
    for topic in plan.inputs:
        span = sum(part.stop_offset - part.start_offset for part in inputs if part.topic == topic)
        read = counts.read.get(topic, 0) + counts.outside.get(topic, 0)
        if read > span:
            yield f"{read} records read from {topic}, whose slice has {span} offsets"


def _between(plan: TopologyPlan, counts: RecordCounts | None) -> Iterator[str]:
    """Yield what does not add up between subtopologies: identity 4."""
    if counts is None:
        return
    for topic in plan.intermediates:
        read, written = counts.read.get(topic, 0), counts.output.get(topic, 0)
        if read < written:
            yield (
                f"{written} records written to {topic}, and {read} read from it. Records of the topic are "
                "gone (truncated, deleted, or compacted where the topic is the user's own), or this is a bug "
                "of the engine in what it counts: see the topic's settings and the broker's log, else report "
                "this line"
            )


def judge_late(
    settings: ApplicationSettings, plan: TopologyPlan, counts: RecordCounts | None, run_id: str
) -> tuple[str, ...]:
    """Return warnings, if more was dropped as late than the settings allow, or if that is not known.

    :param counts: of all tasks of the run; None if not known.
    :raises ConfigError: more was dropped, and the settings say that the run fails.
    """
    if settings.max_late_share >= 1:
        return ()
    if counts is None:
        return (
            f"how many records run {run_id} dropped as late is unknown (the counts of a task had no room "
            "beside its offsets): max.late.share is not checked",
        )
    late, read = counts.by("late"), counts.consumed(plan.subtopologies)
    if late <= settings.max_late_share * read:
        return ()
    share = f"{late / read:.2%}" if read else "more than all"
    nodes = ", ".join(
        f"{entry.node if entry.node != OTHER_NODES else 'other nodes'}: {entry.records}"
        for entry in [entry for entry in counts.left_out if entry.rule == "late"][:_NAMED]
    )
    what = (
        f"run {run_id} dropped {late} records as late ({nodes}), {share} of the {read} that it read; "
        f"max.late.share allows {settings.max_late_share:.2%}"
    )
    if settings.late_share_exceeded == "warn":
        return (what,)
    raise ConfigError(
        what,
        fix="look at the times of the input's records, and give the windows more grace for later runs; then "
        "set max.late.share higher, or late.share.exceeded=warn, and retry the run: its slice is kept and "
        "its results are committed, only the finished marker is missing",
    )
