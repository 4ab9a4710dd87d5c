"""The functions of programs: a small closed set, pure, and the same in ``KafkaStreamsPeer.java``.

They take whatever comes: texts, whole numbers, windowed keys, None. Results show order and content, and
stay short: a text keeps its end, a number its remainder.

**Closers.** A program's last records, with the key and value ``~``, lie so far ahead that everything that
waits for time is given. Each function passes them on as they are, so they reach each node; what they lead
to is no result, see ``comparing.py``. A number that is a closer is ``CLOSING`` or more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_kstreams.streams import Windowed
from airflow_kstreams.streams.records.record_context import InContext, RecordContext
from airflow_kstreams.streams.timestamps import ConsumedRecord

CLOSER = "~"
CLOSING = 1_000_000_000
_LONGEST = 40
_MODULUS = 1_000_003

#: Arguments of a function, as in a step.
Arguments = Mapping[str, Any]


def shown(part: Any) -> str:
    """Return a key or value as text."""
    if isinstance(part, Windowed):
        return f"{shown(part.key)}@{part.start_ms}/{part.end_ms}"
    return "null" if part is None else str(part)


def weight(part: Any) -> int:
    """Return a number that is the same for equal keys or values, and seldom for others."""
    if part is None:
        return 0
    return part if isinstance(part, int) else sum(map(ord, shown(part)))


def closes(part: Any) -> bool:
    """Return whether it is of a closer."""
    if isinstance(part, Windowed):
        return closes(part.key)
    return part >= CLOSING if isinstance(part, int) else part is not None and part.startswith(CLOSER)


def predicate(arguments: Arguments) -> Callable[[Any, Any], bool]:
    """Return what holds for some keys and values, and for closers if ``closer`` says so."""
    by, modulus, rest, closer = (arguments[name] for name in ("by", "modulus", "rest", "closer"))

    def holds(key: Any, value: Any) -> bool:
        if by == "present":
            return value is not None
        return bool(closer) if closes(value) else _weight(by, key, value) % modulus == rest

    return holds


def key_maker(arguments: Arguments) -> Callable[[Any, Any], str | None]:
    """Return what makes a key, or None for every ``null``-th."""
    by, count, null = (arguments[name] for name in ("by", "count", "null"))

    def key_of(key: Any, value: Any) -> str | None:
        if closes(value):
            return CLOSER
        found = _weight(by, key, value)
        return None if null and found % null == 0 else f"g{found % count}"

    return key_of


def value_maker(arguments: Arguments, more: int = 0) -> Callable[[Any], str | int | None]:
    """Return what makes a value of another one, or None for every ``null``-th.

    :param more: added to what is added.
    """
    gives: str = arguments["gives"]
    add: int = arguments["add"]
    null: int = arguments["null"]

    def value_of(value: Any) -> str | int | None:
        if closes(value):
            return _closer(gives)
        if null and weight(value) % null == 0:
            return None
        if gives == "text":
            return _short(f"{shown(value)}.{add + more}")
        made: int = (weight(value) * 7 + add + more) % _MODULUS
        return made

    return value_of


def mapper(arguments: Arguments, copy: int = 0) -> Callable[..., str | int | None]:
    """Return what makes a step's value of another one, and of the key where the step says so.

    :param copy: added to what is added.
    """
    value_of = value_maker(arguments["value"], copy)
    if not arguments.get("keyed"):
        return value_of
    return lambda value, key: _numbered(value_of(value), weight(key))


def counted_value_maker(arguments: Arguments, more: int = 0) -> Callable[[Any, int], str | int | None]:
    """Return what makes a value of another one and a count.

    :param more: added to what is added.
    """
    value_of = value_maker(arguments, more)
    return lambda value, count: _numbered(value_of(value), count)


def context_value_maker(arguments: Arguments) -> Callable[[Any, RecordContext], str | int | None]:
    """Return what makes a value of another one, with the time and the header ``n`` of its record."""
    value_of = value_maker(arguments)

    def value_with(value: Any, context: RecordContext) -> str | int | None:
        number = sum(int(text or b"") for name, text in context.headers if name == "n")
        return _numbered(value_of(value), context.timestamp_ms + number)

    return value_with


def number_of_context(context: RecordContext, *, place: bool) -> int:
    """Return a number of a record's context: its time and its header ``n``.

    :param place: whether topic, partition and offset are part of it.
    """
    number = context.timestamp_ms + sum(int(text or b"") for name, text in context.headers if name == "n")
    return number + (weight(context.topic) + context.partition + context.offset if place else 0)


def predicate_in_context(arguments: Arguments, *, place: bool) -> InContext[Any, Any, bool]:
    """Return what holds for some keys and values in some contexts, and for closers if ``closer`` says so."""
    by, modulus, rest, closer = (arguments[name] for name in ("by", "modulus", "rest", "closer"))

    def holds(key: Any, value: Any, *, context: RecordContext) -> bool:
        if closes(value):
            return bool(closer)
        number = number_of_context(context, place=place)
        return bool((_weight(by, key, value) + number) % modulus == rest)

    return holds


def key_in_context(
    arguments: Arguments, context: RecordContext, key: Any, value: Any, *, place: bool
) -> str | None:
    """Return a key, as :func:`key_maker` does, by the context too."""
    if closes(value):
        return CLOSER
    found = _weight(arguments["by"], key, value) + number_of_context(context, place=place)
    null = arguments["null"]
    return None if null and found % null == 0 else f"g{found % arguments['count']}"


def value_in_context(
    arguments: Arguments, context: RecordContext, value: Any, more: int, *, place: bool
) -> str | int | None:
    """Return a value, as :func:`value_maker` does, and the context in it."""
    return _numbered(value_maker(arguments, more)(value), number_of_context(context, place=place))


def undated(arguments: Arguments, value: Any) -> bool:
    """Return whether a source finds no timestamp for a value; it does for each closer."""
    every = arguments["every"]
    return bool(every) and not closes(value) and weight(value) % every == 1


def own_time_ms(arguments: Arguments, value: Any, time_ms: int) -> int:
    """Return the own time of a record for which a source finds another one."""
    return time_ms + _apart_ms(arguments, value)


def extractor(arguments: Arguments) -> Callable[[ConsumedRecord], int | None]:
    """Return what finds the timestamp of a source's record."""

    def extract(record: ConsumedRecord) -> int | None:
        if undated(arguments, record.value):
            return -1
        return record.timestamp_ms - _apart_ms(arguments, record.value)

    return extract


def _apart_ms(arguments: Arguments, value: Any) -> int:
    apart_ms: int = 0 if closes(value) else arguments["unit"] * (weight(value) % arguments["modulus"])
    return apart_ms


def failing(arguments: Arguments) -> Callable[[Any], None]:
    """Return what fails for some values, but for no closer."""
    modulus, rest = arguments["modulus"], arguments["rest"]

    def check(value: Any) -> None:
        if not closes(value) and weight(value) % modulus == rest:
            raise ValueError(f"no {shown(value)}")

    return check


def transformer(arguments: Arguments) -> Callable[[Any, Any, int], str | int | None]:
    """Return what makes a table's value of key, value and count, and of a deleted key if ``gone`` says so."""
    value_of = value_maker(arguments["value"])
    gone, gives = arguments["gone"], arguments["value"]["gives"]

    def transform(key: Any, value: Any, count: int) -> str | int | None:
        if closes(key):
            return _closer(gives)
        if value is None:
            return None if not gone else "gone" if gives == "text" else 7
        return _numbered(value_of(value), count + weight(key))

    return transform


def _numbered(made: str | int | None, count: int) -> str | int | None:
    if made is None or closes(made) or count == 0:
        return made
    return _short(f"{made}#{count}") if isinstance(made, str) else (made + count) % _MODULUS


def more_headers(key: Any, value: Any, *, context: RecordContext) -> list[tuple[str, bytes | None]]:
    """Return a record's headers, and one that says what it weighs."""
    return [*context.headers, ("w", str(weight(value) % 10).encode())]


def later(arguments: Arguments) -> InContext[Any, Any, int]:
    """Return what dates a record later; a closer keeps its time."""
    modulus, unit = arguments["modulus"], arguments["unit"]

    def date(key: Any, value: Any, context: RecordContext) -> int:
        return context.timestamp_ms + (0 if closes(value) else unit * (weight(value) % modulus))

    return date


def partition(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """Return where a record lies, or None for where its key says."""
    return None if weight(value) % 2 else weight(value) % partitions


def entry_selector(arguments: Arguments) -> Callable[[Any, Any], tuple[str | None, str | int | None] | None]:
    """Return what makes group and value of a table's entry.

    An entry in no group has the group None; where every fifth is, None is the whole answer, which
    Java's types do not let a selector give.
    """
    key_of, value_of = key_maker(arguments["by"]), value_maker(arguments["value"])
    answers_none = arguments["by"]["null"] == 5

    def select(key: Any, value: Any) -> tuple[str | None, str | int | None] | None:
        group = key_of(key, value)
        return None if group is None and answers_none else (group, value_of(value))

    return select


def subtractor(arguments: Arguments) -> Callable[[Any, Any], Any]:
    """Return what takes a value out of what :func:`reducer` made."""
    gives, deletes = arguments["gives"], arguments["deletes"]
    return lambda so_far, value: _folded(gives, deletes, so_far, value, taken=True)


def copy_count(arguments: Arguments) -> Callable[[Any], int]:
    """Return what says how many results a value has: one for a closer."""
    least, modulus = arguments["least"], arguments["modulus"]
    return lambda value: 1 if closes(value) else least + weight(value) % modulus


def reducer(arguments: Arguments) -> Callable[[Any, Any], Any]:
    """Return what folds a value into one of its kind, or deletes it at every ``deletes``-th."""
    gives, deletes = arguments["gives"], arguments["deletes"]

    def reduce(so_far: Any, value: Any) -> Any:
        return _folded(gives, deletes, so_far, value)

    return reduce


def initializer(arguments: Arguments) -> Callable[[], Any]:
    """Return what makes the first aggregate."""
    first: str | int = "" if arguments["gives"] == "text" else 0
    return lambda: first


def aggregator(arguments: Arguments) -> Callable[[Any, Any, Any], Any]:
    """Return what folds a value into an aggregate, or deletes it at every ``deletes``-th."""
    gives, deletes = arguments["gives"], arguments["deletes"]
    return lambda key, value, so_far: _folded(gives, deletes, so_far, value)


def merger(arguments: Arguments) -> Callable[[Any, Any, Any], Any]:
    """Return what makes one aggregate of two, of which the first may be an initial one."""
    gives = arguments["gives"]

    def merge(key: Any, earlier: Any, later: Any) -> Any:
        if closes(later):
            return later
        return _folded(gives, 0, earlier, later)

    return merge


def joiner(arguments: Arguments) -> Callable[..., Any]:
    """Return what makes one value of two, of which one may be None, and of the key where the step says so."""
    gives = arguments["gives"]

    def join(left: Any, right: Any) -> Any:
        if closes(left) or closes(right):
            return _closer(gives)
        if gives == "text":
            return _short(f"{shown(left)}+{shown(right)}")
        return (weight(left) * 31 + weight(right)) % _MODULUS

    if not arguments.get("keyed"):
        return join
    return lambda left, right, key: _numbered(join(left, right), weight(key))


def _folded(gives: str, deletes: int, so_far: Any, value: Any, *, taken: bool = False) -> Any:
    if closes(value):
        return _closer(gives)
    if deletes and weight(value) % deletes == 0:
        return None
    if gives == "text":
        return _short(f"{shown(so_far)}{'-' if taken else ','}{shown(value)}")
    return (weight(so_far) * (37 if taken else 31) + weight(value)) % _MODULUS


def _closer(gives: str) -> str | int:
    return CLOSER if gives == "text" else CLOSING


def _short(text: str) -> str:
    return text[-_LONGEST:]


def _weight(by: str, key: Any, value: Any) -> int:
    found = 0
    if by != "value":
        found += weight(key)
    if by != "key":
        found += weight(value)
    return found
