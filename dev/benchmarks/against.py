"""``dev/bench --against REVISION``: this engine beside an earlier one, in turn, on the same broker.

The earlier one runs from a checkout of its own, with the same libraries. Outputs are compared as with every
peer, so a faster engine that writes something else has no figure.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dev.benchmarks.hosts import EARLIER_VARIABLE
from dev.benchmarks.results import Result

_ROOT = Path(__file__).parents[2]


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


def ratios(ours: Result, theirs: Result) -> str:
    """Say how the times of two engines compare, round by round: below 1, this one is faster."""
    by_round = [own / other for own, other in zip(ours.rounds, theirs.rounds, strict=False)]
    return (
        f"{ours.workload}: this engine takes {statistics.median(by_round):.3f} of the earlier one's time "
        f"({min(by_round):.3f} to {max(by_round):.3f} in {len(by_round)} rounds)"
    )


def lines(measured: Sequence[Result]) -> list[str]:
    """Return a line for each workload of which both engines have figures: ours first, then the earlier."""
    by_workload: dict[str, list[Result]] = {}
    for result in measured:
        by_workload.setdefault(result.workload, []).append(result)
    return [ratios(*pair) for pair in by_workload.values() if len(pair) == 2]


def _git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True)
