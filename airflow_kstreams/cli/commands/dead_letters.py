"""Defines ``airflow-kstreams dead-letters``: lists dead letters, shows one, and brings letters back.

Keys and values of records are printed only by ``show --values``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    AsJson,
    Connection,
    DryRun,
    connecting,
    named_values,
    say,
    show,
)
from airflow_kstreams.streams.figures.number_texts import counted

if TYPE_CHECKING:
    from airflow_kstreams.batch.inspect.dead_letters import DeadLetterTopic
    from airflow_kstreams.batch.protocol.replay_records import Replay
    from airflow_kstreams.batch.replay.selection import Selection
    from airflow_kstreams.streams.ports import TopicPartition
    from airflow_kstreams.streams.settings import ApplicationSettings

#: It leaves a part of 10 s to the start of the command.
_TIMEOUT_SECONDS = 8.0
_PLACE = re.compile(r"(.+)-([0-9]{1,9})@([0-9]{1,18})")

dead_letters = typer.Typer(
    help="List dead letters, show one, or bring some of them back.", no_args_is_help=True
)

DeadLetterTopicName = Annotated[
    str | None,
    typer.Option(
        "--dead-letter-topic",
        metavar="TOPIC",
        help="The application's errors.dead.letter.queue.topic.name, if it is set.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="FIELD=VALUE",
        help="Only letters whose field is equal: topic, partition, offset, node, exception, message, key, or "
        "value.NAME for a field of JSON values; repeatable, every one must fit.",
    ),
]


Timeout = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="Longest time for the reading; 0 for no bound.")
]


class SerdeName(StrEnum):
    """Serde of a key or value."""

    BYTES = "bytes"
    STRING = "string"
    INT32 = "int32"
    INT64 = "int64"
    DOUBLE = "double"
    JSON = "json"
    MSGPACK = "msgpack"


@dead_letters.command("list")
@connecting
def list_letters(
    application_id: ApplicationId,
    connection: Connection,
    dead_letter_topic: DeadLetterTopicName = None,
    where: Where = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Newest letters to show one by one.")] = 20,
    timeout: Timeout = _TIMEOUT_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Count an application's dead letters by source topic, node and exception, and list the newest.

    It only reads, up to the end that the topic has at the start.
    """
    from airflow_kstreams.cli.documents.letter_documents import letters_document
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.cli.tables.letter_tables import survey_notes, survey_tables

    selection = _selection(where, None)
    topic = _topic(connection, _settings(application_id, dead_letter_topic), timeout)
    found = topic.survey(selection, newest=limit)
    if as_json:
        print_json(letters_document(application_id, found))
        return
    show(survey_tables(found), notes=survey_notes(found, selection))


@dead_letters.command("show")
@connecting
def show_letter(  # noqa: PLR0913 - every parameter is an option
    place: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC-PARTITION@OFFSET",
            help="Place of the letter, or of its record where it was consumed, as list prints them.",
        ),
    ],
    application_id: ApplicationId,
    connection: Connection,
    dead_letter_topic: DeadLetterTopicName = None,
    values: Annotated[
        bool,
        typer.Option(
            "--values", help="Show the record's key, value and headers, and the error's quotations of them."
        ),
    ] = False,
    key_serde: Annotated[
        SerdeName | None, typer.Option(help="Serde to show the key with; as text, else as hex, if left out.")
    ] = None,
    value_serde: Annotated[SerdeName | None, typer.Option(help="Serde to show the value with.")] = None,
    timeout: Timeout = _TIMEOUT_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Show one whole dead letter: the error, its place and its traceback.

    Key, value and headers of its record are shown only with --values; without it, *** replaces what the error
    quotes of them.
    """
    from airflow_kstreams.cli.documents.letter_documents import ShownLettersDocument, shown_letter
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.cli.tables.letter_tables import letter_table

    partition, offset = _place(place)
    topic = _topic(connection, _settings(application_id, dead_letter_topic), timeout)
    found = topic.letters_at(partition, offset)
    if as_json:
        letters = [
            shown_letter(seen, values=values, key_serde=key_serde, value_serde=value_serde) for seen in found
        ]
        print_json(ShownLettersDocument(letters=letters))
        return
    for seen in found:
        facts = seen.facts(values=values)
        stacktrace = facts.pop("stacktrace", "")
        table = letter_table(seen, facts, values=values, key_serde=key_serde, value_serde=value_serde)
        show([table], notes=stacktrace.split("\n"))


@dead_letters.command("replay")
@connecting
def replay(  # noqa: PLR0913 - every parameter is an option
    application_id: ApplicationId,
    connection: Connection,
    dead_letter_topic: DeadLetterTopicName = None,
    where: Where = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Records to bring back, at most; the oldest letters of a partition first.",
        ),
    ] = None,
    replay_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Go on with this replay, which was interrupted; a new one unless given."
        ),
    ] = None,
    accept_repeats: Annotated[
        bool,
        typer.Option(
            "--accept-repeats",
            help="Bring letters back again whose marks of an earlier replay are lost; an error asks for it.",
        ),
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Bring dead letters back to the topics they came from, each once, so that the next run processes them.

    Replays the letters that no earlier replay has replayed, up to the topic's end; letters outside --where
    and --limit stay for later replays. May be interrupted and run again.
    """
    from airflow_kstreams.batch.replay.replay import DeadLetterReplay
    from airflow_kstreams.cli.documents.letter_documents import replay_document
    from airflow_kstreams.cli.json_output import print_json
    from airflow_kstreams.cli.tables.letter_tables import replay_notes, replay_table

    selection = _selection(where, limit)
    named = replay_id or f"manual__{datetime.now(tz=UTC).isoformat(timespec='milliseconds')}"
    tool = DeadLetterReplay(
        connection.cluster(),
        _settings(application_id, dead_letter_topic),
        replay_id=named,
        selection=selection,
        accept_repeats=accept_repeats,
    )
    chosen = bool(where or limit)
    found = tool.plan() if dry_run or chosen else None
    if found is not None:
        _refuse_nothing(found, selection)
    if not dry_run:
        for note in _before(found, selection, named):
            say(note, err=as_json)
        found = tool.run()
    if found is not None and as_json:
        print_json(replay_document(found, dry_run=dry_run))
    elif found is not None:
        show([replay_table(found)] if found.records else [], notes=replay_notes(found, dry_run=dry_run))


def _topic(connection: Connection, settings: ApplicationSettings, timeout: float) -> DeadLetterTopic:
    """Return the dead-letter topic, whose requests and reads together take so many seconds at most; 0 for no
    bound.
    """
    from airflow_kstreams.batch.inspect.dead_letters import DeadLetterTopic

    look_ms = round(timeout * 1000)
    bounded = settings.of_look(look_ms) if look_ms else settings
    return DeadLetterTopic(connection.cluster(bounded, look_ms=look_ms or None), bounded)


def _settings(application_id: str, dead_letter_topic: str | None) -> ApplicationSettings:
    from airflow_kstreams.streams.settings import ApplicationSettings

    named = {"errors.dead.letter.queue.topic.name": dead_letter_topic} if dead_letter_topic else {}
    return ApplicationSettings.parse(application_id, named)


def _selection(pairs: Sequence[str] | None, limit: int | None) -> Selection:
    """Return the checked selection.

    :raises BadParameter: a condition is not written as ``FIELD=VALUE``, or a field is given twice.
    :raises ConfigError: a condition is not valid, as in ``Selection.parse``.
    """
    from airflow_kstreams.batch.replay.selection import Selection

    where: dict[str, str] = {}
    for name, value in named_values(pairs, "--where", "FIELD=VALUE"):
        if name in where:
            raise typer.BadParameter(
                f"{name} is given twice, and no letter can fit both", param_hint="--where"
            )
        where[name] = value
    return Selection.parse(where, limit)


def _place(text: str) -> tuple[TopicPartition, int]:
    from airflow_kstreams.streams.ports import TopicPartition

    found = _PLACE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not TOPIC-PARTITION@OFFSET, as orders-0@17")
    return TopicPartition(found[1], int(found[2])), int(found[3])


def _refuse_nothing(found: Replay, selection: Selection) -> None:
    """Refuse conditions that no letter fits: one of them is likely to be misspelt."""
    from airflow_kstreams.streams.errors import ConfigError

    if selection.where and not (found.records or found.without_origin or found.left_out or found.repeated):
        raise ConfigError(
            f"{found.dead_letter_topic} has no {selection.which} that wait for a replay; "
            f"{found.unselected:,} others do",
            fix="look at the letters with: airflow-kstreams dead-letters list",
        )


def _before(planned: Replay | None, selection: Selection, replay_id: str) -> Iterator[str]:
    count = "" if planned is None else f" ({counted(planned.records, 'record')} to bring back)"
    yield f"Replay of {selection}{count}. If it is interrupted, go on with: --replay-id '{replay_id}'"
