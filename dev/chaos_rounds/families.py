"""The two families of rounds: those of topics and those of tables. A scene's rounds are of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, islice
from pathlib import Path
from typing import Protocol

from dev.chaos_rounds.live_round import Stage
from dev.chaos_rounds.plan import PROXIED, Fault, plan_of
from dev.chaos_rounds.session import Round
from dev.chaos_rounds.strikes import strike_at_point
from dev.chaos_rounds.tables.plan import TableFault, place_of, table_fault_of
from dev.chaos_rounds.tables.rounds import TableRounds
from dev.chaos_rounds.topics import ECHO, MOVED, RUNNING

_APPLICATION = Path(__file__).parent / "application.py"
#: After so many rounds a fresh broker is taken, so that the verifier, which reads all, stays quick.
_ROUNDS_PER_SCENE = 15


class Rounds(Protocol):
    """The rounds of one scene."""

    def open_stage(self, folder: Path) -> AbstractContextManager[Stage]:
        """Open what they need besides a broker, in a folder."""
        ...

    def round_of(self, number: int, draw: int) -> Round:
        """Draw a round."""
        ...


class TopicRounds:
    """Rounds of the application that writes topics."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    @contextmanager
    def open_stage(self, folder: Path) -> Iterator[Stage]:
        """Return what they share; they need nothing besides a broker."""
        yield Stage(application=_APPLICATION, work=(ECHO, MOVED, RUNNING), verifier=("verifier",))

    def round_of(self, number: int, draw: int) -> Round:
        """Draw a round."""
        plan = plan_of(self._seed, number, draw)
        return Round(
            plan=plan,
            point=plan.point,
            manner=plan.manner,
            strike=strike_at_point,
            proxied=plan.fault in PROXIED,
            on_cluster=plan.fault is Fault.EXECUTOR_KILLED,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Rounds that can follow each other.

    :param fault_of: fault of a seed's round.
    :param scenes: parts numbers of a seed's rounds into scenes.
    """

    faults: type[StrEnum]
    fault_of: Callable[[int, int], StrEnum]
    scenes: Callable[[int, Sequence[int]], Iterator[tuple[Rounds, Sequence[int]]]]

    def numbers(self, seed: int, first: int, rounds: int, faults: frozenset[str]) -> list[int]:
        """Return the numbers of the next rounds whose fault is asked for."""
        return list(islice((n for n in count(first) if self.fault_of(seed, n) in faults), rounds))


def _topic_scenes(seed: int, numbers: Sequence[int]) -> Iterator[tuple[Rounds, Sequence[int]]]:
    for first in range(0, len(numbers), _ROUNDS_PER_SCENE):
        yield TopicRounds(seed), numbers[first : first + _ROUNDS_PER_SCENE]


def _table_scenes(seed: int, numbers: Sequence[int]) -> Iterator[tuple[Rounds, Sequence[int]]]:
    for first in range(0, len(numbers), _ROUNDS_PER_SCENE):
        part = numbers[first : first + _ROUNDS_PER_SCENE]
        for place in sorted({place_of(seed, number) for number in part}):
            yield TableRounds(seed, place), [n for n in part if place_of(seed, n) == place]


TOPICS = Family(faults=Fault, fault_of=lambda seed, number: plan_of(seed, number).fault, scenes=_topic_scenes)
TABLES = Family(faults=TableFault, fault_of=table_fault_of, scenes=_table_scenes)


def chosen(patterns: Sequence[str]) -> tuple[Family, frozenset[str]]:
    """Return the family and the faults that patterns ask for: whole names, or parts.

    No pattern asks for all faults of topics.

    :raises ValueError: no fault matches a pattern, or those that do are of both families.
    """
    if not patterns:
        return TOPICS, frozenset(Fault)
    names = [name for family in (TOPICS, TABLES) for name in family.faults]
    found: set[str] = set()
    for pattern in patterns:
        matching = [name for name in names if name == pattern] or [name for name in names if pattern in name]
        if not matching:
            raise ValueError(f"no fault has {pattern!r} in its name; there are: {', '.join(names)}")
        found.update(matching)
    families = [family for family in (TOPICS, TABLES) if found & set(family.faults)]
    if len(families) > 1:
        raise ValueError(
            f"rounds of topics and of tables share no scene; these are both: {', '.join(sorted(found))}"
        )
    return families[0], frozenset(found)
