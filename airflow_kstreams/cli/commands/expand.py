"""Defines ``airflow-kstreams expand``: grows topics that an application reads, and the application itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.application import application_settings
from airflow_kstreams.cli.broker import cluster
from airflow_kstreams.cli.commands import expand_processors
from airflow_kstreams.cli.options import (
    ApplicationId,
    ApplicationSetting,
    BootstrapServer,
    ConfigFile,
    DryRun,
)
from airflow_kstreams.cli.output import show

if TYPE_CHECKING:
    from airflow_kstreams.batch.expand.growth_plan import GrowthPlan
    from airflow_kstreams.explore.tables import Table

#: Number of new partitions with a row of their own.
_ROWS = 20

expand = typer.Typer(
    help="Grow a topic, or the tasks that keep its state, while every key stays with its state.",
    no_args_is_help=True,
)
expand.command("processors")(expand_processors.processors)
expand.command("abort")(expand_processors.abort)


@expand.command("partitions")
def partitions(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic that the application reads.")],
    to: Annotated[int, typer.Option("--to", min=1, metavar="N", help="How many partitions it is to have.")],
    application_id: ApplicationId,
    bootstrap_server: BootstrapServer = None,
    config_file: ConfigFile = None,
    setting: ApplicationSetting = None,
    dry_run: DryRun = False,
) -> None:
    """Give a topic more partitions, after a check of the application's state.

    Growth that the next run would refuse is refused before anything changes; a topic never loses partitions
    again. Runs may go on meanwhile. May be repeated: a topic that has so many partitions stays as it is.
    """
    from airflow_kstreams.batch.expand.partitions import PartitionExpansion
    from airflow_kstreams.batch.report.growth import growth_notes

    settings = application_settings(application_id, setting)
    found = cluster(bootstrap_server, config_file, settings)
    with PartitionExpansion(found, settings, topic=topic, count=to) as tool:
        plan = tool.plan() if dry_run else tool.run()
    end = "Dry run: nothing was changed." if dry_run else "Done."
    show(_growth_tables(plan), notes=[*growth_notes(plan), end])


def _growth_tables(plan: GrowthPlan) -> Iterator[Table]:
    from airflow_kstreams.explore.tables import Table

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
    from airflow_kstreams.batch.report.growth import history_text, kinds_text

    yield "partitions", str(plan.count) if plan.done else f"{plan.before} -> {plan.count}"
    yield "read by", f"subtopology {plan.subtopology}, {plan.tasks} tasks"
    if plan.grown is not None:
        yield "partition counts", history_text(plan.grown.history)
        yield "first count (N0)", str(plan.grown.history[0])
        yield "kinds of growth", kinds_text(plan.grown)
