"""Defines ``airflow-kstreams dead-letters``: lists dead letters, shows one, and brings letters back.

Keys and values of records are printed only by ``show --values``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from airflow_kstreams.batch.inspect.dead_letters import DeadLetterTopic, LettersSeen, SeenLetter
from airflow_kstreams.batch.protocol.replay_records import Replay
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.batch.replay.selection import Selection
from airflow_kstreams.cli.documents.letter_documents import (
    LetterDocument,
    LetterHeader,
    LettersDocument,
    ReplayDocument,
    ShownLettersDocument,
    letters_document,
    origin_text,
    replay_document,
)
from airflow_kstreams.cli.json_output import AsJson, print_json
from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    Connection,
    DryRun,
    connecting,
    named_values,
    say,
    show,
)
from airflow_kstreams.explore.record_table import shown_time
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams import serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.dead_letter_format import facts_of
from airflow_kstreams.streams.settings import ApplicationSettings

_PLACE = re.compile(r"(.+)-([0-9]{1,9})@([0-9]{1,18})")

dead_letters = typer.Typer(
    help="List dead letters, show one, or bring some of them back.", no_args_is_help=True
)

DOCUMENTS = {
    "dead-letters list": LettersDocument,
    "dead-letters show": ShownLettersDocument,
    "dead-letters replay": ReplayDocument,
}

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
    as_json: AsJson = False,
) -> None:
    """Count an application's dead letters by source topic, node and exception, and list the newest.

    It only reads, up to the end that the topic has at the start.
    """
    selection = _selection(where, None)
    topic = DeadLetterTopic(connection.cluster(), _settings(application_id, dead_letter_topic))
    found = topic.survey(selection, newest=limit)
    if as_json:
        print_json(letters_document(application_id, found))
        return
    show(_survey_tables(found), notes=_survey_notes(found, selection))


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
    as_json: AsJson = False,
) -> None:
    """Show one whole dead letter: the error, its place and its traceback.

    Key, value and headers of its record are shown only with --values; without it, *** replaces what the error
    quotes of them.
    """
    partition, offset = _place(place)
    topic = DeadLetterTopic(connection.cluster(), _settings(application_id, dead_letter_topic))
    found = topic.letters_at(partition, offset)
    if as_json:
        letters = [_letter(seen, values, key_serde, value_serde) for seen in found]
        print_json(ShownLettersDocument(letters=letters))
        return
    for seen in found:
        facts = seen.facts(values=values)
        stacktrace = facts.pop("stacktrace", "")
        rows = [*_what_happened(seen, facts), *_record(seen, values, key_serde, value_serde)]
        show([_two_columns(f"Dead letter {seen.letter.place}", rows)], notes=stacktrace.split("\n"))


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
        show([_replayed(found)] if found.records else [], notes=_notes(found, dry_run=dry_run))


def _settings(application_id: str, dead_letter_topic: str | None) -> ApplicationSettings:
    named = {"errors.dead.letter.queue.topic.name": dead_letter_topic} if dead_letter_topic else {}
    return ApplicationSettings.parse(application_id, named)


def _selection(pairs: Sequence[str] | None, limit: int | None) -> Selection:
    """Return the checked selection.

    :raises BadParameter: a condition is not written as ``FIELD=VALUE``, or a field is given twice.
    :raises ConfigError: a condition is not valid, as in ``Selection.parse``.
    """
    where: dict[str, str] = {}
    for name, value in named_values(pairs, "--where", "FIELD=VALUE"):
        if name in where:
            raise typer.BadParameter(
                f"{name} is given twice, and no letter can fit both", param_hint="--where"
            )
        where[name] = value
    return Selection.parse(where, limit)


def _place(text: str) -> tuple[TopicPartition, int]:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not TOPIC-PARTITION@OFFSET, as orders-0@17")
    return TopicPartition(found[1], int(found[2])), int(found[3])


def _survey_tables(found: LettersSeen) -> Iterator[Table]:
    if found.groups:
        yield Table(
            title=f"Dead letters of {found.topic}",
            columns=("topic", "node", "exception", "earliest", "latest", "waiting", "replayed", "letters"),
            rows=[
                (
                    group.topic or "-",
                    group.node or "-",
                    group.exception or "-",
                    shown_time(group.first_ms),
                    shown_time(group.last_ms),
                    f"{group.waiting:,}",
                    f"{group.replayed:,}",
                    f"{group.letters:,}",
                )
                for group in found.groups
            ],
            numbers=3,
        )
    if found.newest:
        yield Table(
            title="The newest",
            columns=("letter", "record", "exception", "node", "time", "replay"),
            rows=[
                (
                    seen.letter.place,
                    str(seen.letter.origin or "-"),
                    seen.letter.facts.get("exception", "-"),
                    seen.letter.facts.get("node", "-"),
                    shown_time(seen.timestamp_ms),
                    seen.fate.value,
                )
                for seen in found.newest
            ],
            more=found.letters - len(found.newest),
        )


def _survey_notes(found: LettersSeen, selection: Selection) -> Iterator[str]:
    if not found.letters:
        yield f"There are no {selection.which} in {found.topic}."
        return
    waiting, replayed = (sum(getattr(g, name) for g in found.groups) for name in ("waiting", "replayed"))
    stays = found.letters - waiting - replayed
    yield f"Letters: {found.letters:,}; {waiting:,} wait for a replay, {replayed:,} were replayed."
    if stays:
        yield f"{stays:,} stay: they belong to no consumed record, as of timers, or do not hold all of it."


def _two_columns(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    return Table(title=title, columns=("what", "is"), rows=rows)


def _what_happened(seen: SeenLetter, facts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield "record", str(seen.letter.origin or "none")
    yield "time", shown_time(seen.timestamp_ms)
    yield "replay", seen.fate.value
    for name, text in facts.items():
        yield f"__streams.errors.{name}", text


def _record(
    seen: SeenLetter, values: bool, key_serde: SerdeName | None, value_serde: SerdeName | None
) -> Iterator[tuple[str, str]]:
    record = seen.letter.record
    for what, data, serde in (("key", record.key(), key_serde), ("value", record.value(), value_serde)):
        yield what, _bytes(data, serde) if values or serde else _size(data)
    for name, data in facts_of(record.headers())[1]:
        yield f"header {name}", _bytes(data, None) if values else _size(data)


def _letter(
    seen: SeenLetter, values: bool, key_serde: SerdeName | None, value_serde: SerdeName | None
) -> LetterDocument:
    record = seen.letter.record
    key, value = record.key(), record.value()
    return LetterDocument(
        place=seen.letter.place,
        record=origin_text(seen),
        time_ms=seen.timestamp_ms,
        replay=seen.fate.value,
        error=seen.facts(values=values),
        key_bytes=None if key is None else len(key),
        key=_bytes(key, key_serde) if key is not None and (values or key_serde) else None,
        value_bytes=None if value is None else len(value),
        value=_bytes(value, value_serde) if value is not None and (values or value_serde) else None,
        headers=[
            LetterHeader(
                name=name,
                bytes=None if data is None else len(data),
                text=_bytes(data, None) if data is not None and values else None,
            )
            for name, data in facts_of(record.headers())[1]
        ],
    )


def _size(data: bytes | None) -> str:
    return "none" if data is None else f"{len(data):,} bytes (--values shows them)"


def _bytes(data: bytes | None, serde: SerdeName | None) -> str:
    """Return bytes as their serde reads them, else as text, else as hex."""
    if data is None:
        return "none"
    if serde is SerdeName.BYTES:
        return data.hex(" ")
    if serde is not None:
        try:
            found = getattr(serdes, serde.value)().deserialize(data)
        except Exception as error:  # a serde may raise anything, and the letter is shown
            return f"not {serde.value} ({error}): {_bytes(data, None)}"
        return found if isinstance(found, str) else repr(found)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex(" ")


def _refuse_nothing(found: Replay, selection: Selection) -> None:
    """Refuse conditions that no letter fits: one of them is likely to be misspelt."""
    if selection.where and not (found.records or found.without_origin or found.left_out or found.repeated):
        raise ConfigError(
            f"{found.dead_letter_topic} has no {selection.which} that wait for a replay; "
            f"{found.unselected:,} others do",
            fix="look at the letters with: airflow-kstreams dead-letters list",
        )


def _before(planned: Replay | None, selection: Selection, replay_id: str) -> Iterator[str]:
    count = "" if planned is None else f" ({planned.records:,} records to bring back)"
    yield f"Replay of {selection}{count}. If it is interrupted, go on with: --replay-id '{replay_id}'"


def _replayed(found: Replay) -> Table:
    return Table(
        title=f"Dead letters of {found.dead_letter_topic}",
        columns=("topic they came from", "records"),
        rows=[(topic, str(count)) for topic, count in found.records_per_topic.items()],
        numbers=1,
    )


def _notes(found: Replay, *, dry_run: bool) -> Iterator[str]:
    if not found.records:
        yield f"There is nothing to bring back from {found.dead_letter_topic}."
    for store, count in found.late.items():
        yield (
            f"Too late: {count:,} of these records are dated where all windows of {store!r} have closed; "
            "the next run drops there what reaches it, and counts it as late."
        )
    if found.late_unknown:
        yield (
            f"Of {found.late_unknown:,} of these records it is not known whether their windows have closed; "
            "the next run counts as late what it drops."
        )
    if found.unselected:
        yield f"For a later replay: {found.unselected:,} letters that do not fit --where."
    if found.at_limit:
        yield f"For a later replay: all letters past the limit of {found.limit:,} records."
    if found.repeated:
        yield f"Passed by: {found.repeated:,} letters whose record another letter brought back."
    if found.without_origin:
        yield f"Left alone: {found.without_origin} letters that belong to no consumed record, as of timers."
    if found.left_out:
        yield (
            f"Left alone: {found.left_out} letters without their records, which did not fit; their header "
            "__streams.errors.left.out says so, and .topic, .partition and .offset where the record is."
        )
    if found.expired:
        yield f"Deleted before their letters were replayed: {found.expired} offsets."
    yield "Dry run: nothing was changed." if dry_run else "Done."
