"""Tells the moment to which the state that was read belongs.

Rule: the reader looks at the application twice, before it reads and after. If both looks find the same
finished run, no run has begun between them, so no task has written state, and all entries are as that run
left them. Else some may be of a run under way: each task's as of its last commit when its changelog was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.streams.figures.time_texts import time_text


class Moment(StrEnum):
    """The run, or reset, that was there when state was read."""

    #: The run that finished last, and none since.
    FINISHED = "finished"
    #: A run that is not finished, or that began or finished meanwhile.
    UNDER_WAY = "under way"
    #: A run without an end.
    CONTINUOUS = "continuous"
    #: A reset, and no run since.
    RESET = "reset"
    #: No run has finished yet.
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """The moment to which state that was read belongs.

    :param moment: kind of the run, or reset, that was there.
    :param run_id: id of the run that finished, or is under way; empty if there is none.
    :param finished_ms: time at which the run finished, epoch milliseconds; None for a run that has not, and
        when it is not known.
    """

    moment: Moment
    run_id: str = ""
    finished_ms: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all entries are of one moment: no run was under way while they were read."""
        return self.moment in (Moment.FINISHED, Moment.RESET, Moment.NONE)

    def __str__(self) -> str:
        commits = "of each task what it had committed when it was read"
        match self.moment:
            case Moment.FINISHED if self.finished_ms is not None:
                at = time_text(self.finished_ms)
                return f"as of run {self.run_id}, finished {at} UTC"
            case Moment.FINISHED:
                return f"as of run {self.run_id}, which finished last"
            case Moment.UNDER_WAY:
                return f"as of the last commit: run {self.run_id} was under way; {commits}"
            case Moment.CONTINUOUS:
                return f"as of the last commit: continuous run {self.run_id} was under way; {commits}"
            case Moment.RESET:
                return "as of the last reset: no run has finished since"
            case Moment.NONE:
                return "no run has finished yet"


def as_of(before: RunFacts, after: RunFacts) -> AsOf:
    """Return the moment to which state belongs that was read between two looks."""
    first, run_id = before.run_id, after.run_id
    run = after.ledger.current_continuous or before.ledger.current_continuous
    if run is not None:
        return AsOf(moment=Moment.CONTINUOUS, run_id=run.run_id)
    # Every begin and finish moves the end of the metadata topic.
    ends = (before.written.log.end, after.written.log.end)
    same = (before.state, first, ends[0]) == (after.state, run_id, ends[1])
    if RunState.RUNNING in (before.state, after.state) or not same:
        return AsOf(moment=Moment.UNDER_WAY, run_id=run_id or first)
    if after.ledger.reset is not None:
        return AsOf(moment=Moment.RESET)
    last = after.ledger.last()
    if after.state is RunState.FINISHED:
        known = last is not None and last.run_id == run_id
        return AsOf(
            moment=Moment.FINISHED,
            run_id=run_id,
            finished_ms=last.finished_ms if last is not None and known else None,
        )
    return AsOf(moment=Moment.NONE)
