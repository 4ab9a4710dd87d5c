"""Draws the attempts of a run, and the steps of the last one that has some, on one scale of time each."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_kstreams.inspect import Attempt, RunHistory, RunInFull, StepTimes
from airflow_kstreams.inspect.tables_of import attempts_of_run, slowest_tasks, table_of_steps
from airflow_kstreams.pages.views.drawings.shown_tables import Bar, PartKind, ShownTable, scaled

_GOOD = ("finished", "done")
_TIME = "time, from left to right"


def attempts_table(history: RunHistory, now_ms: int) -> ShownTable:
    """Return the attempts of a run.

    :param now_ms: end of an attempt that has none yet, epoch milliseconds.
    """
    ends = [_end(each, now_ms) for each in history.attempts]
    whole = (min((each.begun_ms for each in history.attempts), default=0), max(ends, default=1))
    return ShownTable(
        name="attempts",
        table=attempts_of_run(history),
        bars=[_attempt_bar(each, end, whole) for each, end in zip(history.attempts, ends, strict=True)],
        bars_title=_TIME,
    )


def _attempt_bar(attempt: Attempt, end: int, whole: tuple[int, int]) -> Bar:
    if attempt.how is None:
        return [scaled("left", attempt.begun_ms, end, whole)]
    kind: PartKind = "done" if attempt.how.value in _GOOD else "lost"
    return [scaled(kind, attempt.begun_ms, end, whole)]


def _end(attempt: Attempt, now_ms: int) -> int:
    end = attempt.ended_ms or (now_ms if attempt.how is None else attempt.begun_ms)
    return max(attempt.begun_ms, end)


def step_tables(history: RunHistory) -> tuple[ShownTable | None, ShownTable | None]:
    """Return the steps of the run and its subtopologies, and those of single tasks, of the last attempt
    that has written some.
    """
    attempt = next((each for each in reversed(history.attempts) if each.steps), None)
    if attempt is None:
        return None, None
    steps = sorted(attempt.steps, key=lambda step: (step.begun_ms, step.ended_ms))
    whole = (steps[0].begun_ms, max(step.ended_ms for step in steps))
    last = attempt is history.attempts[-1]
    title = "Steps of the last attempt" if last else "Steps of the last attempt that has written some"
    common = [step for step in steps if not step.task]
    of_tasks = [step for step in steps if step.task]
    return (
        _steps("steps", title, common, whole),
        _steps("task-steps", "Steps of single tasks, the slowest ones", of_tasks, whole),
    )


def _steps(name: str, title: str, steps: Sequence[StepTimes], whole: tuple[int, int]) -> ShownTable | None:
    if not steps:
        return None
    return ShownTable(
        name=name,
        table=table_of_steps(title, steps),
        bars=[_step_bar(step, whole) for step in steps],
        bars_title=_TIME,
    )


def _step_bar(step: StepTimes, whole: tuple[int, int]) -> Bar:
    """Return the bar of a step; one that comes in parts, as commits do, is drawn from its first part to its
    last one.
    """
    return [scaled("left" if step.spent_ms >= 0 else "done", step.begun_ms, step.ended_ms, whole)]


def slowest_table(found: RunInFull) -> ShownTable | None:
    """Return the slowest tasks of a run; None where they are not known."""
    if not found.tasks:
        return None
    slowest = max(task.seconds for task in found.tasks)
    return ShownTable(
        name="tasks",
        table=slowest_tasks(found),
        bars=[[scaled("done", 0, task.seconds, (0, slowest))] for task in found.tasks],
        bars_title="took",
    )
