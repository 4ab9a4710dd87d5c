"""Defines ``airflow-kstreams reset``: resets an application's offsets, internal topics and unfinished slice.

Its options are those of Kafka's own application reset tool, and the specification's ``--delete-stopoffsets``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from airflow_kstreams.batch.protocol.offsets.parked import parked_total
from airflow_kstreams.batch.reset.acceptance import partitions_in
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import OffsetChange, ResetPlan, ResetRequest
from airflow_kstreams.batch.reset.scenario import scenario_of, topics_of
from airflow_kstreams.cli.documents.reset_document import ResetDocument, reset_document
from airflow_kstreams.cli.json_output import AsJson, print_json
from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    Connection,
    DryRun,
    connecting,
    show,
)
from airflow_kstreams.explore.tables import Table

DOCUMENTS = {"reset": ResetDocument}


@connecting
def reset(  # noqa: PLR0913 - every parameter is an option
    application_id: ApplicationId,
    connection: Connection,
    input_topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIST",
            help="Input topics whose offsets are set, to the earliest unless another option says where; "
            "separated by commas.",
        ),
    ] = None,
    intermediate_topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIST",
            help="Your own topics that the application writes and reads; unread records in them are skipped.",
        ),
    ] = None,
    internal_topics: Annotated[
        list[str] | None,
        typer.Option(metavar="LIST", help="Internal topics to delete; all of them unless given."),
    ] = None,
    unread_topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIST",
            help="Topics between subtopologies that the topology does not read any more: give up what no run "
            "has read in them; given alone, do nothing else.",
        ),
    ] = None,
    to_offset: Annotated[int | None, typer.Option(metavar="N", help="Set every offset to N.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="YYYY-MM-DDThh:mm:ss.sss", help="Set offsets to this time, UTC unless a zone follows."
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="PnDTnHnMnS", help="Set offsets to the time this duration ago."),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Set offsets to the earliest.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Set offsets to the latest.")] = False,
    from_file: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Set offsets from lines topic,partition,offset."),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Move offsets by N, backward if N is negative."),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:0,1",
            help="Partitions in which reading goes on where the option that follows says, whatever is "
            "missing or another program moved; nothing else changes. May be repeated.",
        ),
    ] = None,
    delete_stopoffsets: Annotated[
        bool,
        typer.Option(
            "--delete-stopoffsets",
            help="Drop an unfinished run's stop offsets; given alone, do nothing else.",
        ),
    ] = False,
    repair_ledger: Annotated[
        bool,
        typer.Option(
            "--repair-ledger",
            help="Write the ledger anew from what can be read of it, after another program wrote to it; it "
            "prints what is given up, and does nothing else.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although the application is at work.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Set an application's offsets and delete its internal topics, so that it processes its input again.

    Stop its runs first, and see with --dry-run what would be done.
    """
    scenario = scenario_of(
        {
            "to-offset": to_offset,
            "to-datetime": to_datetime,
            "by-duration": by_duration,
            "from-file": from_file,
            "shift-by": shift_by,
            "to-earliest": to_earliest,
            "to-latest": to_latest,
        }
    )
    request = ResetRequest(
        application_id=application_id,
        input_topics=topics_of(input_topics),
        scenario=scenario,
        intermediate_topics=topics_of(intermediate_topics),
        internal_topics=topics_of(internal_topics),
        unread_topics=topics_of(unread_topics),
        delete_stop_offsets=delete_stopoffsets,
        force=force,
        accept=partitions_in(accept),
        repair_ledger=repair_ledger,
    )
    with ApplicationReset(connection.cluster(), request) as tool:
        plan = tool.plan() if dry_run else tool.run()
        if as_json:
            print_json(reset_document(plan, dry_run=dry_run))
        elif dry_run:
            show(_tables(plan, "would be"), notes=[*_notes(plan), "Dry run: nothing was changed."])
        else:
            show(_tables(plan, "was"), notes=[*_notes(plan), "Done."])
        if dry_run:
            tool.refuse(plan)


def _tables(plan: ResetPlan, verb: str) -> Iterator[Table]:
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


def _notes(plan: ResetPlan) -> Iterator[str]:
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
