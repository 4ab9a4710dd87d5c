"""Holds the times at which the steps of a run began and ended.

======================  ============================================================================
step                    lasts
======================  ============================================================================
``freeze``              from the coordinator's look at topics and offsets to the frozen stop offsets
``fence``               while older tasks, or older attempts of a task, are fenced
``wait``                until what a subtopology reads is written, and its stop offsets are frozen
``restore``             while stores are read from changelogs and files
``process``             from the first record to the last commit
``commit``              from the first commit to the last one
``finish``              while the coordinator checks the run and writes the finished marker
======================  ============================================================================

The coordinator and the driver go by their machine's clock, a task by the executor's. Times are for display:
nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from airflow_kstreams.streams.plan import Moment

StepName = Literal["freeze", "fence", "wait", "restore", "process", "commit", "finish"]


class StepTimes(msgspec.Struct, frozen=True, array_like=True):
    """The time of one step.

    :param name: name of the step, see the module's table.
    :param begun_ms: time at which it began, epoch milliseconds; of several tasks, the first one's.
    :param ended_ms: time at which it ended, epoch milliseconds; of several tasks, the last one's.
    :param subtopology: id of the subtopology whose step it was; -1 for a step of the whole run.
    :param task: id of the task whose step it was; empty for all tasks of the subtopology together.
    :param spent_ms: milliseconds spent in a step that comes in parts, as commits do; of several tasks, the
        sum. -1 where it is the time between begin and end.
    """

    name: StepName
    begun_ms: Moment
    ended_ms: Moment
    subtopology: int = -1
    task: str = ""
    spent_ms: int = -1

    @property
    def milliseconds(self) -> int:
        """How long it lasted, or what was spent in it; not below 0, whatever the clocks say."""
        return self.spent_ms if self.spent_ms >= 0 else max(0, self.ended_ms - self.begun_ms)


class TaskTimes(msgspec.Struct, frozen=True, array_like=True):
    """The times of the attempt that finished a task, epoch milliseconds by the clock of its executor.

    :param begun_ms: time at which the attempt began.
    :param fenced_ms: time at which older attempts were fenced.
    :param restored_ms: time at which the stores were restored.
    :param first_commit_ms: time at which its first commit began.
    :param ended_ms: time at which its last commit ended.
    """

    begun_ms: Moment
    fenced_ms: Moment
    restored_ms: Moment
    first_commit_ms: Moment
    ended_ms: Moment


class TimedTask(NamedTuple):
    """A task with its times.

    :param commit_ms: milliseconds that the task spent in commits; -1 where it is not known.
    """

    task_id: str
    subtopology: int
    times: TaskTimes
    commit_ms: int


def steps_of_tasks(tasks: Iterable[TimedTask]) -> Iterator[StepTimes]:
    """Yield the steps of several tasks of one subtopology, taken together."""
    found = [*tasks]
    if not found:
        return
    times = [task.times for task in found]
    subtopology = found[0].subtopology
    task_id = found[0].task_id if len(found) == 1 else ""
    spent = [task.commit_ms for task in found]
    yield StepTimes(
        "fence", min(t.begun_ms for t in times), max(t.fenced_ms for t in times), subtopology, task_id
    )
    yield StepTimes(
        "restore", min(t.fenced_ms for t in times), max(t.restored_ms for t in times), subtopology, task_id
    )
    yield StepTimes(
        "process", min(t.restored_ms for t in times), max(t.ended_ms for t in times), subtopology, task_id
    )
    yield StepTimes(
        "commit",
        min(t.first_commit_ms for t in times),
        max(t.ended_ms for t in times),
        subtopology,
        task_id,
        -1 if min(spent) < 0 else sum(spent),
    )
