"""Figures, medians and ratios, and the file that keeps them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

FILE = Path(__file__).parents[2] / "docs" / "internals" / "benchmarks.json"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one system.

    :param seconds: wall time.
    :param processor_seconds: of all the system's processes, user and system.
    :param details: whatever else was measured, by name.
    """

    seconds: float
    peak_memory_mb: float
    processor_seconds: float
    details: Mapping[str, float] = {}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``docs/internals/benchmarks.json``.

    :param records_per_second: input records by the median wall time.
    :param wall_seconds: median of the rounds.
    :param peak_memory_mb: highest of the rounds, of all the system's processes.
    :param records: input records of a run.
    :param rounds: wall seconds of each.
    :param processor_rounds: processor seconds of each, of all the system's processes, user and system; empty
        of a line that was measured before they were counted.
    :param processor_seconds_per_million: their median, by a million input records; 0 without records.
    :param ours_ratio: how many times as fast this engine was, exactly once, in the same round: median of the
        rounds.
    :param details: medians of whatever else was measured.
    :param machine: where.
    :param measured: on which day (UTC).
    """

    workload: str
    system: str
    guarantee: str
    records_per_second: float
    wall_seconds: float
    peak_memory_mb: float
    records: int
    rounds: Sequence[float]
    ours_ratio: float
    processor_rounds: Sequence[float] = ()
    processor_seconds_per_million: float = 0.0
    details: Mapping[str, float] = {}
    machine: str = ""
    measured: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it this line."""
        return self.workload, self.system, self.guarantee


def result_of(
    place: tuple[str, str, str],
    figures: Sequence[Figure],
    ours: Sequence[Figure],
    *,
    records: int,
    machine: str,
    measured: str,
) -> Result:
    """Sum up the rounds of one system.

    :param place: workload, system, guarantee.
    :param figures: by round; a system may have had fewer rounds than ours.
    :param ours: this engine's own, exactly once, by round.
    """
    wall = statistics.median(figure.seconds for figure in figures)
    processor_seconds = statistics.median(figure.processor_seconds for figure in figures)
    names = dict.fromkeys(name for figure in figures for name in figure.details)
    return Result(
        workload=place[0],
        system=place[1],
        guarantee=place[2],
        records_per_second=round(records / wall, 1),
        wall_seconds=round(wall, 3),
        peak_memory_mb=round(max(figure.peak_memory_mb for figure in figures), 1),
        records=records,
        rounds=[round(figure.seconds, 3) for figure in figures],
        ours_ratio=round(ratio([figure.seconds for figure in figures], [own.seconds for own in ours]), 3),
        processor_rounds=[round(figure.processor_seconds, 2) for figure in figures],
        processor_seconds_per_million=round(processor_seconds * 1e6 / records, 3) if records else 0.0,
        details={
            name: round(statistics.median(figure.details[name] for figure in figures), 3) for name in names
        },
        machine=machine,
        measured=measured,
    )


def ratios(seconds: Sequence[float], ours: Sequence[float]) -> list[float]:
    """Return how many times as fast ours was, in each of the rounds that both had."""
    return [theirs / own for theirs, own in zip(seconds, ours, strict=False)]


def ratio(seconds: Sequence[float], ours: Sequence[float]) -> float:
    """Return how many times as fast ours was: the median over the rounds that both had.

    :raises ValueError: they had none in common.
    """
    return statistics.median(ratios(seconds, ours))


def read(file: Path = FILE) -> list[Result]:
    """Read what was measured before."""
    return msgspec.json.decode(file.read_bytes(), type=list[Result]) if file.exists() else []


def merged(old: Iterable[Result], new: Sequence[Result], order: Sequence[str]) -> list[Result]:
    """Put new results in the place of all old ones of the same workloads.

    :param order: names of the workloads, as they shall stand.
    """
    measured = {result.workload for result in new}
    kept = [result for result in old if result.workload in order and result.workload not in measured]
    return sorted([*kept, *new], key=lambda result: order.index(result.workload))


def write(results: Sequence[Result], file: Path = FILE) -> None:
    """Write the file."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
