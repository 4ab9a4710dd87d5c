"""Reads and decodes the letters of a dead-letter topic, and selects those that a replay brings back: the ones
that fit every condition, up to a number.

A condition is a field and the text that it must be equal to; nothing is ever run::

    topic, partition, offset    where the record was consumed
    node                        the node that failed
    exception                   the exception's class, with its module or without
    message                     the exception's text
    key                         the record's key as UTF-8
    value.NAME, value.NAME.NAME a field of the record's value, where that is JSON

A field that a letter does not have is equal to nothing, as one of a value that is no JSON. In JSON a text is
equal to the same text, a number to the same number however it is written (``5``, ``5.0``), ``true``,
``false`` and ``null`` to these words, an object or an array to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.protocol.logs.log_bounds import log_bounds
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.plan import json_decoder
from airflow_kstreams.streams.ports import AdminPort, Clock, Record, TopicPartition
from airflow_kstreams.streams.records.dead_letter_format import DeadLetterOrigin, facts_of, origin_of
from airflow_kstreams.streams.settings import ApplicationSettings

_NUMBERS = ("partition", "offset")
_TEXTS = ("topic", *_NUMBERS, "node", "exception", "message")
_VALUE = "value."
_WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,6})?")
_OBJECT = json_decoder(dict[str, msgspec.Raw])
_TEXT = json_decoder(str)
_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The letters that a replay brings back; all of them unless it says otherwise.

    :param where: field -> text that it is equal to; every one must fit.
    :param limit: records to bring back, at most; 0 = no bound.
    """

    where: Mapping[str, str] = field(default_factory=dict)
    limit: int = 0

    @classmethod
    def parse(cls, where: Mapping[str, object] | None = None, limit: object = None) -> Selection:
        """Check what a command or a DAG asks for.

        :param where: texts, or what JSON has a word for: whole numbers, true, false, null.
        :param limit: a whole number from 1, or its text; None or empty text for no bound.
        :raises ConfigError: a field is unknown, a text cannot be that of its field, or the limit is none.
        """
        return cls(
            where={name: _text(name, wanted) for name, wanted in (where or {}).items()},
            limit=_limit(limit),
        )

    def fits(self, letter: Letter) -> bool:
        """Say whether a letter fits every condition."""
        return all(_fits(letter, name, wanted) for name, wanted in self.where.items())

    @property
    def which(self) -> str:
        """The conditions in words."""
        conditions = " and ".join(f"{name}={wanted}" for name, wanted in self.where.items())
        return f"letters with {conditions}" if conditions else "letters"

    def __str__(self) -> str:
        return f"{self.which}, at most {self.limit:,}" if self.limit else f"all {self.which}"


def _limit(given: object) -> int:
    if given is None or given == "":
        return 0
    text = str(given).strip()
    if isinstance(given, bool) or not _WHOLE_NUMBER.fullmatch(text) or text == "0":
        raise ConfigError(
            f"the limit of a replay is {given!r}, not a whole number from 1",
            fix="say how many records may come back, or leave the limit out",
        )
    return int(text)


def _text(name: str, wanted: object) -> str:
    """Return the text of a checked condition."""
    if name not in _TEXTS and name != "key" and not _is_value_field(name):
        raise ConfigError(
            f"letters have no field {name!r}",
            fix=f"use {', '.join(_TEXTS)}, key, or value.NAME (value.NAME.NAME, ...) for a field of JSON "
            "values",
        )
    if isinstance(wanted, str):
        text = wanted
    elif wanted is None or isinstance(wanted, (bool, int)):
        text = msgspec.json.encode(wanted).decode()
    else:
        raise ConfigError(
            f"the condition on {name} is {type(wanted).__name__}, not a text, a whole number, true, false or "
            "null",
            fix="write what the field must be equal to as text",
        )
    if name in _NUMBERS and not _WHOLE_NUMBER.fullmatch(text):
        raise ConfigError(
            f"no letter has {name}={text}: it is a whole number, as 0 or 17",
            fix=f"give a {name} as dead-letters list prints it",
        )
    return text


def _is_value_field(name: str) -> bool:
    return name.startswith(_VALUE) and all(name.removeprefix(_VALUE).split("."))


def _fits(letter: Letter, name: str, wanted: str) -> bool:
    if name == "exception":
        found = letter.facts.get(name)
        return found is not None and wanted in (found, found.rpartition(".")[2])
    if name in _TEXTS:
        return letter.facts.get(name) == wanted
    if name == "key":
        return letter.record.key() == wanted.encode(errors="surrogatepass")
    return _is_at(letter.record.value(), name.removeprefix(_VALUE).split("."), wanted)


def _is_at(value: bytes | None, path: list[str], wanted: str) -> bool:
    """Say whether a JSON value's field, given by the names that lead to it, is equal to a text."""
    if value is None:
        return False
    try:
        for name in path:
            fields = _OBJECT.decode(value)
            if name not in fields:
                return False
            value = bytes(fields[name])
        return _TEXT.decode(value) == wanted if value[:1] == b'"' else _same(value.decode(), wanted)
    except _NOT_JSON:
        return False


def _same(found: str, wanted: str) -> bool:
    """Say whether what JSON has without quotes is equal to a text; neither objects nor arrays are."""
    if found[:1] in ("{", "["):
        return False
    numbers = _JSON_NUMBER.fullmatch(found) and _JSON_NUMBER.fullmatch(wanted)
    # As decimals: two large whole numbers may be the same double.
    return found == wanted or (bool(numbers) and Decimal(found) == Decimal(wanted))


class Letter(NamedTuple):
    """A record of a dead-letter topic.

    :param record: as it lies there.
    :param facts: what its headers say of the failure, by name: ``exception``, ``node``, ...; empty for a
        record that is no letter.
    :param origin: where it was consumed; None for a letter that belongs to no consumed record.
    """

    record: Record
    facts: Mapping[str, str]
    origin: DeadLetterOrigin | None

    @classmethod
    def of(cls, record: Record) -> Letter:
        """Read a record's headers."""
        headers = record.headers()
        return cls(record, facts_of(headers)[0], origin_of(headers))

    @property
    def whole(self) -> bool:
        """Whether it can come back: it belongs to a record, and holds all of it."""
        return self.origin is not None and not self.origin.left_out

    @property
    def place(self) -> str:
        """Where the letter itself lies."""
        return f"{self.record.topic()}-{self.record.partition()}@{self.record.offset()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterLog:
    """A dead-letter topic at one moment.

    :param topic_id: of the topic.
    :param starts: first offset of each partition, by its number.
    :param stops: last stable offset of each partition.
    """

    topic_id: str
    starts: Mapping[int, int]
    stops: Mapping[int, int]

    @classmethod
    def look(cls, admin: AdminPort, settings: ApplicationSettings, clock: Clock) -> LetterLog:
        """Look where the dead-letter topic of an application begins and ends.

        :raises ConfigError: there is none.
        """
        topic = settings.dead_letter_topic
        described = admin.describe_topics([topic]).get(topic)
        if described is None:
            raise ConfigError(
                f"the dead-letter topic {topic!r} does not exist",
                fix="check the application id, and errors.dead.letter.queue.topic.name if you set it; the "
                "topic is made by the first run with the error handler 'dead-letter'",
            )
        partitions = [TopicPartition(topic, number) for number in range(described.partitions)]
        bounds = log_bounds(admin, partitions, settle_ms=settings.settle_ms, clock=clock)
        return cls(
            topic_id=described.topic_id,
            starts={tp.partition: log_of.start for tp, log_of in bounds.items()},
            stops={tp.partition: log_of.stable for tp, log_of in bounds.items()},
        )
