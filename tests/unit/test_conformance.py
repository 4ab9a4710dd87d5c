"""The judge of bounded reads finds every kind of fault; the page of conformance is of the suite as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from dev.bounded_reads.page import PAGE, READERS
from tests.conformance.cases import CASES
from tests.conformance.playing import Reading, play
from tests.conformance.scene import Scene
from tests.conformance.steps import Arrange, Case, DeleteBefore, Read, Write, named

LOG = Case(
    name="log",
    shows="three records, an aborted one, two more while it is read",
    steps=(
        Write(items=named("a", "b", "c")),
        Write(items=named("void"), ending="abort"),
        Read(gives=("a", "b", "c"), during=(Write(items=named("d", "e")),)),
        Read(gives=("d", "e")),
    ),
)
LOSS = Case(
    name="loss",
    shows="an unread record is gone",
    steps=(
        Write(items=named("a", "b")),
        Read(gives=("a", "b")),
        Write(items=named("c", "d")),
        DeleteBefore(offset=3),
        Read(gives=("c", "d"), loses=True),
    ),
)


class LogInMemory(Scene):
    """One partition, no broker."""

    def __post_init__(self) -> None:
        self.end = 0

    def create(self) -> None:
        self.committed.clear()

    def stable_ends(self) -> dict[int, int]:
        return {0: self.end}

    def play(self, step: Arrange) -> None:
        if isinstance(step, Write):
            for item in step.items:
                self._names[item.key_bytes, item.value_bytes] = item.name
                if step.ending != "abort":
                    self.committed[item.name] = 0, self.end
                self.end += 1
            self.end += step.ending != "plain"


@dataclass(kw_only=True)
class Script:
    """A reader that does as it is told.

    :param gives: names by read.
    :param positions: what it leaves after each read; right ones unless given.
    """

    scene: Scene
    gives: Sequence[Sequence[str]]
    positions: Sequence[int] = ()
    errors: Mapping[int, str] = field(default_factory=dict)
    hangs: int | None = None
    _read: int = 0

    def read(self, during: Callable[[], None]) -> Reading:
        position = self.scene.stable_ends()
        during()
        number, self._read = self._read, self._read + 1
        if self.positions:
            position = {0: self.positions[number]}
        return Reading(
            records=[(name.encode(), name.encode()) for name in self.gives[number]],
            committed=position,
            error=self.errors.get(number),
            hung_seconds=9 if self.hangs == number else None,
        )


def faults(case: Case, gives: Sequence[str], **told: object) -> tuple[str, ...]:
    """What the judge says of a reader that gives these names, one text a read."""
    scene = LogInMemory(bootstrap="", topic="", case=case)
    names = [text.split() for text in gives]
    outcome = play(case, scene, lambda _: Script(scene=scene, gives=names, **told))  # type: ignore[arg-type]
    assert len(outcome.evidence) <= len(case.reads)
    return outcome.faults


@pytest.mark.parametrize(
    ("gives", "told", "expected"),
    [
        (["a b c", "d e"], {}, ()),
        (["a b", "c d e"], {}, ("stops early, the next read gives the rest",)),
        (["a b", "d e"], {}, ("misses 1 of 5 records for good",)),
        (["a b c d", "e"], {}, ("also gives what came after it began",)),
        (["a b c", "c d e"], {}, ("gives 1 records again in the next read",)),
        (["a b c c", "d e"], {}, ("gives 1 records twice",)),
        (["a b c void", "d e"], {}, ("gives records that were aborted",)),
        (["a c b", "d e"], {}, ("gives records of one partition out of order",)),
        (["a b c", "d e"], {"positions": [3, 7]}, ("leaves its position up to 2 short of the end",)),
        (["a b c", "d e"], {"positions": [6, 7]}, ("leaves its position past the end it had to read to",)),
        (["a b c"], {"errors": {0: "broken"}}, ("error: broken",)),
        (["a b c", "d"], {"hangs": 1}, ("does not end (stopped after 9 s)",)),
    ],
)
def test_fault_is_named_when_a_reader_has_it(
    gives: list[str], told: dict[str, object], expected: tuple[str, ...]
) -> None:
    assert faults(LOG, gives, **told) == expected


@pytest.mark.parametrize(
    ("gives", "errors", "expected"),
    [
        (["a b", ""], {1: "gone"}, ()),
        (["a b", "d"], {}, ("silently skips lost data",)),
        (["a b", ""], {}, ("silently skips lost data",)),
        (["a b", "c d"], {}, ()),
    ],
)
def test_loss_is_to_be_told_when_it_was_not_read_before(
    gives: list[str], errors: dict[int, str], expected: tuple[str, ...]
) -> None:
    assert faults(LOSS, gives, errors=errors) == expected


def test_cases_are_told_apart_when_they_are_named() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert all(case.reads for case in CASES)


def test_page_has_every_case_and_ours_are_right_when_it_was_written() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    start = next(number for number, row in enumerate(rows) if row[:2] == ["case", "the topic"])
    assert rows[start][2:] == list(READERS.values())
    of_cases = rows[start + 2 : start + 2 + len(CASES)]
    assert [row[:2] for row in of_cases] == [[case.name, case.shows] for case in CASES]
    assert {row[2] for row in of_cases} <= {"ok", "ok, says so"}
    assert len(rows[start + 2 + len(CASES)]) == 2, "no case more"
