"""Defines ``airflow-kstreams expand``: grows topics that an application reads, and the application itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationSetting,
    AsJson,
    Connection,
    DryRun,
    application_settings,
    connecting,
    show,
)

if TYPE_CHECKING:
    from airflow_kstreams.batch.expand.processor_expansion import ProcessorExpansion
    from airflow_kstreams.streams.settings import ApplicationSettings

expand = typer.Typer(
    help="Grow a topic, or the tasks that keep its state, while every key stays with its state.",
    no_args_is_help=True,
)


@expand.command("partitions")
@connecting
def partitions(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic that the application reads.")],
    to: Annotated[int, typer.Option("--to", min=1, metavar="N", help="Number of partitions to grow to.")],
    application_id: ApplicationId,
    connection: Connection,
    setting: ApplicationSetting = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give a topic more partitions, after a check of the application's state.

    Growth that the next run would refuse is refused before anything changes; a topic never loses partitions
    again. Runs may go on meanwhile. May be repeated: a topic that has this number of partitions stays as it
    is.
    """
    from airflow_kstreams.batch.expand.growth import grow_topic
    from airflow_kstreams.batch.report.growing import growth_notes
    from airflow_kstreams.cli.documents.growth_documents import partitions_document
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.cli.tables.growth_tables import growth_tables

    settings = application_settings(application_id, setting)
    found = connection.cluster(settings)
    plan = grow_topic(found, settings, topic=topic, count=to, dry_run=dry_run)
    if as_json:
        print_json(partitions_document(plan, dry_run=dry_run))
        return
    end = "Dry run: nothing was changed." if dry_run else "Done."
    show(growth_tables(plan), notes=[*growth_notes(plan), end])


@expand.command("processors")
@connecting
def processors(  # noqa: PLR0913 - every parameter is an option
    to: Annotated[int, typer.Option("--to", min=1, metavar="P", help="Number of processors to grow to.")],
    application_id: ApplicationId,
    connection: Connection,
    setting: ApplicationSetting = None,
    subtopology: Annotated[
        int | None,
        typer.Option(metavar="ID", help="The subtopology; not needed if only one keeps state."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Changelog records per second to read; without a limit if left out."),
    ] = None,
    parallel: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of old processors to copy at the same time.")
    ] = 4,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="End when the present state is copied, not at the takeover."),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Copy on the Spark with this master, such as spark://host:7077 or local[4]; in threads "
            "of this process if left out.",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give a subtopology with state more processors: more tasks, and the state of their keys with them.

    State is copied while runs go on; the next run that finds the copies nearly complete makes the takeover.
    May be ended and repeated: it goes on where it was.
    """
    from airflow_kstreams.batch.expand.processor_expansion import CatchUpOptions, ProcessorExpansion
    from airflow_kstreams.batch.expand.processor_plan import copied_of
    from airflow_kstreams.cli.documents.growth_documents import processors_document
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.cli.tables.growth_tables import processor_notes, processor_tables
    from airflow_kstreams.explore.tables import shown_progress

    settings = application_settings(application_id, setting)
    found = connection.cluster(settings, in_child=False)
    options = CatchUpOptions(rate=rate, parallel=parallel, follow=not no_wait)
    with ProcessorExpansion(found, settings, subtopology=subtopology, count=to) as tool:
        plan = tool.plan()
        if not dry_run and plan.after is not None:
            config = connection.client_config()
            with _copying(tool, config, settings, master), shown_progress("copying state") as bar:
                bar(*copied_of(plan.sources))
                plan = tool.run(options, lambda sources: bar(*copied_of(sources)))
    if as_json:
        print_json(processors_document(application_id, [plan], dry_run=dry_run))
        return
    show(
        processor_tables(plan),
        notes=[*processor_notes(plan, to), "Dry run: nothing was changed." if dry_run else "Done."],
    )


@expand.command("abort")
@connecting
def abort(
    application_id: ApplicationId,
    connection: Connection,
    setting: ApplicationSetting = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give up the processors that are on their way, and delete the state copied for them.

    The changelogs keep the partitions that they have gained: empty, and used by a later expansion.
    """
    from airflow_kstreams.batch.expand.processor_expansion import give_up_expansions
    from airflow_kstreams.cli.documents.growth_documents import processors_document
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.cli.tables.growth_tables import processor_tables

    settings = application_settings(application_id, setting)
    found = connection.cluster(settings)
    plans = give_up_expansions(found, settings, dry_run=dry_run)
    if as_json:
        print_json(processors_document(application_id, plans, dry_run=dry_run))
        return
    end = "Dry run: nothing was changed." if dry_run else "Given up."
    show(
        [table for plan in plans for table in processor_tables(plan)],
        notes=[end if plans else "No processors are on their way."],
    )


@contextmanager
def _copying(
    tool: ProcessorExpansion, config: Mapping[str, object], settings: ApplicationSettings, master: str | None
) -> Iterator[None]:
    """Copy state on Spark after this call, if a master is given."""
    if master is None:
        yield
        return
    from airflow_kstreams.spark.driver.copies import copies_on_spark

    with copies_on_spark({name: str(value) for name, value in config.items()}, settings, master) as copies:
        tool.copy_by(copies)
        yield
