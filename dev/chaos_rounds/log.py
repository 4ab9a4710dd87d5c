"""The log of rounds: one JSON line each, from which a summary is made and a session is taken up again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from dev.chaos_rounds.plan import Fault
from dev.chaos_rounds.tables.plan import TableFault


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one round.

    :param round: its number.
    :param draw: how often its fault had missed before.
    :param fault: which; :class:`~dev.chaos_rounds.plan.Fault` or
        :class:`~dev.chaos_rounds.tables.plan.TableFault`.
    :param point: when it came, in words.
    :param manner: how it came, in words.
    :param hit: whether it hit between begin and finish; else the round does not count.
    :param attempts: drivers that were started.
    :param errors: what drivers ended with that failed.
    :param seconds: of the whole round, the verifier included.
    :param records: input records below the run's stop offsets, of all runs so far.
    :param violations: what must not have happened.
    """

    seed: int
    round: int
    draw: int
    fault: str
    point: str
    manner: str = ""
    hit: bool = False
    attempts: int = 0
    errors: tuple[str, ...] = ()
    seconds: float = 0.0
    records: int = 0
    violations: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """In one word."""
        if self.violations:
            return "violated"
        return "ok" if self.hit else "missed"


def with_violations(outcome: Outcome, violations: Sequence[str]) -> Outcome:
    """Return a round to which more was found."""
    return msgspec.structs.replace(outcome, violations=(*outcome.violations, *violations))


def append(path: Path, outcome: Outcome) -> None:
    """Add a round to a log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(outcome) + b"\n")


def read(path: Path) -> list[Outcome]:
    """Read a log; one that is not there is empty."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Outcome) for line in path.read_bytes().splitlines() if line]


def merged(*logs: Iterable[Outcome]) -> list[Outcome]:
    """Return the rounds that count or violated, of logs, each once: those of topics first, by seed."""
    of_tables = frozenset(TableFault)
    kept = {
        (one.fault in of_tables, one.seed, one.round, one.draw): one
        for log in logs
        for one in log
        if one.hit or one.violations
    }
    return [kept[place] for place in sorted(kept)]


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the summary as a table."""
    by_fault: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_fault[one.fault].append(one)
    lines = [
        "| fault | rounds | drivers started | claimed or retried | violations |",
        "| --- | --: | --: | --: | --: |",
        *(_line(fault.value, by_fault[fault.value]) for fault in (*Fault, *TableFault)),
        _line("**all**", outcomes),
    ]
    return "\n".join(lines)


def _line(name: str, outcomes: Sequence[Outcome]) -> str:
    attempts = sum(one.attempts for one in outcomes)
    again = sum(one.attempts > 1 for one in outcomes)
    violated = sum(bool(one.violations) for one in outcomes)
    counted = sum(one.hit for one in outcomes)
    return f"| {name} | {counted} | {attempts} | {again} | {violated} |"
