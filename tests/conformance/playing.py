"""Plays a case with a reader, and judges what it gave.

The judge knows the case, where the records lie, and where the log was stable when a read began; it knows
nothing of readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from tests.conformance.scene import Pair
from tests.conformance.steps import Arrange, Case, Read

_SHOWN = 5


@dataclass(kw_only=True)
class Reading:
    """What one bounded read did.

    :param records: (key, value) of what it gave, in its order.
    :param committed: position that it left for the next one, by partition; None when the reader keeps none.
    :param error: text of the error that it ended with.
    :param hung_seconds: how long it was waited for in vain.
    """

    records: list[Pair] = field(default_factory=list)
    committed: Mapping[int, int] | None = None
    error: str | None = None
    hung_seconds: float | None = None


class Reader(Protocol):
    """Reads one topic, again and again, each time from where it left off."""

    def read(self, during: Callable[[], None]) -> Reading:
        """Read once.

        :param during: to be called once the reader has fixed its end and before it has read the records.
        """
        ...


class Stage(Protocol):
    """A topic on which steps are played."""

    committed: dict[str, tuple[int, int]]

    def create(self) -> None:
        """Create the topic."""

    def play(self, step: Arrange) -> None:
        """Do what a step says."""

    def stop_writing(self) -> None:
        """End :class:`~tests.conformance.steps.KeepWriting`."""

    def stable_ends(self) -> Mapping[int, int]:
        """Return the last stable offset of every partition."""

    def name_of(self, key: bytes | None, value: bytes | None) -> str:
        """Return what the case calls a record; text that tells it when it is none of the case."""

    def offset_of(self, name: str) -> tuple[int, int] | None:
        """Return the (partition, offset) of a committed record."""

    def is_undecided(self, name: str) -> bool:
        """Say whether a record belongs to a transaction that is open."""


_S = TypeVar("_S", bound=Stage)
#: Makes the reader of a case.
OpenReader = Callable[[_S], Reader]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a case.

    :param faults: what the reader did wrong, in a few words each; nothing when all is right.
    :param evidence: what each read gave and what was right.
    :param said: the error by which it told a loss.
    """

    faults: tuple[str, ...]
    evidence: tuple[str, ...]
    said: str | None = None


@dataclass(kw_only=True)
class _Played:
    """One read, as it was to be and as it was."""

    number: int
    read: Read
    gives: tuple[str, ...]
    reading: Reading
    names: list[str]
    ends: Mapping[int, int]

    @property
    def evidence(self) -> str:
        """What was right, and what it did."""
        read = self.reading
        said = "hung" if read.hung_seconds else f"failed ({read.error})" if read.error else ""
        right = f"{_some(self.gives)}{', or an error, since some are gone' if self.read.loses else ''}"
        text = f"read {self.number}: right is {right}; it gave {_some(self.names)}"
        if read.committed is not None and not (self.read.loses or said):
            text += f" and left {dict(sorted(read.committed.items()))} of ends {dict(self.ends)}"
        return f"{text} and {said}" if said else text


def play(case: Case, scene: _S, open_reader: OpenReader[_S]) -> Outcome:
    """Play a case and judge what the reader gave.

    :param scene: of the case; its topic does not exist yet.
    """
    played: list[_Played] = []
    scene.create()
    reader = open_reader(scene)
    for step in case.steps:
        if not isinstance(step, Read):
            scene.play(step)
            continue
        ends = scene.stable_ends()
        reading = reader.read(partial(_play_all, scene, step.during))
        scene.stop_writing()
        given = step.gives
        if given is None:
            due = [name for earlier in played for name in earlier.gives]
            given = tuple(name for name in scene.committed if name not in due)
        played.append(
            _Played(
                number=len(played) + 1,
                read=step,
                gives=given,
                reading=reading,
                names=[scene.name_of(*pair) for pair in reading.records],
                ends=ends,
            )
        )
        if reading.error is not None or reading.hung_seconds is not None:
            break
    faults = tuple(_faults(scene, played))
    return Outcome(
        faults=faults,
        evidence=tuple(read.evidence for read in played),
        said=None if faults else played[-1].reading.error,
    )


def _play_all(scene: Stage, steps: Sequence[Arrange]) -> None:
    for step in steps:
        scene.play(step)


def _faults(scene: Stage, played: Sequence[_Played]) -> list[str]:
    last = played[-1]
    if last.reading.hung_seconds is not None:
        return [f"does not end (stopped after {last.reading.hung_seconds:.0f} s)"]
    got = {name: read.number for read in reversed(played) for name in read.names}
    wrong = _never_to_be_given(scene, played)
    if last.read.loses:
        if last.reading.error is not None:
            return wrong
        if any(name not in got for name in _due_by_position(scene, last)):
            return [*wrong, "silently skips lost data"]
    elif last.reading.error is not None:
        return [*wrong, f"error: {last.reading.error}"]
    due = {name: read.number for read in played for name in read.gives}
    later = dict.fromkeys(scene.committed, len(played) + 1) | due
    if any(number < later.get(name, 0) for name, number in got.items()):
        wrong.append("also gives what came after it began")
    if any(got[name] > number for name, number in due.items() if name in got):
        wrong.append("stops early, the next read gives the rest")
    if missed := [name for name in due if name not in got]:
        wrong.append(f"misses {len(missed)} of {len(due)} records for good")
    return wrong + _disorder(scene, played) + ([] if wrong else _lag(played))


def _never_to_be_given(scene: Stage, played: Sequence[_Played]) -> list[str]:
    """Say what no read may give at all, or not once more."""
    wrong: list[str] = []
    times = Counter(name for read in played for name in read.names)
    due = {name for read in played for name in read.gives}
    for name in times:
        if name.startswith("unknown"):
            wrong.append(f"gives an {name}")
        elif name not in due and name not in scene.committed:
            kind = "of an open transaction" if scene.is_undecided(name) else "that were aborted"
            wrong.append(f"gives records {kind}")
    doubled = [name for name, count in times.items() if count > 1]
    if doubled:
        once_each = all(len(read.names) == len(set(read.names)) for read in played)
        wrong.append(f"gives {len(doubled)} records {'again in the next read' if once_each else 'twice'}")
    return list(dict.fromkeys(wrong))


def _due_by_position(scene: Stage, read: _Played) -> list[str]:
    """Return what a read had to give, and what lies before anything that it gave: nothing may be left out."""
    places = [place for name in read.names if (place := scene.offset_of(name)) is not None]
    passed = [
        name
        for name, (partition, offset) in scene.committed.items()
        if any(partition == reached and offset < to for reached, to in places)
    ]
    return [*read.gives, *passed]


def _disorder(scene: Stage, played: Sequence[_Played]) -> list[str]:
    for read in played:
        latest: dict[int, int] = {}
        for name in read.names:
            place = scene.offset_of(name)
            if place is not None:
                if latest.get(place[0], -1) > place[1]:
                    return ["gives records of one partition out of order"]
                latest[place[0]] = place[1]
    return []


def _lag(played: Sequence[_Played]) -> list[str]:
    lags = [
        end - read.reading.committed.get(partition, 0)
        for read in played
        if read.reading.committed is not None and not read.read.loses
        for partition, end in read.ends.items()
    ]
    if any(lag < 0 for lag in lags):
        return ["leaves its position past the end it had to read to"]
    return [f"leaves its position up to {max(lags)} short of the end"] if any(lags) else []


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) or "nothing"
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
