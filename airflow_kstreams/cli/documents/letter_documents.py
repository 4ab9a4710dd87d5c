"""Makes the documents of ``dead-letters``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from airflow_kstreams.batch.inspect.dead_letters import SeenLetter, SeenLetters
from airflow_kstreams.batch.protocol.replay_records import Replay
from airflow_kstreams.streams import serdes
from airflow_kstreams.streams.records.dead_letter_format import facts_of


class ListedLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter.

    :param place: its place in the dead-letter topic.
    :param record: place of its record where it was consumed; null for a letter that belongs to none.
    :param exception: class of the exception; null where the letter does not say it.
    :param node: node that failed; null where the letter does not say it.
    :param purpose: what the node did, and the line that made it; null where the letter does not say it.
    :param time_ms: time of the record, epoch milliseconds.
    :param replay: what replays do with it: waiting, replayed or stays.
    """

    place: str
    record: str | None
    exception: str | None
    node: str | None
    purpose: str | None
    time_ms: int
    replay: str


class LettersAlike(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that failed alike.

    :param topic: topic from which the records were consumed; null for timers and records that are no letters.
    :param node: node that failed; null where it is not known.
    :param purpose: what the node does, and the line that made it; null where it is not known.
    :param exception: class of the exception; null where it is not known.
    :param letters: number of letters.
    :param waiting: letters that wait for a replay.
    :param replayed: letters that a replay has brought back.
    :param first_ms: time of the earliest record, epoch milliseconds.
    :param last_ms: time of the latest record.
    """

    topic: str | None
    node: str | None
    purpose: str | None
    exception: str | None
    letters: int
    waiting: int
    replayed: int
    first_ms: int
    last_ms: int


class LettersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of an application.

    :param application_id: the application.
    :param topic: its dead-letter topic.
    :param letters: number of letters that fit --where.
    :param groups: the letters by topic, node and exception, the largest group first.
    :param newest: the newest letters, as many as --limit says.
    """

    application_id: str
    topic: str
    letters: int
    groups: Sequence[LettersAlike]
    newest: Sequence[ListedLetter]


class LetterHeader(msgspec.Struct, frozen=True, kw_only=True):
    """A header of a letter's record.

    :param name: its name.
    :param bytes: its length; null for a header without a value.
    :param text: its value with --values, as text or hexadecimal; else null.
    """

    name: str
    bytes: int | None
    text: str | None


class LetterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One whole dead letter, or the letters of one record.

    :param place: place of the letter.
    :param record: place of its record where it was consumed; null for a letter that belongs to none.
    :param time_ms: time of the record, epoch milliseconds.
    :param replay: what replays do with it: waiting, replayed or stays.
    :param error: the facts of the failure, by the last word of their headers; *** replaces quotations of the
        record without --values.
    :param key_bytes: length of the key; null without a key.
    :param key: the key with --values or --key-serde; else null.
    :param value_bytes: length of the value; null without a value.
    :param value: the value with --values or --value-serde; else null.
    :param headers: headers of the record.
    """

    place: str
    record: str | None
    time_ms: int
    replay: str
    error: Mapping[str, str]
    key_bytes: int | None
    key: str | None
    value_bytes: int | None
    value: str | None
    headers: Sequence[LetterHeader]


class ShownLettersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of a place.

    :param letters: the letter, or all letters of the record.
    """

    letters: Sequence[LetterDocument]


class ReplayDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A replay of dead letters, or the plan of one.

    :param dry_run: whether nothing was done.
    :param replay_id: id with which an interrupted replay goes on.
    :param topic: the dead-letter topic.
    :param records_per_topic: topic that records came from -> the number of records brought back.
    :param late: store -> records whose windows have all closed there: the next run counts them as late.
    :param late_unknown: records of which it is not known whether they are late.
    :param unselected: letters that do not fit --where.
    :param at_limit: whether letters past --limit are left.
    :param repeated: letters whose record another letter brought back.
    :param without_origin: letters that belong to no consumed record.
    :param left_out: letters that do not hold their whole record.
    :param expired: offsets that were deleted before they were replayed.
    """

    dry_run: bool
    replay_id: str
    topic: str
    records_per_topic: Mapping[str, int]
    late: Mapping[str, int]
    late_unknown: int
    unselected: int
    at_limit: bool
    repeated: int
    without_origin: int
    left_out: int
    expired: int


def letters_document(application_id: str, found: SeenLetters) -> LettersDocument:
    """Make the document of ``dead-letters list``."""
    return LettersDocument(
        application_id=application_id,
        topic=found.topic,
        letters=found.letters,
        groups=[
            LettersAlike(
                topic=group.topic or None,
                node=group.node or None,
                purpose=group.purpose or None,
                exception=group.exception or None,
                letters=group.letters,
                waiting=group.waiting,
                replayed=group.replayed,
                first_ms=group.first_ms,
                last_ms=group.last_ms,
            )
            for group in found.groups
        ],
        newest=[*map(_listed, found.newest)],
    )


def replay_document(found: Replay, *, dry_run: bool) -> ReplayDocument:
    """Make the document of ``dead-letters replay``."""
    return ReplayDocument(
        dry_run=dry_run,
        replay_id=found.replay_id,
        topic=found.dead_letter_topic,
        records_per_topic=found.records_per_topic,
        late=found.late,
        late_unknown=found.late_unknown,
        unselected=found.unselected,
        at_limit=found.at_limit,
        repeated=found.repeated,
        without_origin=found.without_origin,
        left_out=found.left_out,
        expired=found.expired,
    )


def _listed(seen: SeenLetter) -> ListedLetter:
    facts = seen.letter.facts
    return ListedLetter(
        place=seen.letter.place,
        record=origin_text(seen),
        exception=facts.get("exception"),
        node=facts.get("node"),
        purpose=facts.get("purpose"),
        time_ms=seen.timestamp_ms,
        replay=seen.fate.value,
    )


def origin_text(seen: SeenLetter) -> str | None:
    """Return the place of a letter's record where it was consumed, None if it belongs to none."""
    return None if seen.letter.origin is None else str(seen.letter.origin)


def shown_letter(
    seen: SeenLetter, *, values: bool, key_serde: str | None, value_serde: str | None
) -> LetterDocument:
    """Make the document of one whole letter.

    :param values: whether to show key, value and headers of its record.
    :param key_serde: name of the serde to show the key with; None for text.
    :param value_serde: name of the serde to show the value with.
    """
    record = seen.letter.record
    key, value = record.key(), record.value()
    return LetterDocument(
        place=seen.letter.place,
        record=origin_text(seen),
        time_ms=seen.timestamp_ms,
        replay=seen.fate.value,
        error=seen.facts(values=values),
        key_bytes=None if key is None else len(key),
        key=bytes_text(key, key_serde) if key is not None and (values or key_serde) else None,
        value_bytes=None if value is None else len(value),
        value=bytes_text(value, value_serde) if value is not None and (values or value_serde) else None,
        headers=[
            LetterHeader(
                name=name,
                bytes=None if data is None else len(data),
                text=bytes_text(data, None) if data is not None and values else None,
            )
            for name, data in facts_of(record.headers())[1]
        ],
    )


def bytes_text(data: bytes | None, serde: str | None) -> str:
    """Return bytes as their serde reads them, else as text, else as hex.

    :param serde: name of the serde, ``json``; None for text.
    """
    if data is None:
        return "none"
    if serde == "bytes":
        return data.hex(" ")
    if serde is not None:
        try:
            found = getattr(serdes, serde)().deserialize(data)
        except Exception as error:  # a serde may raise anything, and the letter is shown
            return f"not {serde} ({error}): {bytes_text(data, None)}"
        return found if isinstance(found, str) else repr(found)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex(" ")
