"""Says where an application's run stands: at work, failed with its cause, or left by a driver that went
silent; and which command goes on with it.

A look knows of a driver only what that has written: one that has not renewed its lease for as long as the
lease lasts is taken for dead here, and so is one that has not renewed it since its Airflow task has reported
a failure. Times of several clocks are compared. Nothing is decided by it: a begin watches the lease itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.history import Attempt, Failure, Histories, How, RunHistory
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
    :param waiting: one line on a run that comes after it and has failed since; empty without one.
    """

    run_id: str
    text: str
    attempt: Attempt | None = None
    failure: Failure | None = None
    command: str = ""
    waiting: str = ""


def standing_of(facts: RunFacts, histories: Histories, now_ms: int) -> Standing | None:
    """Return where the run stands that is under way, or whose begin failed; None if there is none.

    :param histories: the attempts at runs that have not finished, as the ledger has them.
    :param now_ms: time of the look, epoch milliseconds.
    """
    standing = _standing_of(facts, histories, now_ms)
    latest = _never_begun(facts, histories, now_ms)
    if standing is None or latest is None or latest.run_id == standing.run_id:
        return standing
    before = standing.attempt
    if before is None or latest.attempt is None or latest.attempt.ended_ms > before.ended_ms:
        return replace(standing, waiting=f"run {latest.run_id} {latest.text}")
    return standing


def _standing_of(facts: RunFacts, histories: Histories, now_ms: int) -> Standing | None:
    work, ledger = facts.under_way, facts.ledger
    if ledger.current_continuous is not None:
        work = ledger.current_continuous.slice
    if work is None:
        return _never_begun(facts, histories, now_ms)
    run_id, continuous = work.run_id, ledger.current_continuous is not None
    found = histories.of(run_id)
    attempt = None if found is None else found.last
    if attempt is not None and not (work.generation or continuous):
        # A begin without a driver, which writes no attempt, has succeeded since.
        attempt = attempt if attempt.ended_ms >= work.plan.begun_ms else None
    command = resume_command(
        facts.application_id, run_id, dag_id="" if continuous else work.plan.dag_id, continuous=continuous
    )
    lease = ledger.held_lease
    if lease is not None and lease.works_on == run_id:
        return _leased(lease, ledger.lease_written_ms, now_ms, attempt, command)
    if attempt is None:
        if work.generation or continuous:
            return Standing(run_id=run_id, text="not finished, no driver works on it", command=command)
        since = ago_text(now_ms, work.plan.begun_ms)
        return Standing(run_id=run_id, text=f"begun {since}, no driver works on it yet", command=command)
    since = ago_text(now_ms, attempt.ended_ms or attempt.begun_ms)
    if attempt.how in (How.DONE, How.FINISHED):
        return Standing(
            run_id=run_id,
            text=f"its driver has done its part {since}, the run is not finished yet",
            attempt=attempt,
            command=command,
        )
    return _left(run_id, since, attempt, command)


def _leased(lease: Lease, renewed_ms: int, now_ms: int, attempt: Attempt | None, command: str) -> Standing:
    """Return where the run stands for which a driver holds the lease."""
    if attempt is not None and failed_since(attempt, renewed_ms):
        return _left(lease.works_on, ago_text(now_ms, attempt.ended_ms), attempt, command)
    if lease.is_silent(renewed_ms, now_ms):
        return Standing(
            run_id=lease.works_on,
            text=f"went silent {ago_text(now_ms, renewed_ms)}, no driver works on it: {lease.owner} has not "
            "renewed its lease since",
            attempt=attempt,
            command=command,
        )
    begun = attempt is not None and attempt.how is None
    since = f", begun {ago_text(now_ms, attempt.begun_ms)}" if attempt is not None and begun else ""
    return Standing(run_id=lease.works_on, text=f"running: {lease.owner}{since}", attempt=attempt)


def _never_begun(facts: RunFacts, histories: Histories, now_ms: int) -> Standing | None:
    """Return where the run stands whose last begin failed, if no run has finished since."""
    run, finished = histories.last, facts.ledger.newest_entry
    attempt = None if run is None else run.last
    if run is None or attempt is None or attempt.how is not How.FAILED:
        return None
    if finished is not None and finished.finished_ms >= attempt.ended_ms:
        return None
    command = resume_command(facts.application_id, run.run_id, dag_id=run.dag_id, continuous=False)
    return _left(run.run_id, ago_text(now_ms, attempt.ended_ms), attempt, command)


def _left(run_id: str, since: str, attempt: Attempt, command: str) -> Standing:
    cause = "" if attempt.failure is None else f": {attempt.failure.coded_cause}"
    return Standing(
        run_id=run_id,
        text=f"{_LEFT[attempt.how]} {since}, no driver works on it{cause}",
        attempt=attempt,
        failure=attempt.failure,
        command=command,
    )


def failed_since(attempt: Attempt | None, then_ms: int) -> bool:
    """Return whether an attempt has failed after a time, epoch milliseconds."""
    return attempt is not None and attempt.how is How.FAILED and attempt.ended_ms > then_ms


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
