"""Makes the tables and notes of ``reset``."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_kstreams.batch.protocol.offsets.parked import parked_total
from airflow_kstreams.batch.reset.reset_plan import OffsetChange, ResetPlan
from airflow_kstreams.explore.tables import Table


def reset_tables(plan: ResetPlan, verb: str) -> Iterator[Table]:
    """Yield what a reset changes.

    :param verb: what stands before a participle: ``was``, or ``would be`` where nothing is changed.
    """
    app = plan.request.application_id
    if plan.offsets:
        yield Table(
            title=f"Offsets of group {app}",
            columns=("topic", "", "partition", "from", "to"),
            rows=[(change.partition.topic, _why(change), *_numbers(change)) for change in plan.offsets],
            numbers=3,
        )
    if plan.deleted:
        yield Table(
            title="Internal topics to delete" if verb == "would be" else "Deleted internal topics",
            columns=("topic", "partitions"),
            rows=[(topic, str(count)) for topic, count in sorted(plan.deleted.items())],
            numbers=1,
        )
    rows = list(_protocol(plan, verb))
    if rows:
        yield Table(title=f"Metadata and ledger of {app}", columns=("what", "result"), rows=rows)


def _why(change: OffsetChange) -> str:
    if change.intermediate:
        return "what is unread is skipped"
    if change.after > change.asked:
        return f"{change.asked} asked for, the log begins later"
    return f"{change.asked} asked for, the log ends before" if change.after < change.asked else ""


def _numbers(change: OffsetChange) -> tuple[str, str, str]:
    before = "none" if change.before is None else str(change.before)
    return str(change.partition.partition), before, str(change.after)


def _protocol(plan: ResetPlan, verb: str) -> Iterator[tuple[str, str]]:
    for lost in plan.lost:
        yield lost, f"{verb} given up"
    if plan.interrupted:
        yield (
            plan.interrupted,
            "was interrupted and " + ("is" if verb == "was" else "would be") + " completed",
        )
    yield from _of_tables(plan, verb)
    if plan.dropped_run is not None:
        yield f"unfinished slice of run {plan.dropped_run or '(another program)'}", f"{verb} dropped"
    elif plan.metadata_keys:
        yield "markers and stop offsets of the last run", f"{verb} deleted"
    if plan.lease is not None:
        yield f"lease of {plan.lease.owner} for run {plan.lease.owner_run_id}", f"{verb} taken away"
    for run_id in plan.taken_back:
        yield f"run {run_id}", f"{verb} taken back: it may run again"
    for topic in plan.gone:
        yield f"what is recorded of {topic}, which does not exist", f"{verb} dropped"
    for topic, unread in sorted(plan.unread.items()):
        yield f"records of {topic} that no run has read: {unread}", f"{verb} given up"
    for node, count in parked_total(plan.given_up).items():
        number = "an unknown number" if count is None else str(count)
        yield f"records parked at node {node}: {number}", f"{verb} given up"
    if plan.groups_dropped:
        yield "partition groups of deleted changelogs", f"{verb} dropped"


def _of_tables(plan: ResetPlan, verb: str) -> Iterator[tuple[str, str]]:
    if plan.lands is not None:
        names = ", ".join(table.name for table in plan.lands.plan.topology.tables)
        yield f"rows of run {plan.lands.run_id} whose offsets are committed", f"{verb} committed to {names}"
    removed = plan.request.tables == "remove"
    for run in plan.rows_again:
        rows = f"rows of run {run.run_id} in {', '.join(sorted(run.tables))}"
        yield rows, f"{verb} taken out" if removed else "come again"
    if plan.finished_run:
        yield f"run {plan.finished_run}, whose rows were in a table", f"{verb} finished"


def reset_notes(plan: ResetPlan) -> Iterator[str]:
    """Yield what a reset leaves alone, and what may come in its way."""
    changed = plan.offsets or plan.deleted
    if plan.kept and changed and not plan.interrupted:
        yield f"Not named, and left alone: the offsets of {', '.join(plan.kept)}."
    for topic, owner in sorted(plan.ambiguous.items()):
        yield (
            f"Left alone: {topic}, which may belong to application {owner}. If it does not, name it by "
            "--internal-topics."
        )
    for member in plan.members:
        yield f"In the consumer group, and not removed: {member}. It may move the offsets again: stop it."
    if plan.request.repair_ledger:
        yield _repair_note(plan)
    elif not (changed or plan.metadata_keys or plan.lease or plan.interrupted):
        yield "There is nothing to reset."


def _repair_note(plan: ResetPlan) -> str:
    if not plan.repaired:
        return "Every record of the ledger can be read: there is nothing to repair."
    return "The ledger holds all that could be read of it, and runs go on with that."
