"""Defines ``airflow-kstreams expand``: grows topics that an application reads, and the application itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

import typer

from airflow_kstreams.batch.expand.growth import GrowthPlan, grow_topic
from airflow_kstreams.batch.expand.processor_expansion import (
    CatchUpOptions,
    ProcessorExpansion,
    give_up_expansions,
)
from airflow_kstreams.batch.expand.processor_plan import CopiedSource, ProcessorPlan, copied_of
from airflow_kstreams.batch.report.growing import growth_notes, history_text, kinds_text
from airflow_kstreams.cli.documents.growth_documents import (
    PartitionsDocument,
    ProcessorsDocument,
    partitions_document,
    processors_document,
)
from airflow_kstreams.cli.json_output import AsJson, print_json
from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationSetting,
    Connection,
    DryRun,
    application_settings,
    connecting,
    show,
)
from airflow_kstreams.explore.tables import Table, shown_progress
from airflow_kstreams.streams.settings import ApplicationSettings

#: Number of new partitions, or sources, with a row of their own.
_ROWS = 20

DOCUMENTS = {
    "expand partitions": PartitionsDocument,
    "expand processors": ProcessorsDocument,
    "expand abort": ProcessorsDocument,
}

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
    settings = application_settings(application_id, setting)
    found = connection.cluster(settings)
    plan = grow_topic(found, settings, topic=topic, count=to, dry_run=dry_run)
    if as_json:
        print_json(partitions_document(plan, dry_run=dry_run))
        return
    end = "Dry run: nothing was changed." if dry_run else "Done."
    show(_growth_tables(plan), notes=[*growth_notes(plan), end])


def _growth_tables(plan: GrowthPlan) -> Iterator[Table]:
    yield Table(
        title=f"Topic {plan.topic} of application {plan.application_id}",
        columns=("what", "is"),
        rows=list(_growth_rows(plan)),
    )
    if plan.new:
        waits = {each.partition: ", ".join(map(str, each.waits_for)) for each in plan.waits}
        yield Table(
            title="New partitions",
            columns=("partition", "task", "its keys come from", "would wait now for"),
            rows=[
                (
                    str(new.partition),
                    f"{plan.subtopology}_{new.group}",
                    ", ".join(f"{plan.topic}-{number}" for number in new.ancestors),
                    waits.get(new.partition, "nothing"),
                )
                for new in plan.new[:_ROWS]
            ],
            more=max(0, len(plan.new) - _ROWS),
        )


def _growth_rows(plan: GrowthPlan) -> Iterator[tuple[str, str]]:
    yield "partitions", str(plan.count) if plan.done else f"{plan.before} -> {plan.count}"
    yield "read by", f"subtopology {plan.subtopology}, {plan.tasks} tasks"
    if plan.grown is not None:
        yield "partition counts", history_text(plan.grown.history)
        yield "first count", str(plan.grown.history[0])
        yield "kinds of growth", kinds_text(plan.grown)


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
        _processor_tables(plan),
        notes=[*_processor_notes(plan, to), "Dry run: nothing was changed." if dry_run else "Done."],
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
    settings = application_settings(application_id, setting)
    found = connection.cluster(settings)
    plans = give_up_expansions(found, settings, dry_run=dry_run)
    if as_json:
        print_json(processors_document(application_id, plans, dry_run=dry_run))
        return
    end = "Dry run: nothing was changed." if dry_run else "Given up."
    show(
        [table for plan in plans for table in _processor_tables(plan)],
        notes=[end if plans else "No processors are on their way."],
    )


def _processor_tables(plan: ProcessorPlan) -> Iterator[Table]:
    after = plan.before if plan.after is None else plan.after.count
    rows = [
        ("reads", ", ".join(plan.sub.sources)),
        ("processors", str(plan.before) if plan.after is None else f"{plan.before} -> {after}"),
        ("partitions", ", ".join(f"{count} of {topic}" for topic, count in plan.entry.partitions.items())),
    ]
    if plan.after is not None:
        rows.append(("the new ones read", ", ".join(map(str, plan.reads[:_ROWS]))))
    yield Table(
        title=f"Subtopology {plan.sub.id} of application {plan.application_id}",
        columns=("what", "is"),
        rows=rows,
    )
    if plan.sources:
        yield Table(
            title="State to copy",
            columns=("from", "for processors", "copied to", "ends at", "entries", "bytes"),
            rows=[_row(each) for each in plan.sources[:_ROWS]],
            numbers=4,
            more=max(0, len(plan.sources) - _ROWS),
        )


def _row(each: CopiedSource) -> tuple[str, ...]:
    position = "-" if each.position is None else str(each.position)
    added = ", ".join(map(str, each.added))
    return (
        str(each.changelog),
        added,
        position,
        str(each.end),
        str(each.told.copied),
        str(each.told.copied_bytes),
    )


def _processor_notes(plan: ProcessorPlan, count: int) -> Iterator[str]:
    if plan.after is None:
        yield f"Subtopology {plan.sub.id} has {count} processors."
    elif any(each.lag or each.position is None for each in plan.sources):
        yield "The takeover comes with a run that finds no more than acceptable.recovery.lag left to copy."
    else:
        yield "All state is copied: the next run makes the takeover unless partitions wait for ancestors."


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
