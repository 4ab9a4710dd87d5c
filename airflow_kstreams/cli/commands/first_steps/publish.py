"""Defines ``airflow-kstreams publish``: sends the records of a file to a topic."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Literal

import typer

from airflow_kstreams.cli.shared_options import Connection, connecting, say
from airflow_kstreams.streams.figures.number_texts import counted

#: Number of records from which a bar is of use.
_LONG = 20_000


@connecting
def publish(  # noqa: PLR0913 - every parameter is an option
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic; it is made if it is missing.")],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="JSON, one object a line, or CSV with a heading (FILE.csv); - for stdin.",
        ),
    ],
    connection: Connection,
    key: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="The field that holds a record's key; none by default."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The field that holds a record's time: ISO 8601 (UTC unless it says otherwise) or epoch "
            "milliseconds; the time of sending by default.",
        ),
    ] = None,
    form: Annotated[
        Literal["jsonl", "csv"] | None,
        typer.Option("--format", help="By the file's name unless given: csv for FILE.csv, else jsonl."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="A column of CSV whose numbers are text; repeatable."),
    ] = None,
    partitions: Annotated[
        int, typer.Option(min=1, help="Partitions of the topic, if it has to be made.")
    ] = 1,
) -> None:
    """Publish the records of a file to a topic, and make the topic where it is missing.

    A topic that is made keeps old records for good. A file is checked as a whole first: a bad line is
    named, and nothing is published. From stdin the records before the first bad line are published, and
    counted.
    """
    from airflow_kstreams.first_steps import publication
    from airflow_kstreams.first_steps.record_file import RecordFormat

    layout = RecordFormat(
        format=form or ("csv" if file.suffix.lower() == ".csv" else "jsonl"),
        key=key,
        time=time,
        texts=frozenset(text or ()),
    )
    is_piped = str(file) == "-"
    name = "stdin" if is_piped else str(file)
    oldest_ms, total = None, None
    if not is_piped:
        with _opened(file, is_piped) as lines:
            found = publication.look(layout, lines, name)
        oldest_ms, total = found.oldest_ms, found.records
    cluster = connection.cluster(in_child=False)
    admin = cluster.admin()
    try:
        if publication.make_topic(admin, topic, partitions):
            say(f"made topic {topic}: partitions {partitions}, keeps old records for good")
        elif oldest_ms is not None and (warning := publication.warning_of_dates(admin, topic, oldest_ms)):
            say(warning, err=True)
        with _opened(file, is_piped) as lines, _progress(total) as on_progress:
            records = layout.records(lines, name)
            count = publication.publish(cluster, topic, records, on_progress=on_progress)
    finally:
        admin.close()
    say(f"published {counted(count, 'record')} of {name} to {topic}")


@contextmanager
def _opened(file: Path, is_piped: bool) -> Iterator[IO[bytes]]:
    if is_piped:
        yield sys.stdin.buffer
        return
    try:
        lines = file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from None
    with lines:
        yield lines


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; of a short file it would be gone before it is seen."""
    if not sys.stderr.isatty() or (total is not None and total < _LONG):
        yield lambda _records: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("publishing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda records: bar.update(task, completed=records)
