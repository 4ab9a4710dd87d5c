"""``dev/chaos``: real processes, a seeded fault a round, verified apart (``docs/internals/chaos.md``)."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dev.chaos_rounds import log, publish
from dev.chaos_rounds.families import TABLES, TOPICS, Family, chosen
from dev.chaos_rounds.log import Outcome
from dev.chaos_rounds.session import Scene, play_round

_ROOT = Path(__file__).parents[2]
_LOG = _ROOT / "build" / "chaos" / "rounds.jsonl"
_SEED = 20261121


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 1 when anything was violated."""
    parser = _parser()
    options = parser.parse_args(arguments)
    console = Console()
    path = Path(options.log)
    if options.publish:
        console.print(publish.publish(path), markup=False)
        return 0
    if options.summary:
        print(log.markdown(log.merged(log.read(path))))
        return 0
    try:
        family, faults = chosen(options.faults or ())
    except ValueError as error:
        parser.error(str(error))
    numbers = family.numbers(options.seed, options.from_round, options.rounds or len(faults), faults)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        outcomes = _rounds(console, options.seed, family, numbers, path)
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started has been stopped")
        return 130
    console.print(_table(outcomes))
    again_with = " --faults table" if family is TABLES else ""
    violated = [one for one in outcomes if one.violations]
    for one in violated:
        again = f"dev/chaos --seed {one.seed} --from-round {one.round} --rounds 1{again_with}"
        console.print(f"round {one.round} ({one.fault}), again: {again}", style="red", markup=False)
        for text in one.violations:
            console.print(f"  {text}", markup=False)
    return 1 if violated else 0


def _rounds(console: Console, seed: int, family: Family, rounds: Sequence[int], path: Path) -> list[Outcome]:
    """Play the rounds, scene by scene, up to the first violation."""
    outcomes: list[Outcome] = []
    console.print(f"seed {seed}, rounds {rounds[0]} to {rounds[-1]}, log {path}", highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("rounds", total=len(rounds))

        def tell(outcome: Outcome) -> None:
            outcomes.append(outcome)
            log.append(path, outcome)
            progress.console.print(_line(outcome), markup=False, highlight=False)

        for played, numbers in family.scenes(seed, rounds):
            folder = Path(tempfile.mkdtemp(prefix="kstreams-chaos-"))
            try:
                with Scene(folder, played.open_stage) as scene:
                    for number in numbers:
                        play_round(scene, played.round_of, number, tell=tell)
                        progress.advance(bar)
                        if outcomes[-1].violations:
                            break
                    else:
                        outcomes[-1] = _with_hanging(scene, outcomes[-1], path)
            except KeyboardInterrupt:
                shutil.rmtree(folder)
                raise
            if outcomes[-1].violations:
                progress.console.print(f"what was written lies in {folder}", markup=False)
                break
            shutil.rmtree(folder)
    return outcomes


def _with_hanging(scene: Scene, outcome: Outcome, path: Path) -> Outcome:
    """Add what hangs at a scene's end to its last round."""
    hanging = tuple(scene.hanging_transactions())
    if not hanging:
        return outcome
    violated = log.with_violations(outcome, hanging)
    log.append(path, violated)
    return violated


def _line(one: Outcome) -> str:
    manner = f" ({one.manner})" if one.manner else ""
    errors = f", {' '.join(one.errors)}" if one.errors else ""
    drivers = f"{one.attempts} driver{'s' if one.attempts > 1 else ''}"
    what = f"round {one.round}.{one.draw} {one.fault}{manner} {one.point}"
    return f"{time.strftime('%H:%M:%S')} {what}: {one.verdict}, {drivers}, {one.seconds:.1f} s{errors}"


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("fault", "counted", "missed", "drivers", "violations", "seconds")
    for fault in (*TOPICS.faults, *TABLES.faults):
        mine = [one for one in outcomes if one.fault == fault.value]
        if mine:
            _add_row(table, fault.value, mine)
    table.add_section()
    _add_row(table, "all", outcomes)
    return table


def _add_row(table: Table, name: str, outcomes: Sequence[Outcome]) -> None:
    table.add_row(
        name,
        str(sum(one.hit for one in outcomes)),
        str(sum(one.verdict == "missed" for one in outcomes)),
        str(sum(one.attempts for one in outcomes)),
        str(sum(bool(one.violations) for one in outcomes)),
        f"{sum(one.seconds for one in outcomes):.0f}",
    )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev/chaos", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, help="rounds whose fault must hit; one of each fault unless given"
    )
    parser.add_argument(
        "--seed", type=int, default=_SEED, help="what faults, moments and records are drawn from"
    )
    parser.add_argument("--from-round", type=int, default=0, help="number of the first round")
    parser.add_argument(
        "--faults",
        nargs="+",
        metavar="PATTERN",
        help="only faults of these names, or with these words in them; table: rounds with tables",
    )
    parser.add_argument("--log", default=str(_LOG), help="file that gets one JSON line per round")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--summary", action="store_true", help="print the log's summary as Markdown; run nothing"
    )
    what.add_argument(
        "--publish",
        action="store_true",
        help="add the log's rounds to docs/internals/chaos-log.jsonl and docs/internals/chaos.md",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
