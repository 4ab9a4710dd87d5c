"""Defines a task's report of its work, kept beside its committed offsets and in the details of its run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from airflow_kstreams.batch.protocol.offsets.task_metrics import TaskMetrics


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one task for its slice; survives crashes because it travels in the offset metadata.

    :param task_id: ``<subtopology>_<group>``.
    :param records_in: records consumed.
    :param records_out: records sent, changelog and notifications excluded.
    :param records_dropped: records dropped by rule (null keys under a group, late records), and those
        an error handler skipped.
    :param records_dead_lettered: records sent to the dead-letter topic.
    :param records_skipped: records of input topics read and left out, because they are dated outside the
        interval that the run keeps to.
    :param restored: changelog records read at start.
    :param commits: transactions committed.
    :param seconds: wall time of the attempt that finished it.
    :param attempts: attempts within the Spark task attempt that finished it.
    :param outcome: ``done``, ``already_done`` when it found its stop reached, or ``stopped`` when it belongs
        to a continuous run.
    :param peak_memory_bytes: of the Python worker.
    :param records_ahead: records dated later than ``max.timestamp.ahead.ms`` allows that were processed,
        because nothing in the task goes by stream time.
    :param metrics: how fast it was; None where there was no room for it.
    :param parked: node -> how many records it left parked, None where that is not known; nodes without such
        are absent.
    :param parked_due_ms: when the first of them is due, epoch milliseconds; None when none is, or that is not
        known.
    """

    task_id: str
    records_in: int = 0
    records_out: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    records_skipped: int = 0
    restored: int = 0
    commits: int = 0
    seconds: float = 0.0
    attempts: int = 1
    outcome: str = "done"
    peak_memory_bytes: int = 0
    records_ahead: int = 0
    metrics: TaskMetrics | None = None
    parked: dict[str, int | None] = {}
    parked_due_ms: int | None = None


def subtopology_of(task_id: str) -> int:
    """Return the subtopology of a task.

    :param task_id: ``<subtopology>_<group>``.
    """
    return int(task_id.partition("_")[0])


def group_of(task_id: str) -> int:
    """Return the partition group of a task.

    :param task_id: ``<subtopology>_<group>``.
    """
    return int(task_id.partition("_")[2])


def by_subtopology(reports: Iterable[TaskReport]) -> dict[int, list[TaskReport]]:
    """Return reports by the subtopology of their tasks, in order."""
    found: dict[int, list[TaskReport]] = {}
    for report in reports:
        found.setdefault(subtopology_of(report.task_id), []).append(report)
    return dict(sorted(found.items()))
