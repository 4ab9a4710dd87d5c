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
from airflow_kstreams.streams.graph.store_specs import Storage, StoreSpec
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
#: Records dated before this come from a clock that was never set.
OLD_MS = 10_000
_EDITED = "edited"
Kind = str
KEYS = "abcd"
KINDS: tuple[Kind, ...] = ("list", "list", "rekeyed", "window", "window")


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
    """

    number: int
    kind: Kind
    topic: str
    steps: int = 0
    store: str = ""
    grace_ms: int = 0

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

    :param mended: whether the copy of :data:`FAILING` takes every record.
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
        if line.kind == "rekeyed":
            grouped = stream.group_by(lambda key, value: rekeyed(value["n"]))
        else:
            grouped = stream.group_by_key()
        if line.kind == "window":
            windowed = grouped.windowed_by(TumblingWindow(size_ms=SIZE_MS, grace_ms=line.grace_ms))
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
    :ivar windows: numbers by key and start of windows that are not given yet.
    :ivar times: the newest time in each partition, of records with a true date.
    :ivar old: numbers whose records are dated 1970, which come alone, or are late.
    :ivar copied: numbers that must have come out.
    :ivar refused: numbers that must have become letters.
    """

    lists: dict[str, list[int]] = field(default_factory=dict)
    windows: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    old: set[int] = field(default_factory=set)
    copied: Counter[int] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)

    def take(self, line: Line, met: Iterable[Met], *, mended: bool) -> None:
        """Take records, in the order of each partition."""
        for one in met:
            if line.kind in ("copy", "pattern"):
                refused = line.kind == "copy" and fails(one.number) and not mended
                (self.refused if refused else self.copied)[one.number] += 1
            elif line.kind == "window":
                self._take_in_window(one)
            else:
                key = rekeyed(one.number) if line.kind == "rekeyed" else one.key
                self.lists.setdefault(key, []).append(one.number)

    def _take_in_window(self, one: Met) -> None:
        if one.time_ms < OLD_MS:
            self.old.add(one.number)
            return
        number = one.partition.partition
        start = one.time_ms // SIZE_MS * SIZE_MS
        self.windows.setdefault((one.key, start), []).append(one.number)
        self.partitions[one.key] = number
        self.times[number] = max(one.time_ms, self.times.get(number, 0))


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
    old: set[int] = field(default_factory=set)
    copied: Counter[int] = field(default_factory=Counter)
    letters: Counter[int] = field(default_factory=Counter)

    def hear(self, line: Line, given: Sequence[tuple[str, Any]], book: Book) -> None:
        """Take results, in their order.

        :param book: with all that may have been processed.
        :raises ViolationError: one must not have come.
        """
        for key, value in given:
            if line.kind in ("copy", "pattern"):
                self.copied[value["n"]] += 1
                if self.copied[value["n"]] > book.copied[value["n"]]:
                    raise ViolationError(f"{line.out}: {value['n']} came {self.copied[value['n']]} times")
            elif line.kind == "window":
                self._hear_window(line, key, value, book)
            else:
                self._hear_list(line, key, _unedited(value, line), book)

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
            if self.old & {*numbers} or not book.old >= {*numbers}:
                raise ViolationError(f"{line.out}: window {start} of {key} holds {numbers}")
            self.old.update(numbers)
            sometimes("a record of 1970 had a window of its own")
            return
        if (key, start) in self.windows:
            was = self.windows[key, start]
            raise ViolationError(f"{line.out}: window {start} of {key} was {was}, and is {numbers}")
        if numbers != book.windows.get((key, start)):
            held = book.windows.get((key, start))
            raise ViolationError(f"{line.out}: window {start} of {key} holds {numbers}, expected {held}")
        if start + SIZE_MS > book.times[book.partitions[key]]:
            raise ViolationError(f"{line.out}: window {start} of {key} was given while it was open")
        self.windows[key, start] = numbers

    def refuse_missing(self, line: Line, book: Book, moved: Collection[int]) -> None:
        """Refuse what must have come and has not, after a run that read everything.

        :param moved: partitions in which that run has read records with true dates, and none of 1970.
        :raises ViolationError: something is missing.
        """
        if line.kind in ("copy", "pattern"):
            missing: object = book.copied - self.copied
        elif line.kind == "window":
            missing = {
                at: numbers
                for at, numbers in book.windows.items()
                if at not in self.windows
                and book.partitions[at[0]] in moved
                and at[1] + SIZE_MS + line.grace_ms <= book.times[book.partitions[at[0]]]
            }
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
