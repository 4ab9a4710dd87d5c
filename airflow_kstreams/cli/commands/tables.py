"""Defines ``airflow-kstreams tables``: looks after the Iceberg and Delta tables that an application writes
to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationPath,
    AsJson,
    Connection,
    FunctionName,
    TablesConfig,
    connecting,
    load_topology,
    show,
    tables_settings,
)

if TYPE_CHECKING:
    from airflow_kstreams.explore.tables import Table
    from airflow_kstreams.kafka.cluster import KafkaCluster
    from airflow_kstreams.streams.plan import TopologyPlan
    from airflow_kstreams.streams.tables.table_port import TablesPort

FOUND_DIFFERENCES = 1
_AGE = re.compile(r"(\d{1,6})([dhm])")
_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000}


class TablesAction(StrEnum):
    """What to do with the tables."""

    LIST = "list"
    CHECK = "check"
    ORPHANS = "orphans"
    EXPIRE = "expire"
    ACCEPT = "accept"


@connecting
def tables(  # noqa: PLR0913 - every parameter is an option
    application: ApplicationPath,
    action: Annotated[
        TablesAction, typer.Argument(metavar="ACTION", help="list, check, orphans, expire or accept.")
    ],
    application_id: ApplicationId,
    connection: Connection,
    tables_config: TablesConfig = None,
    allow_others: Annotated[
        bool, typer.Option("--allow-others", help="check: other programs may write to the tables, too.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="orphans: delete the old ones.")] = False,
    older_than: Annotated[
        str,
        typer.Option(metavar="AGE", help="orphans: age of those to delete, as 3d, 12h or 30m."),
    ] = "3d",
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="expire: number of snapshots to keep.")
    ] = None,
    function: FunctionName = "topology",
    as_json: AsJson = False,
) -> None:
    """Look after the tables that an application writes to.

    list shows where each stands, and what the next begin would refuse. check compares the rows of each run
    with the ledger: exit code 1 if they differ. orphans finds files of this application that no snapshot,
    open slice or sealed list names, as attempts leave them that died; delete only those that are older than
    any run takes. expire forgets older snapshots, and deletes what only they name. accept takes tables as
    they are that were created anew, restored or rolled back, and that runs refuse for that.
    """
    from airflow_kstreams.inspect.readings import opened_tables

    age_ms = _age_ms(older_than)
    if (keep is None) is (action is TablesAction.EXPIRE):
        raise typer.BadParameter("expire needs --keep, and nothing else takes it", param_hint="--keep")
    if delete and action is not TablesAction.ORPHANS:
        raise typer.BadParameter("only orphans deletes files", param_hint="--delete")
    plan = load_topology(application, function).plan(application_id)
    opened = opened_tables(tables_settings(tables_config))
    if action is TablesAction.EXPIRE:
        _expire(opened, plan, keep or 1, as_json=as_json)
        return
    cluster = connection.cluster()
    match action:
        case TablesAction.CHECK:
            _check(cluster, opened, plan, allow_others=allow_others, as_json=as_json)
        case TablesAction.ORPHANS:
            _orphans(cluster, opened, plan, age_ms=age_ms, delete=delete, as_json=as_json)
        case TablesAction.ACCEPT:
            _accept(cluster, opened, plan, as_json=as_json)
        case _:
            _list(cluster, opened, plan, as_json=as_json)


def _list(cluster: KafkaCluster, opened: TablesPort | None, plan: TopologyPlan, *, as_json: bool) -> None:
    from airflow_kstreams.batch.inspect.tables.seen_tables import read_tables
    from airflow_kstreams.inspect.lakehouse_tables import notes_of_tables, shown_tables

    found = read_tables(cluster, plan, opened)
    _print(found, shown_tables(found), notes_of_tables(found), as_json=as_json)


def _check(
    cluster: KafkaCluster, opened: TablesPort | None, plan: TopologyPlan, *, allow_others: bool, as_json: bool
) -> None:
    from airflow_kstreams.batch.inspect.tables.table_check import compare_tables
    from airflow_kstreams.inspect.lakehouse_tables import notes_of_check, shown_check

    found = compare_tables(cluster, plan, opened, allow_others=allow_others)
    _print(found, shown_check(found), notes_of_check(found), as_json=as_json)
    if found.differences:
        raise typer.Exit(FOUND_DIFFERENCES)


def _orphans(
    cluster: KafkaCluster,
    opened: TablesPort | None,
    plan: TopologyPlan,
    *,
    age_ms: int,
    delete: bool,
    as_json: bool,
) -> None:
    from airflow_kstreams.batch.inspect.tables.orphans import find_orphans
    from airflow_kstreams.inspect.lakehouse_tables import notes_of_orphans, shown_orphans
    from airflow_kstreams.tables.parquet.parquet_files import file_prefix

    found = find_orphans(
        cluster,
        plan,
        opened,
        beginning=file_prefix(plan.application_id),
        older_than_ms=age_ms,
        delete=delete,
    )
    _print(found, shown_orphans(found), notes_of_orphans(found), as_json=as_json)


def _expire(opened: TablesPort | None, plan: TopologyPlan, keep: int, *, as_json: bool) -> None:
    from airflow_kstreams.batch.run.tables.table_expiry import expire_tables
    from airflow_kstreams.cli.documents.tables_document import ExpiryDocument
    from airflow_kstreams.explore.tables import Table

    found = expire_tables(opened, plan, keep)
    table = Table(
        title=f"Snapshots of the tables of {plan.application_id}",
        columns=("table", "format", "before", "now"),
        rows=[(each.table, each.format, f"{each.before:,}", f"{each.after:,}") for each in found],
        numbers=2,
    )
    by_time = [
        f"{each.table}: Delta keeps versions by time, as the table says."
        for each in found
        if each.format == "delta"
    ]
    document = ExpiryDocument(application_id=plan.application_id, keep=keep, tables=found)
    _print(document, [table], by_time, as_json=as_json)


def _accept(cluster: KafkaCluster, opened: TablesPort | None, plan: TopologyPlan, *, as_json: bool) -> None:
    from airflow_kstreams.batch.run.tables.table_acceptance import accept_tables
    from airflow_kstreams.cli.documents.tables_document import AcceptanceDocument
    from airflow_kstreams.streams.settings import ApplicationSettings

    settings = ApplicationSettings.parse(plan.application_id)
    found = accept_tables(cluster, settings, plan, opened)
    lines = [f"{each.table}: {'accepted: ' if each.changed else ''}{each.text}" for each in found]
    document = AcceptanceDocument(application_id=plan.application_id, tables=found)
    _print(document, (), lines, as_json=as_json)


def _print(document: object, shown: Iterable[Table], notes: Iterable[str], *, as_json: bool) -> None:
    from airflow_kstreams.cli.json_output import print_json

    if as_json:
        print_json(document)
    else:
        show(shown, notes=notes)


def _age_ms(text: str) -> int:
    """Return an age in milliseconds.

    :raises BadParameter: it is none.
    """
    found = _AGE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age: write 3d, 12h or 30m", param_hint="--older-than")
    return int(found[1]) * _UNIT_MS[found[2]]
