"""``dev/bench --against REVISION --pairs N``: this engine beside an earlier one, in turn, on the same broker.

The earlier one runs from a checkout of its own, with the same libraries. Outputs are compared as with every
peer, so a faster engine that writes something else has no figure. Each pair is one run of either, one right
after the other, and gives a ratio of their times: what else the machine does falls on both. This engine is
slower when the median of the ratios is above 1 by more than both :data:`ALLOWED` and their spread.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.benchmarks.hosts import EARLIER_VARIABLE
from dev.benchmarks.results import Result

_ROOT = Path(__file__).parents[2]
#: By how much more than the earlier engine's time this one may take.
ALLOWED = 0.03


class RevisionError(Exception):
    """There is no such revision to compare with."""


@contextmanager
def earlier(revision: str, folder: Path, *, repository: Path = _ROOT) -> Iterator[None]:
    """Check a revision out for the hosts of the earlier engine.

    :param folder: where the checkout goes; it does not outlast the block.
    :param repository: whose revision; this one unless given.
    :raises RevisionError: git knows no such revision.
    """
    checkout = folder / "earlier"
    try:
        _git(repository, "worktree", "add", "--detach", str(checkout), revision)
    except subprocess.CalledProcessError as error:
        raise RevisionError(f"cannot check out {revision!r}: {error.stderr.strip()}") from None
    os.environ[EARLIER_VARIABLE] = str(checkout)
    try:
        yield
    finally:
        del os.environ[EARLIER_VARIABLE]
        _git(repository, "worktree", "remove", "--force", str(checkout))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The runs of a workload by two engines, pair by pair.

    :param seconds: of this engine and of the earlier one.
    """

    workload: str
    seconds: Sequence[tuple[float, float]]

    @property
    def ratios(self) -> list[float]:
        """This engine's time by the earlier one's, of each pair: below 1 this one is faster."""
        return [own / other for own, other in self.seconds]

    @property
    def median(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def spread(self) -> float:
        """The width of the middle half of the ratios; 0 where there is one pair."""
        if len(self.seconds) == 1:
            return 0.0
        lower, _, upper = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return upper - lower

    @property
    def slower(self) -> bool:
        """Whether this engine is slower, by more than is allowed and than the spread."""
        return self.median - 1 > max(ALLOWED, self.spread)

    def lines(self) -> Iterator[str]:
        """Yield a line for each pair, and one that sums them up."""
        for number, ((own, other), ratio) in enumerate(zip(self.seconds, self.ratios, strict=True), 1):
            yield f"{self.workload}: pair {number}: {own:.3f} s, the earlier one {other:.3f} s: {ratio:.3f}"
        yield (
            f"{self.workload}: this engine takes {self.median:.3f} of the earlier one's time, "
            f"spread {self.spread:.3f}, {min(self.ratios):.3f} to {max(self.ratios):.3f} "
            f"in {len(self.seconds)} pairs{' SLOWER' if self.slower else ''}"
        )


def pairs(measured: Sequence[Result]) -> list[Pairs]:
    """Return the pairs of each workload of which both engines have figures.

    :param measured: of each workload this engine's result, then the earlier one's.
    """
    by_workload: dict[str, list[Result]] = {}
    for result in measured:
        by_workload.setdefault(result.workload, []).append(result)
    return [
        Pairs(workload=name, seconds=list(zip(*(result.rounds for result in both), strict=True)))
        for name, both in by_workload.items()
        if len(both) == 2
    ]


def _git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True)
