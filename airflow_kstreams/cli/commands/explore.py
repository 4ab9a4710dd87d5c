"""Defines ``airflow-kstreams explore``: runs a sample of real input and shows its records at every node, in
rounds of run, edit and run again.

With ``--sample FILE`` the first round keeps the sample in the file and its findings in ``FILE.result``. Each
later round runs on the same records, needs no Kafka, and shows the difference to the round before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationPath,
    AsJson,
    Connection,
    FunctionName,
    connecting,
    load_topology,
    named_values,
    show,
)

if TYPE_CHECKING:
    from airflow_kstreams.explore import Difference, Exploration, Table


@connecting
def explore(  # noqa: PLR0913 - every parameter is an option
    application: ApplicationPath,
    connection: Connection,
    last: Annotated[
        int, typer.Option(min=0, metavar="N", help="Records to read of each input topic.")
    ] = 1000,
    last_of: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC=N", help="Records to read of one topic; repeatable."),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Show the records at this node; repeatable. Output topics and tables unless given.",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, metavar="N", help="Records to show at each node.")] = 20,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Sample to run on; if the file does not exist, a sample is taken and kept there.",
        ),
    ] = None,
    resample: Annotated[bool, typer.Option("--resample", help="Take a new sample in any case.")] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="OTHER",
            exists=True,
            dir_okay=False,
            help="Show the difference to another application file, or to a result kept earlier.",
        ),
    ] = None,
    application_id: Annotated[
        str, typer.Option(metavar="ID", help="Id for the names of internal topics.")
    ] = "explore",
    function: FunctionName = "topology",
    as_json: AsJson = False,
) -> None:
    """Run a sample of real input through a topology and show the records at its nodes.

    Nothing is written to Kafka. Keep the sample with --sample FILE, edit the application, run the same
    command again, and see what has changed.
    """
    from airflow_kstreams.cli.documents.explore_document import explore_document
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.explore import explore as explore_topology

    topology = load_topology(application, function)
    seen = explore_topology(
        topology,
        connection.client_config() or None,
        _last(last, last_of or [], topology.plan(application_id).inputs),
        sample=None if resample else sample,
        application_id=application_id,
    )
    if resample and sample is not None:
        seen.sample.save(sample)
    difference = _difference(seen, sample, against, function)
    if as_json:
        print_json(explore_document(seen, difference, node or [], rows))
    else:
        _show(seen, difference, node or [], rows)
    if sample is not None:
        seen.result().save(_result_path(sample))


def _last(last: int, pairs: list[str], inputs: tuple[str, ...]) -> dict[str, int]:
    numbers = dict.fromkeys(inputs, last)
    for topic, number in named_values(pairs, "--last-of", "TOPIC=N"):
        if not number.isdecimal():
            raise typer.BadParameter(f"{topic}={number} is not TOPIC=N", param_hint="--last-of")
        numbers[topic] = int(number)
    return numbers


def _result_path(sample: Path) -> Path:
    return sample.with_name(f"{sample.name}.result")


def _difference(
    seen: Exploration, sample: Path | None, against: Path | None, function: str
) -> Difference | None:
    """Return the difference to what the user names, else to the round before on the same sample."""
    from airflow_kstreams.explore.difference import Result

    if against is not None and against.suffix == ".py":
        return seen.diff(seen.rerun(load_topology(against, function)))
    if against is not None:
        return seen.diff(Result.load(against))
    if sample is None or not _result_path(sample).exists():
        return None
    before = Result.load(_result_path(sample))
    return seen.diff(before) if before.sample == seen.sample.digest() else None


def _show(seen: Exploration, difference: Difference | None, nodes: list[str], rows: int) -> None:
    tables: list[Table] = [seen.summary()]
    if seen.errors:
        tables.append(seen.failures(rows))
    if nodes:
        tables += [seen.at(name).table(rows) for name in nodes]
    else:
        tables += [seen.outputs(topic).table(rows) for topic in seen.output_topics]
        tables += [seen.rows(table).table(rows) for table in seen.tables]
    if difference is not None:
        detailed = nodes or seen.sinks(seen.output_topics)
        tables.append(difference.table())
        tables += [one.table(rows) for one in difference if one.name in detailed]
    show(tables, notes=seen.notes)
