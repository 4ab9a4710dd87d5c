"""What was measured, and the file that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from dev.benchmarks.calls.cases import CASES, Case
from dev.benchmarks.calls.memory import Curve

FILE = Path(__file__).parents[3] / "docs" / "internals" / "calls.json"


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one case.

    :param seconds: from its first call to its last result: committed, if it is this engine's, acknowledged by
        the broker, if it is a peer's.
    :param latency_ms: of a call on average, as measured in it.
    :param hottest_ms: the same for calls of the most frequent key; 0 where it was not measured.
    :param processor_seconds: that the system's processes had, from the request to the answer.
    :param peak_memory_mb: of the system's processes.
    :param others: which share of the machine's processor time programs had that are no part of the benchmark.
    """

    seconds: float
    latency_ms: float
    hottest_ms: float
    processor_seconds: float
    peak_memory_mb: float
    others: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A case with its rounds.

    :param hottest_records: how many of the records have the most frequent key.
    :param rounds: in their order; the same place in two cases is the same time, about.
    """

    case: Case
    records: int
    hottest_records: int
    rounds: Sequence[Round]

    def rates(self) -> list[float]:
        """Return records per second, by round."""
        return [self.records / each.seconds for each in self.rounds]

    def shares(self) -> list[float]:
        """Return, by round, which share it reached of as many calls as calls in flight can be, each as long
        as it was measured to be.
        """
        return [
            rate * each.latency_ms / 1_000 / self.case.in_flight
            for rate, each in zip(self.rates(), self.rounds, strict=True)
        ]

    def bounds(self) -> list[float]:
        """Return, by round, how many records per second there can be where calls of the most frequent key
        follow each other.
        """
        return [
            self.records / (self.hottest_records * each.hottest_ms / 1_000) if each.hottest_ms else 0.0
            for each in self.rounds
        ]

    @property
    def rate(self) -> float:
        """The median of the rounds."""
        return median(self.rates())

    @property
    def share(self) -> float:
        """The median of the rounds."""
        return median(self.shares())

    @property
    def latency_ms(self) -> float:
        """The median of the rounds."""
        return median(each.latency_ms for each in self.rounds)

    @property
    def processor_us(self) -> float:
        """Microseconds of processor time of a record: the median of the rounds."""
        return 1e6 * median(each.processor_seconds for each in self.rounds) / self.records

    @property
    def others(self) -> float:
        """The highest of the rounds."""
        return max(each.others for each in self.rounds)


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on one machine.

    :param measured: on which day (UTC), the last of it.
    :param revision: of the code, by git; with a plus if files had been changed.
    :param seconds: that a run of a case was to take, about.
    :param memory: of a task with calls, and of one without.
    :param left_out: what could not be measured, with the reason.
    """

    machine: str
    measured: str
    revision: str = ""
    seconds: float = 0.0
    cases: Sequence[Measured] = ()
    memory: Sequence[Curve] = ()
    left_out: Sequence[str] = ()

    def of(self, case: Case) -> Measured | None:
        """Return what was measured of a case."""
        return next((each for each in self.cases if each.case == case), None)


def ratio(ours: Measured, theirs: Measured) -> float:
    """Return how many times as fast ours was: the median over the rounds that both had."""
    pairs = zip(ours.rates(), theirs.rates(), strict=False)
    return median(own / other for own, other in pairs)


def read(file: Path = FILE) -> Results | None:
    """Read what was stored; None if nothing is."""
    return msgspec.json.decode(file.read_bytes(), type=Results) if file.exists() else None


def merged(old: Results | None, new: Results) -> Results:
    """Put what is new in the place of what is old; what another machine or revision measured is not kept."""
    if old is None or (old.machine, old.revision) != (new.machine, new.revision):
        return new
    cases = {each.case: each for each in (*old.cases, *new.cases)}
    memory = {(each.name, each.in_flight): each for each in (*old.memory, *new.memory)}
    return msgspec.structs.replace(
        new, cases=[cases[case] for case in CASES if case in cases], memory=[*memory.values()]
    )


def write(results: Results, file: Path = FILE) -> None:
    """Store."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
