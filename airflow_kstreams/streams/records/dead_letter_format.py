"""Makes dead letters of records and reads them again, and decides which results that their topic does not
take are left out.

A letter is the consumed record with further headers that describe the error (``__streams.errors.*``,
KIP-1034). So it is larger than its record, and the dead-letter topic may not take it. Rule: a letter always
holds the error, and the place at which its record was consumed. A part that does not fit is left out, the
value first, then the record's own headers and its key, and a header names the parts
(``__streams.errors.left.out``); the record itself stands at the place that the letter names, as long as the
topic keeps it.

Rule of results (``production.exception.handler``): a result is left out only if no broker has taken it. A
result that the client refuses is left out in its place. A result that the broker refuses for its size or time
fails the attempt, which aborts; the next attempt knows the result by its content, and time, and leaves it out
before it is sent. So a commit holds the results of a topology that never made this one. Records of changelogs
take another way and are never left out.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from airflow_kstreams.streams.errors import RecordError, record_refused
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.ports import Headers, Record
from airflow_kstreams.streams.records.first_place import content_id, first_place, with_first_place
from airflow_kstreams.streams.records.topic_limits import BROKER_MAX_BYTES, record_bytes
from airflow_kstreams.streams.records.user_traceback import GENERATED_FILE

#: ``produce(topic, value, key, partition, timestamp_ms, headers)``, see ``WriterPort``.
Produce = Callable[..., None]

#: Beginning of the names of the headers that describe the error; Kafka Streams has the same.
_PREFIX = "__streams.errors."
_LEFT_OUT = "left.out"
_FIRST_PLACE = "first.place"
_TOPIC_ID = "topic.id"
_TIMESTAMP = "timestamp"
_FED_BY = "fed.by"
_PURPOSE = "purpose"
#: Longest stack trace, and longest other text, that travels in a header, in bytes.
_STACKTRACE_BYTES = 8_000
_TEXT_BYTES = 4_000


class DeadLetter(NamedTuple):
    """A dead letter that was made of a record.

    :param key: bytes of its key; None for no key.
    :param value: bytes of its value; None for no value.
    :param headers: its headers: the record's own, then those that describe the error.
    :param left_out: the record's parts that did not fit, as text; empty if the letter holds all.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    left_out: str


class ConsumedAt(NamedTuple):
    """What the topic's id tells of the place where a record was consumed.

    :param first_place: the place at which it was consumed first; empty if that is not known.
    :param topic_id: id of the topic where it was consumed now; empty if that is not known.
    """

    first_place: str = ""
    topic_id: str = ""


class DeadLetters:
    """Sends dead letters.

    :param produce: function that sends a record.
    :param topic: name of the dead-letter topic.
    :param topic_ids: topic that the task reads -> its id.
    :param fed_by: repartition topic -> the topics that its records are made of.
    :param limit_bytes: size of the largest record that the topic takes.
    """

    __slots__ = ("_fed_by", "_limit_bytes", "_produce", "_topic_ids", "topic")

    def __init__(
        self,
        produce: Produce,
        *,
        topic: str,
        topic_ids: Mapping[str, str],
        fed_by: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        limit_bytes: int = BROKER_MAX_BYTES,
    ) -> None:
        self._fed_by = fed_by
        self.topic = topic
        self._produce = produce
        self._topic_ids = topic_ids
        self._limit_bytes = limit_bytes

    def send(
        self, record: Record | None, error: Exception, node: str, time_ms: int, purpose: str = ""
    ) -> str:
        """Send the largest letter of a record that fits. The client may take less than the topic; then it
        refuses the letter.

        :param record: the consumed record; None when the error came at a commit point or from a timer.
        :param error: the error that made it a dead letter.
        :param node: name of the node at which the error happened.
        :param time_ms: timestamp of the letter, epoch milliseconds.
        :param purpose: what the node does, and the user's line; empty if it is not known.
        :return: the parts that the letter leaves out, as text; empty if it holds all.
        :raises RecordError: no letter fits.
        """
        limit = self._limit_bytes
        refused = record_refused(self.topic, -1, f"no dead letter fits into max.message.bytes = {limit:,}")
        at, fed_by = ConsumedAt(), tuple[str, ...]()
        if record is not None:
            topic = record.topic()
            at = ConsumedAt(first_place(record, self._topic_ids), self._topic_ids.get(topic, ""))
            fed_by = self._fed_by.get(topic, ())
        for letter in letters_of(record, error, node, at, fed_by, purpose):
            if record_bytes(letter.key, letter.value, letter.headers) > limit:
                continue
            try:
                self._produce(self.topic, letter.value, letter.key, -1, time_ms, letter.headers)
            except RecordError as by_client:
                refused = by_client
            else:
                return letter.left_out
        raise refused


def letters_of(
    record: Record | None,
    error: Exception,
    node: str,
    at: ConsumedAt,
    fed_by: tuple[str, ...] = (),
    purpose: str = "",
) -> Iterator[DeadLetter]:
    """Yield the letter of a record, and then letters that leave out more and more.

    :param record: the consumed record; None when the error came at a commit point or from a timer.
    :param at: where the record was consumed.
    :param fed_by: the topics that the records of its topic are made of, if that is a repartition topic.
    :param purpose: what the node does, and the user's line; empty if it is not known.
    """
    facts = _facts(record, error, node, at)
    if purpose:
        facts.append((f"{_PREFIX}{_PURPOSE}", _start(purpose)))
    if fed_by:
        facts.append((f"{_PREFIX}{_FED_BY}", "\n".join(fed_by).encode()))
    if record is None:
        yield DeadLetter(None, None, facts, "")
        yield DeadLetter(None, None, _without_texts(facts), "")
        return
    key, value, own = record.key(), record.value(), record.headers() or []
    yield DeadLetter(key, value, [*own, *facts], "")
    size = f"the value ({counted(len(value or b''), 'byte')})"
    yield DeadLetter(key, None, [*own, *facts, _mark(size)], size)
    everything = f"{size}, the key ({counted(len(key or b''), 'byte')}) and {counted(len(own), 'header')}"
    yield DeadLetter(None, None, [*facts, _mark(everything)], everything)
    yield DeadLetter(None, None, [*_without_texts(facts), _mark(everything)], everything)


def _mark(left_out: str) -> tuple[str, bytes | None]:
    return f"{_PREFIX}{_LEFT_OUT}", left_out.encode()


def _without_texts(facts: Headers) -> Headers:
    texts = (f"{_PREFIX}message", f"{_PREFIX}stacktrace")
    return [(name, b"... (cut)" if name in texts else value) for name, value in facts]


def dead_letter_headers(record: Record | None, error: Exception, node: str, at: ConsumedAt) -> Headers:
    """Return a dead letter's headers: the record's own, then those that describe the error as UTF-8 text.

    :param record: the consumed record; None when the error came at a commit point or from a timer.
    :param at: where the record was consumed.
    """
    own = [] if record is None else record.headers() or []
    return [*own, *_facts(record, error, node, at)]


def _facts(record: Record | None, error: Exception, node: str, at: ConsumedAt) -> Headers:
    facts = {
        "exception": _start(f"{type(error).__module__}.{type(error).__qualname__}"),
        "message": _start(text_of(error)),
        "stacktrace": _end(_stack_trace(error)),
        "topic": b"" if record is None else record.topic().encode(),
        "partition": b"-1" if record is None else b"%d" % record.partition(),
        "offset": b"-1" if record is None else b"%d" % record.offset(),
        "node": _start(node),
        _FIRST_PLACE: at.first_place.encode(),
        _TOPIC_ID: at.topic_id.encode(),
        # The dead-letter topic may give the letter a time of its own.
        _TIMESTAMP: b"-1" if record is None else b"%d" % record.timestamp()[1],
    }
    return [(f"{_PREFIX}{name}", text) for name, text in facts.items()]


def _stack_trace(error: BaseException) -> str:
    """Return an error's traceback without the lines of the loops that this package writes: no reader can open
    their file, and their numbers depend on how the program runs.
    """
    whole = traceback.TracebackException.from_exception(error)
    told: traceback.TracebackException | None = whole
    while told is not None:
        told.stack[:] = [frame for frame in told.stack if frame.filename != GENERATED_FILE]
        told = told.__cause__ or told.__context__
    return "".join(whole.format())


def text_of(error: BaseException) -> str:
    """Return an error's text, or a remark if the ``__str__`` of a user's class raises."""
    try:
        return str(error)
    except Exception as failed:
        return f"(no text: its __str__ raises {type(failed).__name__})"


def _start(text: str) -> bytes:
    """Return the start of a text, with a mark if it is cut."""
    data = text.encode(errors="replace")
    if len(data) <= _TEXT_BYTES:
        return data
    kept = data[:_TEXT_BYTES].decode(errors="ignore")
    return f"{kept}... (cut, {len(text):,} characters)".encode()


def _end(text: str) -> bytes:
    """Return the end of a text, with a mark if it is cut: the innermost calls stand last."""
    data = text.encode(errors="replace")
    if len(data) <= _STACKTRACE_BYTES:
        return data
    kept = data[-_STACKTRACE_BYTES:].decode(errors="ignore")
    return f"(cut, {len(text):,} characters) ...{kept}".encode()


class DeadLetterOrigin(NamedTuple):
    """The place where a dead letter was consumed, and the headers it had there.

    :param topic: name of the topic.
    :param partition: number of the partition.
    :param headers: the record's own headers.
    :param offset: offset of the record; -1 if the letter does not hold it.
    :param left_out: the parts of the record that the letter does not hold, empty if it holds all.
    :param first_place: the place at which the record was consumed first; empty if the letter does not hold
        it.
    :param fed_by: the topics that the records of its topic were made of, if that is a repartition topic;
        empty if the letter does not hold them.
    :param topic_id: id that the topic had; empty if the letter does not hold it.
    :param timestamp_ms: the record's own time, epoch milliseconds; -1 if the letter does not hold it.
    """

    topic: str
    partition: int
    headers: Headers
    offset: int = -1
    left_out: str = ""
    first_place: str = ""
    fed_by: tuple[str, ...] = ()
    topic_id: str = ""
    timestamp_ms: int = -1

    def headers_of(self, key: bytes | None, value: bytes | None) -> Headers | None:
        """Return the headers with which the record comes back; None for none."""
        if not self.first_place:
            return self.headers or None
        return with_first_place(self.headers, self.first_place, key, value)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def facts_of(headers: Headers | None) -> tuple[dict[str, str], Headers]:
    """Undo :func:`dead_letter_headers`.

    The newest letter's headers stand last, each name once. Headers before them are the record's own, even
    with the same names: e.g. when the letter of another application became a dead letter again.

    :return: (name of a header of the letter without the common beginning -> its text, the record's own
        headers); the first is empty if the record is no letter.
    """
    own = list(headers or [])
    facts: dict[str, str] = {}
    while own and own[-1][0].startswith(_PREFIX) and own[-1][0].removeprefix(_PREFIX) not in facts:
        name, value = own.pop()
        facts[name.removeprefix(_PREFIX)] = (value or b"").decode(errors="replace")
    return facts, own


def origin_of(headers: Headers | None) -> DeadLetterOrigin | None:
    """Return the place at which a letter's record was consumed; None for a letter without record, as a
    timer's, and for a record that is no letter.
    """
    facts, own = facts_of(headers)
    topic, partition, offset = facts.get("topic", ""), facts.get("partition", ""), facts.get("offset", "")
    timestamp = facts.get(_TIMESTAMP, "")
    if not topic or not partition.isdecimal():
        return None
    return DeadLetterOrigin(
        topic,
        int(partition),
        own,
        int(offset) if offset.isdecimal() else -1,
        facts.get(_LEFT_OUT, ""),
        facts.get(_FIRST_PLACE, ""),
        tuple(filter(None, facts.get(_FED_BY, "").split("\n"))),
        facts.get(_TOPIC_ID, ""),
        int(timestamp) if timestamp.isdecimal() else -1,
    )


class RefusedResultError(Exception):
    """A result that its topic does not take.

    :param refused: the error of the client or the broker.
    """

    own_words = True  # the text holds no data of a user's

    def __init__(self, refused: RecordError) -> None:
        super().__init__(refused.cause)
        self.refused = refused


def leaving_out(produce: Produce, by_broker: Mapping[str, RecordError]) -> Produce:
    """Return the function that sends results and raises :class:`RefusedResultError` for a refused one.

    :param produce: function that sends a record.
    :param by_broker: :func:`content_id` of a result that the broker refused in an earlier attempt -> the
        error.
    """

    def send(
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        if by_broker:
            for name in (content_id(topic, key, value), content_id(topic, key, value, timestamp_ms)):
                refused = by_broker.get(name)
                if refused is not None:
                    raise RefusedResultError(refused)
        try:
            produce(topic, value, key, partition, timestamp_ms, headers)
        except RecordError as error:
            raise RefusedResultError(error) from error

    return send
