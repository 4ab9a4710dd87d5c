"""Says where an application's run stands: at work, failed with its cause, or left by a driver that went
silent; and which command goes on with it.

A look knows of a driver only what that has written: one that has not renewed its lease for as long as the
lease lasts is taken for dead here. Nothing is decided by it: a begin watches the lease itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kstreams.batch.ledger.facts import ContinuousRun, Lease
from airflow_kstreams.batch.ledger.history import Attempt, Failure, Histories, How, RunHistory
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.figures.time_texts import ago_text
from airflow_kstreams.streams.naming.commands import resume_command

#: Words for the ways in which an attempt ended that left its run unfinished.
_LEFT = {
    How.FAILED: "failed",
    How.STOPPED: "stopped",
    How.LOST: "went silent",
    How.TAKEN_OVER: "was taken over",
    None: "went silent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a run stands.

    :param run_id: the run; empty if there is none.
    :param text: one line without the run's id: how it stands, and since when.
    :param attempt: its last attempt, as far as the ledger keeps it.
    :param failure: the failure that ended its last attempt; None if nothing failed.
    :param command: the command that goes on with it; empty if none is needed, or none is known.
    """

    run_id: str
    text: str
    attempt: Attempt | None = None
    failure: Failure | None = None
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingFacts:
    """The facts that tell where an application's run stands, as one look has found them.

    :param state: state of its batch runs.
    :param slice: the slice of the run that is under way, or of the last one.
    :param continuous: the continuous run that was started last, if nothing else has run since.
    :param lease: the lease that was not released.
    :param lease_renewed_ms: time at which it was renewed last, epoch milliseconds.
    :param histories: what happened to runs that have not finished.
    :param last_finished: the run that finished last.
    :param now_ms: time of the look, epoch milliseconds.
    """

    application_id: str
    state: RunState
    slice: Slice | None
    continuous: ContinuousRun | None
    lease: Lease | None
    lease_renewed_ms: int
    histories: Histories
    last_finished: RunSummary | None
    now_ms: int


def standing_of(seen: StandingFacts) -> Standing | None:
    """Return where the run stands that is under way, or whose begin failed; None if there is none."""
    if seen.continuous is not None:
        run_id, dag_id, generation = seen.continuous.run_id, "", seen.continuous.generation
    elif seen.slice is not None and seen.state is RunState.RUNNING:
        run_id, dag_id, generation = seen.slice.run_id, seen.slice.plan.dag_id, seen.slice.generation
    else:
        return _never_begun(seen)
    found = seen.histories.of(run_id)
    attempt = None if found is None else found.last
    command = resume_command(
        seen.application_id, run_id, dag_id=dag_id, continuous=seen.continuous is not None
    )
    if seen.lease is not None and seen.lease.works_on == run_id:
        return _leased(seen, seen.lease, run_id, attempt, command)
    if attempt is None:
        if generation or seen.slice is None:
            return Standing(run_id=run_id, text="not finished, no driver works on it", command=command)
        since = ago_text(seen.now_ms, seen.slice.plan.begun_ms)
        return Standing(run_id=run_id, text=f"begun {since}, no driver works on it yet", command=command)
    since = ago_text(seen.now_ms, attempt.ended_ms or attempt.begun_ms)
    if attempt.how in (How.DONE, How.FINISHED):
        return Standing(
            run_id=run_id,
            text=f"its driver has done its part {since}, the run is not finished yet",
            attempt=attempt,
            command=command,
        )
    return _left(run_id, since, attempt, command)


def _leased(
    seen: StandingFacts, lease: Lease, run_id: str, attempt: Attempt | None, command: str
) -> Standing:
    if not lease.is_silent(seen.lease_renewed_ms, seen.now_ms):
        under_way = attempt is not None and attempt.how is None
        since = (
            f", begun {ago_text(seen.now_ms, attempt.begun_ms)}" if attempt is not None and under_way else ""
        )
        return Standing(run_id=run_id, text=f"running: {lease.owner}{since}", attempt=attempt)
    return Standing(
        run_id=run_id,
        text=f"went silent {ago_text(seen.now_ms, seen.lease_renewed_ms)}, no driver works on it: "
        f"{lease.owner} has not renewed its lease since",
        attempt=attempt,
        command=command,
    )


def _never_begun(seen: StandingFacts) -> Standing | None:
    """Return where the run stands whose last begin failed, if no run has finished since."""
    run = seen.histories.last
    attempt = None if run is None else run.last
    if run is None or attempt is None or attempt.how is not How.FAILED:
        return None
    if seen.last_finished is not None and seen.last_finished.finished_ms >= attempt.ended_ms:
        return None
    command = resume_command(seen.application_id, run.run_id, dag_id=run.dag_id, continuous=False)
    return _left(run.run_id, ago_text(seen.now_ms, attempt.ended_ms), attempt, command)


def _left(run_id: str, since: str, attempt: Attempt, command: str) -> Standing:
    cause = "" if attempt.failure is None else f": {attempt.failure.cause}"
    return Standing(
        run_id=run_id,
        text=f"{_LEFT[attempt.how]} {since}, no driver works on it{cause}",
        attempt=attempt,
        failure=attempt.failure,
        command=command,
    )


def earlier_attempts(history: RunHistory | None) -> str:
    """Return a line on the attempts before the last one; empty if there were none."""
    if history is None or history.number < 2:
        return ""
    counted: dict[str, int] = {}
    for attempt in history.attempts[:-1]:
        word = "done" if attempt.how in (How.DONE, How.FINISHED) else _LEFT[attempt.how]
        counted[word] = counted.get(word, 0) + 1
    if history.omitted:
        counted["not kept"] = history.omitted
    return ", ".join(f"{count} {word}" for word, count in counted.items())
