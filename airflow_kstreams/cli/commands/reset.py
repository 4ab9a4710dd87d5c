"""Defines ``airflow-kstreams reset``: resets an application's offsets, internal topics and unfinished slice.

Its options are those of Kafka's own application reset tool, and the specification's ``--delete-stopoffsets``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    AsJson,
    Connection,
    DryRun,
    TablesConfig,
    connecting,
    show,
    tables_settings,
)


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
    tables: Annotated[
        str | None,
        typer.Option(
            metavar="keep|remove",
            help="Rows in Iceberg and Delta tables whose records will be read again: keep them, so that they "
            "come again, or remove them in one snapshot.",
        ),
    ] = None,
    tables_config: TablesConfig = None,
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
    from airflow_kstreams.batch.reset.acceptance import partitions_in
    from airflow_kstreams.batch.reset.reset import ApplicationReset
    from airflow_kstreams.batch.reset.reset_plan import ResetRequest, tables_choice
    from airflow_kstreams.batch.reset.scenario import scenario_of, topics_of
    from airflow_kstreams.cli.documents.reset_document import reset_document
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.cli.tables.reset_tables import reset_notes, reset_tables
    from airflow_kstreams.tables.connections import open_tables

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
        tables=tables_choice(tables),
        repair_ledger=repair_ledger,
    )
    opened = open_tables(tables_settings(tables_config))
    with ApplicationReset(connection.cluster(), request, tables=opened) as tool:
        plan = tool.plan() if dry_run else tool.run()
        if as_json:
            print_json(reset_document(plan, dry_run=dry_run))
        elif dry_run:
            show(reset_tables(plan, "would be"), notes=[*reset_notes(plan), "Dry run: nothing was changed."])
        else:
            show(reset_tables(plan, "was"), notes=[*reset_notes(plan), "Done."])
        if dry_run:
            tool.refuse(plan)
