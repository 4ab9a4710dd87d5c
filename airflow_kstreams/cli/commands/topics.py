"""Defines ``airflow-kstreams topics``: creates topics, changes their settings, and deletes them."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.shared_options import AsJson, Connection, DryRun, connecting, named_values, say
from airflow_kstreams.streams.figures.number_texts import counted

if TYPE_CHECKING:
    from airflow_kstreams.cli.documents.topics_document import TopicChange

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="NAME=VALUE", help="A setting of the topics, by Kafka's name; repeatable."
    ),
]


topics = typer.Typer(
    help="Create topics, change their settings, or delete them.",
    no_args_is_help=True,
)


@topics.command("create")
@connecting
def create(
    names: Topics,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, metavar="N", help="Partitions of each topic.")
    ],
    connection: Connection,
    config: Configs = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Create topics. A topic that exists stays as it is.

    Each gets as many replicas as the broker gives new topics.
    """
    from airflow_kstreams.cli.documents.topics_document import TopicChange
    from airflow_kstreams.streams.ports import TopicSpec

    configs = dict(named_values(config, "--config", "NAME=VALUE"))
    with closing(connection.cluster().admin()) as admin:
        found = admin.describe_topics(names)
        new = [TopicSpec(name=name, partitions=partitions, configs=configs) for name in names]
        if not dry_run:
            admin.create_topics([topic for topic in new if topic.name not in found])
    changes = [
        TopicChange(topic=name, what=f"stays as it is, partitions: {found[name].partitions}", changed=False)
        if name in found
        else TopicChange(topic=name, what=f"created, partitions: {partitions}", changed=True)
        for name in names
    ]
    _tell(changes, dry_run=dry_run, as_json=as_json)


@topics.command("set")
@connecting
def set_(
    names: Topics,
    connection: Connection,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="Number of partitions to grow to."),
    ] = None,
    config: Configs = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Change settings of topics, or give them more partitions; what is not named stays.

    Keys move to other partitions when a topic grows: use airflow-kstreams expand partitions for one whose
    keys have state.
    """
    from airflow_kstreams.cli.documents.topics_document import TopicChange

    configs = dict(named_values(config, "--config", "NAME=VALUE"))
    changes = [f"{name}={value}" for name, value in configs.items()]
    changes += [] if partitions is None else [counted(partitions, "partition")]
    if not changes:
        raise typer.BadParameter("name at least one change: --config or --partitions")
    with closing(connection.cluster().admin()) as admin:
        _refuse_missing(names, admin.describe_topics(names))
        for name in () if dry_run else names:
            if configs:
                admin.alter_topic(name, configs)
            if partitions is not None:
                admin.create_partitions(name, partitions)
    what = f"set: {', '.join(changes)}"
    told = [TopicChange(topic=name, what=what, changed=True) for name in names]
    _tell(told, dry_run=dry_run, as_json=as_json)


@topics.command("delete")
@connecting
def delete(names: Topics, connection: Connection, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Delete topics with all that is in them. A topic that does not exist is fine.

    A name with * stands for all topics that match it: look with --dry-run first.
    """
    from airflow_kstreams.cli.documents.topics_document import TopicChange

    for name in names:
        if name.startswith(("*", "__*")):
            raise typer.BadParameter(f"{name!r} would match topics of everybody: name how they begin")
    with closing(connection.cluster().admin()) as admin:
        exist = admin.topic_names()
        found = {name: fnmatch.filter(exist, name) if "*" in name else [*{name} & {*exist}] for name in names}
        gone = sorted(set().union(*found.values()))
        if not dry_run:
            admin.delete_topics(gone)
    changes = [TopicChange(topic=topic, what="deleted", changed=True) for topic in gone]
    changes += [
        TopicChange(topic=name, what="does not exist", changed=False) for name in names if not found[name]
    ]
    _tell(changes, dry_run=dry_run, as_json=as_json)


def _tell(changes: Sequence[TopicChange], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        from airflow_kstreams.cli.documents.topics_document import TopicsDocument
        from airflow_kstreams.cli.json_output import print_json

        print_json(TopicsDocument(dry_run=dry_run, topics=changes))
        return
    for change in changes:
        say(f"{change.topic}: {'would be ' if dry_run and change.changed else ''}{change.what}")


def _refuse_missing(names: Collection[str], found: Collection[str]) -> None:
    from airflow_kstreams.streams.errors import ConfigError
    from airflow_kstreams.streams.naming.commands import create_topics_command

    missing = [name for name in names if name not in found]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist",
            fix=f"correct the name or the address, or create it with: {create_topics_command(missing)}",
        )
