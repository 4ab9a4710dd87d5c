"""Reads and decodes the letters of a dead-letter topic, and selects those that match every condition, up to a
number, for a replay to bring back.

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

Rule: a letter that an earlier replay is done with, as positions and marks say (``replay_records.py``), is
passed by. Of the others, those that fit the selection are done with by this replay: they come back if they
are whole, else they are counted and stay. The rest is left to later replays.

Several letters are made of one record where it fails at several nodes, or in several of the parts that a node
has made of it. Rule: a record comes back once. A whole letter brings nothing back if another letter of its
record did, in this replay or an earlier one: what an earlier one brought back, the letters that it is done
with say, as long as the topic keeps them. Letters are of one record if they say the same place in the same
topic, and have the same time, key and value: a topic that was made anew, as a reset does with repartition
topics, gives the place to another record, or to the same one once more.

A partition's position moves with the reading as long as nothing is left behind it. From the first letter that
is left the position stays there, and what is done with behind it is marked. So a replay of all letters writes
positions only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.evidence.known_applications import refuse_unknown_application
from airflow_kstreams.batch.protocol.logs.log_read import log_bounds
from airflow_kstreams.batch.protocol.replay_records import Marks, Replay
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.plan import json_decoder
from airflow_kstreams.streams.ports import AdminPort, Clock, Record, TopicDescription, TopicPartition
from airflow_kstreams.streams.records.dead_letter_format import DeadLetterOrigin, facts_of, origin_of
from airflow_kstreams.streams.records.first_place import content_id
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

    :param where: field -> text that it must be equal to; a letter must match all of them.
    :param limit: largest number of records to bring back; 0 = no bound.
    """

    where: Mapping[str, str] = field(default_factory=dict)
    limit: int = 0

    @classmethod
    def parse(cls, where: Mapping[str, object] | None = None, limit: object = None) -> Selection:
        """Check the conditions and the limit that a command or a DAG gives.

        :param where: field -> a text, or a value that JSON has a word for: a whole number, true, false, null.
        :param limit: a whole number from 1, or its text; None or empty text for no bound.
        :raises ConfigError: a field is unknown, a text cannot be that of its field, or the limit is not
            valid.
        """
        return cls(
            where={name: _text(name, wanted) for name, wanted in (where or {}).items()},
            limit=_limit(limit),
        )

    def fits(self, letter: Letter) -> bool:
        """Return whether a letter matches every condition."""
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
    """Return whether a JSON value's field, given by the names that lead to it, is equal to a text."""
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
    """Return whether a JSON value without quotes is equal to a text; objects and arrays never are."""
    if found[:1] in ("{", "["):
        return False
    numbers = _JSON_NUMBER.fullmatch(found) and _JSON_NUMBER.fullmatch(wanted)
    # As decimals: two large whole numbers may be the same double.
    return found == wanted or (bool(numbers) and Decimal(found) == Decimal(wanted))


class Letter(NamedTuple):
    """A record of a dead-letter topic.

    :param record: the record as it lies in the dead-letter topic.
    :param facts: facts of the failure by the names of their headers: ``exception``, ``node``, ...; empty for
        a record that is no letter.
    :param origin: topic, partition and offset at which its record was consumed; None for a letter that
        belongs to no consumed record.
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
    def time_ms(self) -> int:
        """The time of the consumed record, epoch milliseconds; that of the letter if it does not hold it."""
        own_ms = -1 if self.origin is None else self.origin.timestamp_ms
        return own_ms if own_ms >= 0 else max(self.record.timestamp()[1], 0)

    @property
    def record_id(self) -> str:
        """Name of the consumed record, which its other letters give it, too; empty for a letter that does not
        say where its record was.
        """
        origin, record = self.origin, self.record
        if origin is None or origin.offset < 0:
            return ""
        # The first place does not tell a record that came back from one that lay in the same place before.
        place = f"{origin} {origin.topic_id} {self.time_ms}"
        return content_id(place, record.key(), record.value())

    @property
    def place(self) -> str:
        """The place of the letter itself."""
        return f"{self.record.topic()}-{self.record.partition()}@{self.record.offset()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterLog:
    """A dead-letter topic at one moment.

    :param topic_id: id of the topic.
    :param starts: partition number -> first offset.
    :param stops: partition number -> last stable offset.
    """

    topic_id: str
    starts: Mapping[int, int]
    stops: Mapping[int, int]

    @classmethod
    def look(cls, admin: AdminPort, settings: ApplicationSettings, clock: Clock) -> LetterLog:
        """Read the first and the last stable offsets of an application's dead-letter topic.

        :raises ConfigError: there is no such topic, or the cluster does not know the application.
        """
        described = described_letters(admin, settings)
        topic = described.name
        partitions = [TopicPartition(topic, number) for number in range(described.partitions)]
        bounds = log_bounds(admin, partitions, settle_ms=settings.settle_ms, clock=clock)
        return cls(
            topic_id=described.topic_id,
            starts={tp.partition: log_of.start for tp, log_of in bounds.items()},
            stops={tp.partition: log_of.stable for tp, log_of in bounds.items()},
        )


def described_letters(admin: AdminPort, settings: ApplicationSettings) -> TopicDescription:
    """Return the description of an application's dead-letter topic.

    :raises ConfigError: there is no such topic, or the cluster does not know the application.
    """
    topic = settings.dead_letter_topic
    described = admin.describe_topics([topic]).get(topic)
    if described is None or settings.errors_dead_letter_queue_topic_name:
        refuse_unknown_application(admin, settings.application_id)
    if described is None:
        raise ConfigError(
            f"the dead-letter topic {topic!r} does not exist",
            fix="check the application id, and errors.dead.letter.queue.topic.name if you set it; the "
            "topic is made by the first run with the error handler 'dead-letter'",
        )
    return described


@dataclass(slots=True, kw_only=True)
class Found:
    """The letters that a replay has read since its last transaction.

    :param letters: letters that come back.
    :param without_origin: letters that belong to no consumed record.
    :param left_out: letters that do not hold their whole record.
    :param unselected: letters that are left to later replays.
    :param repeated: letters whose records came back before.
    """

    letters: list[Letter] = field(default_factory=list)
    without_origin: int = 0
    left_out: list[Letter] = field(default_factory=list)
    unselected: int = 0
    repeated: int = 0

    @property
    def selected(self) -> bool:
        """Whether it is done with any letter."""
        return bool(self.letters or self.left_out or self.without_origin or self.repeated)


class Scan:
    """Decides on the letters that one replay reads.

    :param replay: the replay as it was written last; :attr:`replay` is the replay after the letters read
        since.
    :param marks: marks of letters that are done with; the marks of this replay are added.
    """

    def __init__(self, replay: Replay, marks: Marks) -> None:
        self.replay = replay
        self._marks = marks
        self._selection = Selection(where=replay.where, limit=replay.limit)
        self._positions = dict(replay.positions)
        self._reached = {partition: replay.reached(partition) for partition in replay.stops}
        self._found = Found()
        #: Ids of records that came back.
        self._back: set[str] = set()

    @property
    def ripe(self) -> bool:
        """Whether there is something to write: letters that are only passed by wait for letters that come
        back.
        """
        return self._found.selected

    def recall(self, fetched: Mapping[TopicPartition, Sequence[Record]]) -> None:
        """Look at letters that replays have read before, for the records that came back."""
        for tp, records in fetched.items():
            done = self._positions[tp.partition]
            for record in records:
                offset = record.offset()
                if offset < done or self._marks.has(tp.partition, offset):
                    letter = Letter.of(record)
                    if letter.whole:
                        self._back.add(letter.record_id)

    def look(
        self, fetched: Mapping[TopicPartition, Sequence[Record]], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Judge the letters that were read, up to the limit.

        :param ends: partition -> the offset up to which it is read.
        """
        for tp, records in fetched.items():
            for record in records:
                if self._full:
                    return
                self._look_at(tp.partition, Letter.of(record))
        for tp, end in ends.items():
            self._move(tp.partition, end, done=True)

    def take(self) -> Found:
        """Move the replay behind all letters that were looked at, and return those to write with it."""
        found, self._found = self._found, Found()
        self._marks.forget_before(self._positions)
        per_topic = Counter(self.replay.records_per_topic)
        per_topic.update(letter.origin.topic for letter in found.letters if letter.origin is not None)
        self.replay = msgspec.structs.replace(
            self.replay,
            positions=dict(self._positions),
            scanned={
                partition: reached
                for partition, reached in self._reached.items()
                if reached > self._positions[partition]
            },
            records_per_topic=dict(sorted(per_topic.items())),
            without_origin=self.replay.without_origin + found.without_origin,
            left_out=self.replay.left_out + len(found.left_out),
            unselected=self.replay.unselected + found.unselected,
            repeated=self.replay.repeated + found.repeated,
        )
        return found

    @property
    def _full(self) -> bool:
        limit = self.replay.limit
        return bool(limit) and self.replay.records + len(self._found.letters) >= limit

    def _look_at(self, partition: int, letter: Letter) -> None:
        offset = letter.record.offset()
        self._move(partition, offset, done=True)
        if self._marks.has(partition, offset):
            self._move(partition, offset + 1, done=True)
        elif not self._selection.fits(letter):
            self._found.unselected += 1
            self._move(partition, offset + 1, done=False)
        else:
            self._sort(letter)
            if self._positions[partition] < offset:
                self._marks.add(partition, offset)
            self._move(partition, offset + 1, done=True)

    def _sort(self, letter: Letter) -> None:
        record_id = letter.record_id
        if letter.whole and record_id and record_id in self._back:
            self._found.repeated += 1
        elif letter.whole:
            self._back.add(record_id)
            self._found.letters.append(letter)
        elif letter.origin is None:
            self._found.without_origin += 1
        else:
            self._found.left_out.append(letter)

    def _move(self, partition: int, offset: int, *, done: bool) -> None:
        """Read on to an offset.

        :param done: whether no letter before the offset is left to later replays.
        """
        if offset > self._reached[partition]:
            if done and self._positions[partition] == self._reached[partition]:
                self._positions[partition] = offset
            self._reached[partition] = offset


def caught_up(
    replay: Replay, before: Mapping[int, int], log_starts: Mapping[int, int], marks: Marks
) -> Replay:
    """Move a replay to the end of the last one, and past letters that the log does not hold any more.

    Positions never go back, not even those of partitions that this replay does not know.

    :param before: partition number -> position of the replay that was written last, which may be this one.
    :param marks: marks of letters; blocks that the positions pass are dropped.
    """
    positions = dict(before)
    expired = 0
    for partition, stop in replay.stops.items():
        seen = max(before.get(partition, -1), replay.positions.get(partition, -1))
        position = max(seen, min(log_starts.get(partition, 0), stop))
        # Letters that were gone before any replay looked are not missed, nor are those that came back.
        expired += position - seen - marks.count(partition, seen, position) if seen >= 0 else 0
        positions[partition] = position
    marks.forget_before(positions)
    return msgspec.structs.replace(replay, positions=positions, expired=replay.expired + expired)
