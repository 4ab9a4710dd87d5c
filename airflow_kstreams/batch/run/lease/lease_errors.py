"""Names the claimant of an application, and builds the errors that refuse it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kstreams.batch.ledger.facts import Lease, ResetRecord
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.errors import ConfigError, RunBusyError, RunSupersededError, TopologyError
from airflow_kstreams.streams.naming.commands import drop_slice_command
from airflow_kstreams.streams.plan import TopologyPlan

_WAIT = "retry later; runs of one application follow each other (set max_active_runs=1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who calls begin.

    :param order: (clear number, try number); a higher one of the same run claims it.
    :param owner: text naming it in messages.
    :param hold_lease: whether it is a driver, which works on the slice, or only freezes it.
    :param continuous: whether it runs the application continuously.
    """

    run_id: str
    order: tuple[int, int]
    owner: str
    hold_lease: bool
    continuous: bool = False


def busy(application_id: str, caller: Claimant, lease: Lease) -> RunBusyError:
    """Build the error for a caller that has seen the owner of a lease take or renew it."""
    if lease.continuous:
        return _busy_continuously(application_id, caller, lease)
    return RunBusyError(
        f"application {application_id!r} is busy: {lease.owner} works on run {lease.owner_run_id!r} and has "
        f"just renewed its lease; run {caller.run_id!r} must wait",
        fix=_WAIT,
        run_id=caller.run_id,
        owner=lease.owner,
        owner_run_id=lease.owner_run_id,
        lease_expires_ms=lease.expires_ms,
    )


def _busy_continuously(application_id: str, caller: Claimant, lease: Lease) -> RunBusyError:
    doing = "stops it" if lease.stopping else "runs it continuously"
    return RunBusyError(
        f"application {application_id!r} is busy: {lease.owner} {doing} as {lease.owner_run_id!r} and has "
        f"just renewed its lease; run {caller.run_id!r} must wait",
        fix=f"stop it by sending SIGTERM to {lease.owner}, wait for its end, then retry",
        run_id=caller.run_id,
        owner=lease.owner,
        owner_run_id=lease.owner_run_id,
        lease_expires_ms=lease.expires_ms,
    )


def lost_race(application_id: str, caller: Claimant, lease: Lease | None) -> RunBusyError:
    """Build the error for a caller whose claim was overtaken before it could write."""
    owner = "another coordinator" if lease is None else lease.owner
    return RunBusyError(
        f"application {application_id!r} is busy: {owner} began at the same moment as run {caller.run_id!r}",
        fix=_WAIT,
        run_id=caller.run_id,
        owner=owner,
        owner_run_id="" if lease is None else lease.owner_run_id,
        lease_expires_ms=0 if lease is None else lease.expires_ms,
    )


def superseded(application_id: str, lease: Lease, found: Lease | None) -> RunSupersededError:
    """Build the error for an owner whose lease belongs to another one now."""
    who = "no driver" if found is None else f"{found.owner} for run {found.owner_run_id!r}"
    return RunSupersededError(
        f"run {lease.owner_run_id!r} of application {application_id!r} was claimed by another driver: the "
        f"lease of generation {lease.generation} now belongs to {who}",
        fix="nothing: the new owner finishes the run",
        run_id=lease.owner_run_id,
    )


def refuse_other_topology(slice_: Slice, plan: TopologyPlan) -> None:
    """Refuse an unfinished slice that the application file no longer fits.

    :raises TopologyError: it does not.
    """
    if slice_.plan.topology.topology_hash != plan.topology_hash:
        raise TopologyError(
            f"run {slice_.run_id!r} of application {plan.application_id!r} began with topology "
            f"{slice_.plan.topology.topology_hash[:12]} and is not finished, the application file now builds "
            f"{plan.topology_hash[:12]}",
            fix="deploy the old application file and finish the run, or drop its slice, so that the next run "
            f"goes on where it stopped: {drop_slice_command(plan.application_id)}",
        )


def refuse_other_application(plan: TopologyPlan, application_id: str) -> None:
    """Refuse a plan that was built for another application.

    :raises ConfigError: it was.
    """
    if plan.application_id != application_id:
        raise ConfigError(
            f"the plan is of application {plan.application_id!r}, the settings are of {application_id!r}",
            fix="build the plan with the same application id",
        )


def resetting(application_id: str, caller: Claimant, reset: ResetRecord) -> RunBusyError:
    """Build the error for a caller that meets a reset that is not done."""
    return RunBusyError(
        f"application {application_id!r} is being reset, or its reset was interrupted; run "
        f"{caller.run_id!r} must wait",
        fix=f"retry when the reset is done; if it was interrupted, run it again: {reset.command}",
        run_id=caller.run_id,
        owner="reset",
        owner_run_id="",
        lease_expires_ms=0,
    )
