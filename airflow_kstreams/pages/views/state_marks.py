"""Gives the state of a run, or of an application, in a word with a shape, so that a reader tells states
apart without colours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_kstreams.inspect import RunInFull, SeenRun

#: Shapes of marks: ``templates/macros.html.j2`` draws each.
MarkShape = Literal["done", "empty", "running", "failed", "waiting", "back", "warning", "unknown"]


@dataclass(frozen=True, slots=True)
class StateMark:
    """A state.

    :param shape: its shape, which also names its colour.
    :param word: its word.
    """

    shape: MarkShape
    word: str


_SHAPES: dict[str, MarkShape] = {
    "finished": "done",
    "nothing new": "empty",
    "taken back": "back",
    "under way": "running",
    "continuous": "running",
    "unfinished": "waiting",
    "failed": "failed",
    "success": "done",
    "running": "running",
    "up_for_retry": "waiting",
    "deferred": "waiting",
    "queued": "waiting",
    "scheduled": "waiting",
    "skipped": "empty",
    "upstream_failed": "failed",
}


def mark_of(state: str) -> StateMark:
    """Return the mark of a state, of a run in Kafka or of a task in Airflow."""
    return StateMark(_SHAPES.get(state, "unknown"), state or "unknown")


def mark_of_run(run: SeenRun) -> StateMark:
    """Return the mark of a run; one that has left records parked, or is odd, says so."""
    odd = ", odd" if run.suspicions else ""
    if run.state == "finished" and run.parked != 0:
        return StateMark("waiting", f"finished, parked{odd}")
    return StateMark(mark_of(run.state).shape, f"{run.state}{odd}")


def superseded(found: RunInFull) -> bool:
    """Whether another attempt has taken the work of one of the run's attempts."""
    attempts = () if found.history is None else found.history.attempts
    return any(each.how is not None and each.how.value == "taken over" for each in attempts)
