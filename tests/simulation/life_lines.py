"""Lines of an application whose code changes in the course of its life, and what each must have given.

A line is one operator between a topic that it reads and one of its own that it writes. Every record has a
number, and lists, windows and copies hold numbers, so that a record that is lost, doubled or out of order
shows in the value. What is given on is edited in place by the function below, which must change no store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from airflow_kstreams.streams import KStream, KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.graph.store_specs import Storage, StoreSpec, VersionedStoreSpec
from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.expectations import ViolationError
from tests.simulation.sometimes import sometimes

APP = "life"
LETTERS = f"{APP}-dead-letter"
#: Read by lines with state; a copy of :data:`FAILING` refuses some records, and a pattern reads the rest.
TOPICS = ("t", "u", "w")
FAILING = "c"
PATTERN = r"p-\d+"
SIZE_MS = 100
#: Sizes that windows may have.
SIZES_MS = (SIZE_MS, 50, 250)
#: Two lines go through a topic of this name, of which a version has one; both refuse some records.
SHARED = "shared"
#: Topics that these lines read.
BRANCHED = ("t", "u")
#: Records dated before this come from a clock that was never set.
OLD_MS = 10_000
_EDITED = "edited"
Kind = str
KEYS = "abcd"
KINDS: tuple[Kind, ...] = ("list", "list", "rekeyed", "window", "window", "history")
#: How far back a table with versions may be asked.
HISTORIES_MS = (0, 200, 60_000)


class Span(NamedTuple):
    """What the time of a task that reads a partition is at least and at most; -1 for none."""

    low: int = -1
    high: int = -1

    def after(self, met: Iterable[Met], *, partly: bool) -> Span:
        """Return it after records.

        :param partly: whether a run may have to come back to them: only where it has read all that it reads,
            it goes by the newest of them.
        """
        newest_ms = max((one.time_ms for one in met), default=-1)
        return Span(self.low if partly else max(self.low, newest_ms), max(self.high, newest_ms))


class Met(NamedTuple):
    """A record of an input."""

    partition: TopicPartition
    offset: int
    key: str
    number: int
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line.

    :param number: which it is, in every version; it writes ``out-<number>``.
    :param steps: how many steps without state lie above the operator.
    :param store: the name of its store; empty for none.
    :param size_ms: size of its windows, if it has any.
    :param grace_ms: likewise, their grace.
    :param history_ms: how far back its table can be asked, if it has versions.
    """

    number: int
    kind: Kind
    topic: str
    steps: int = 0
    store: str = ""
    size_ms: int = SIZE_MS
    grace_ms: int = 0
    history_ms: int = 60_000

    @property
    def out(self) -> str:
        """The topic that gets its results."""
        return f"out-{self.number}"

    def reads(self, topic: str) -> bool:
        """Whether it reads a topic."""
        return topic.startswith("p-") if self.kind == "pattern" else topic == self.topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of the code.

    :param mended: whether the copy of :data:`FAILING`, and branched lines, take every record.
    """

    lines: tuple[Line, ...]
    mended: bool = False

    def topology(self, storage: Storage) -> Topology:
        """Build it, or return what was built of it before."""
        return _topology(self, storage)

    def build(self, storage: Storage) -> Topology:
        """Build it."""
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        for line in self.lines:
            patterned = line.kind == "pattern"
            stream = builder.stream(pattern=PATTERN) if patterned else builder.stream(line.topic)
            for _ in range(line.steps):
                stream = stream.peek(lambda key, value: None)
            self._results(line, stream, storage).send_to(line.out, value_serde=serdes.json())
        return builder.build()

    def _results(self, line: Line, stream: KStream, storage: Storage) -> KStream:
        if line.kind == "pattern":
            return stream
        if line.kind == "copy":
            return stream.map_values(_taken if self.mended else _refused)
        if line.kind == "branched":
            between = stream.select_key(lambda key, value: rekeyed(value["n"])).repartition(2, name=SHARED)
            return between.map_values(_taken if self.mended else _refused)
        if line.kind == "history":
            versions = VersionedStoreSpec(
                name=line.store or f"{line.topic}-to-table",
                key_serde=serdes.string(),
                value_serde=serdes.json(),
                history_ms=line.history_ms,
            )
            return stream.to_table(store=versions).to_stream()
        if line.kind == "rekeyed":
            grouped = stream.group_by(lambda key, value: rekeyed(value["n"]))
        else:
            grouped = stream.group_by_key()
        if line.kind == "window":
            windowed = grouped.windowed_by(TumblingWindow(size_ms=line.size_ms, grace_ms=line.grace_ms))
            table = windowed.aggregate(list, _appended, store=line.store or None)
            closed = table.suppress().to_stream().map_values(_edited)
            return closed.map(lambda window, numbers: (window.key, [window.start_ms, *numbers]))
        if line.store or storage == "rocksdb":
            # A spec names its store; with the name that it would have it is the same one.
            name, text = line.store or f"{line.topic}-aggregate", serdes.string()
            spec = StoreSpec(name=name, key_serde=text, value_serde=serdes.json(), storage=storage)
            return grouped.aggregate(list, _appended, store=spec).to_stream().map_values(_edited)
        return grouped.aggregate(list, _appended).to_stream().map_values(_edited)


@cache
def _topology(version: Version, storage: Storage) -> Topology:
    return version.build(storage)


def rekeyed(number: int) -> str:
    """Return another key of a record, one that others have as their own."""
    return KEYS[number % 3]


def fails(number: int) -> bool:
    """Whether the copy refuses a record."""
    return number % 4 == 0


def _refused(value: dict[str, int]) -> dict[str, int]:
    if fails(value["n"]):
        raise ValueError("not this one")
    return value


def _taken(value: dict[str, int]) -> dict[str, int]:
    return value


def _appended(key: str, value: dict[str, int], so_far: list[Any]) -> list[Any]:
    so_far.append(value["n"])
    return so_far


def _edited(numbers: list[Any]) -> list[Any]:
    numbers.append(_EDITED)
    return numbers


def _unedited(numbers: list[Any], line: Line) -> list[int]:
    """Return what a store gave, without what the function below has added to it, just now and once."""
    if numbers.count(_EDITED) != 1 or numbers[-1] != _EDITED:
        raise ViolationError(f"{line.out}: a change in place reached the store: {numbers}")
    return numbers[:-1]


@dataclass(slots=True)
class Book:
    """What a line has been given, by the oracle's own account.

    :ivar lists: numbers by key.
    :ivar windows: numbers by key and start of windows, without those that came late.
    :ivar unsure: numbers of records that are late or not: the time that decides is not certain. A table with
        versions may leave those that are out of order unsaid.
    :ivar partitions: the partition of each key.
    :ivar closed: by partition, up to which time windows that ended are closed.
    :ivar copied: numbers that must have come out.
    :ivar refused: numbers that must have become letters.
    :ivar branched: numbers that must have come out or become letters.
    """

    lists: dict[str, list[int]] = field(default_factory=dict)
    windows: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)
    partitions: dict[str, int] = field(default_factory=dict)
    closed: dict[int, Span] = field(default_factory=dict)
    copied: Counter[int] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    branched: Counter[int] = field(default_factory=Counter)

    def take(self, line: Line, met: Iterable[Met], *, mended: bool, time: Span) -> None:
        """Take records of a partition, in their order.

        :param time: the newest time in the partition before them.
        """
        for one in met:
            if line.kind in ("copy", "pattern"):
                refused = line.kind == "copy" and fails(one.number) and not mended
                (self.refused if refused else self.copied)[one.number] += 1
            elif line.kind == "history":
                self.copied[one.number] += 1
                if one.time_ms < time.high:
                    self.unsure.add(one.number)
                time = time.after([one], partly=True)
            elif line.kind == "branched":
                self.branched[one.number] += 1
            elif line.kind == "window":
                self._take_in_window(line, one, time)
                time = time.after([one], partly=True)
            else:
                key = rekeyed(one.number) if line.kind == "rekeyed" else one.key
                self.lists.setdefault(key, []).append(one.number)

    def _take_in_window(self, line: Line, one: Met, time: Span) -> None:
        number = one.partition.partition
        start = one.time_ms // line.size_ms * line.size_ms
        end = start + line.size_ms
        self.close(line, number, time)
        closed = self.closed[number]
        self.partitions[one.key] = number
        if end > closed.low:
            self.windows.setdefault((one.key, start), []).append(one.number)
            if end <= closed.high:
                self.unsure.add(one.number)
        else:
            sometimes("a record came late for its window")

    def close(self, line: Line, number: int, time: Span) -> None:
        """Close what time has passed in a partition; what was closed under less grace stays so."""
        before = self.closed.get(number, Span())
        low, high = time.low - line.grace_ms, time.high - line.grace_ms
        self.closed[number] = Span(max(before.low, low), max(before.high, high))


@dataclass(slots=True)
class Told:
    """What a line has given so far.

    :ivar lists: the last list of each key.
    :ivar windows: windows that were given.
    :ivar copied: numbers.
    :ivar letters: numbers in dead letters.
    """

    lists: dict[str, list[int]] = field(default_factory=dict)
    windows: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    copied: Counter[int] = field(default_factory=Counter)
    letters: Counter[int] = field(default_factory=Counter)

    def hear(self, line: Line, given: Sequence[tuple[str, Any]], book: Book) -> None:
        """Take results, in their order.

        :param book: with all that may have been processed.
        :raises ViolationError: one must not have come.
        """
        for key, value in given:
            if line.kind in ("copy", "pattern", "history"):
                self.copied[value["n"]] += 1
                if self.copied[value["n"]] > book.copied[value["n"]]:
                    raise ViolationError(f"{line.out}: {value['n']} came {self.copied[value['n']]} times")
            elif line.kind == "branched":
                self.copied[value["n"]] += 1
                self.refuse_too_many(line, value["n"], book)
            elif line.kind == "window":
                self._hear_window(line, key, value, book)
            else:
                self._hear_list(line, key, _unedited(value, line), book)

    def refuse_too_many(self, line: Line, number: int, book: Book) -> None:
        """Refuse a number that a branched line has given, or made a letter of, and must not have.

        :raises ViolationError: it came too often.
        """
        came = self.copied[number] + self.letters[number]
        if came > book.branched[number]:
            raise ViolationError(f"{line.out}: {number} came {came} times, expected {book.branched[number]}")

    def _hear_list(self, line: Line, key: str, numbers: list[int], book: Book) -> None:
        before, all_ = self.lists.get(key, []), book.lists.get(key, [])
        ordered = line.kind == "list"
        grew = numbers[: len(before)] == before and len(numbers) > len(before)
        known = numbers == all_[: len(numbers)] if ordered else not Counter(numbers) - Counter(all_)
        if not (grew and known):
            raise ViolationError(f"{line.out}: {key} became {numbers} after {before}, of {all_}")
        self.lists[key] = numbers

    def _hear_window(self, line: Line, key: str, value: list[Any], book: Book) -> None:
        start, numbers = value[0], _unedited(value[1:], line)
        if start < OLD_MS:
            sometimes("a record of 1970 had a window of its own")
        if (key, start) in self.windows:
            was = self.windows[key, start]
            raise ViolationError(f"{line.out}: window {start} of {key} was {was}, and is {numbers}")
        held = book.windows.get((key, start), [])
        sure = [number for number in held if number not in book.unsure]
        known = [number for number in held if number in numbers]
        if numbers != known or not {*numbers} >= {*sure}:
            raise ViolationError(f"{line.out}: window {start} of {key} holds {numbers}, expected {held}")
        if start + line.size_ms > book.closed[book.partitions[key]].high:
            raise ViolationError(f"{line.out}: window {start} of {key} was given while it was open")
        self.windows[key, start] = numbers

    def refuse_missing(self, line: Line, book: Book, moved: Collection[int]) -> None:
        """Refuse what must have come and has not, after a run that read everything.

        :param moved: partitions in which that run has read records.
        :raises ViolationError: something is missing.
        """
        if line.kind in ("copy", "pattern"):
            missing: object = book.copied - self.copied
        elif line.kind == "history":
            missing = {n for n in book.copied - self.copied if n not in book.unsure}
        elif line.kind == "window":
            missing = {
                at: numbers
                for at, numbers in book.windows.items()
                if at not in self.windows
                and not book.unsure.issuperset(numbers)
                and book.partitions[at[0]] in moved
                and at[1] + line.size_ms <= book.closed[book.partitions[at[0]]].low
            }
        elif line.kind == "branched":
            missing = book.branched - self.copied - self.letters
        else:
            missing = {
                key: numbers
                for key, numbers in book.lists.items()
                if len(self.lists.get(key, ())) != len(numbers)
            }
        if missing:
            raise ViolationError(f"{line.out} lacks {missing}")


def decoded(value: bytes | None) -> Any:
    """Read a result."""
    return json.loads(value or b"null")
