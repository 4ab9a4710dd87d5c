"""``dev/bench async``: calls side by side, ours and the peers', and every bar."""

from __future__ import annotations

import argparse
import fcntl
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from dev.benchmarks import machine
from dev.benchmarks.calls import bars, measured, page, picture
from dev.benchmarks.calls.cases import GROUPS, SYSTEMS, judged
from dev.benchmarks.calls.measured import Results
from dev.benchmarks.calls.memory import LOADS
from dev.benchmarks.calls.memory import measure as measure_memory
from dev.benchmarks.calls.rounds import Rounds
from dev.servers.embedded import Broker, free_port

#: Characters of a printed line, so that no figure is cut where there is no terminal.
WIDTH = 180
_ROUNDS, _SECONDS = 3, 2.0
_ROOT = Path(__file__).parents[3]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and store unless less than a whole case was asked for; 1 if a bar was missed."""
    console = Console(soft_wrap=True, highlight=False, width=WIDTH)
    options = _parser().parse_args(arguments)
    if options.stored:
        return _show(console, measured.read() or Results(machine="", measured="never"))
    new = Results(
        machine=machine.describe(),
        measured=datetime.now(tz=UTC).date().isoformat(),
        revision=_revision(),
        seconds=options.seconds,
    )
    stored = (options.rounds, options.seconds) == (_ROUNDS, _SECONDS)
    with (
        tempfile.TemporaryDirectory(prefix="kstreams-calls-") as folder,
        Broker(port=free_port(), folder=Path(folder) / "broker", heap="1g") as broker,
    ):
        for part in _parts(options, console, broker.bootstrap, Path(folder)):
            new = measured.merged(
                new,
                msgspec.structs.replace(new, cases=part.cases, memory=part.memory, left_out=part.left_out),
            )
            if stored:
                # After each part: a run that is cut short has not measured in vain.
                kept = measured.merged(measured.read(), new)
                measured.write(kept)
                picture.draw(kept)
                page.write(kept)
    return _show(console, new)


def _parts(options: argparse.Namespace, console: Console, bootstrap: str, folder: Path) -> Iterator[Results]:
    """Measure what was asked for, and yield it by and by, with all that was left out so far."""

    def say(line: str) -> None:
        console.print(line, markup=False)

    locked = partial(_locked, options.lock)
    rounds = Rounds(bootstrap=bootstrap, folder=folder, say=say, seconds=options.seconds, more=options.more)
    try:
        for with_bars in () if options.memory else (True, False):
            with locked():
                for group in GROUPS:
                    chosen = [case for case in group if all(word in case.label for word in options.only)]
                    if chosen and judged(group) == with_bars:
                        cases = rounds.measure(chosen, options.rounds if with_bars else 1)
                        left_out = [*rounds.left_out.values()]
                        yield Results(machine="", measured="", cases=cases, left_out=left_out)
    finally:
        rounds.close()
    for load in LOADS if options.memory or not (options.only or options.cases) else ():
        curves = measure_memory(load, bootstrap, folder, say, locked)
        yield Results(machine="", measured="", memory=curves, left_out=[*rounds.left_out.values()])


@contextmanager
def _locked(file: Path | None) -> Iterator[None]:
    if file is None:
        yield
        return
    with file.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _revision() -> str:
    head, changed = (
        subprocess.run(["git", *command], cwd=_ROOT, capture_output=True, text=True, check=False).stdout
        for command in (("rev-parse", "--short=10", "HEAD"), ("status", "--porcelain", "-uno"))
    )
    return head.strip() + "+" * bool(changed.strip())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev/bench async", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=_ROUNDS, help="of each case with a bar; others are only shown"
    )
    parser.add_argument(
        "--seconds", type=float, default=_SECONDS, help="that one run takes, about; others are only shown"
    )
    parser.add_argument("--more", type=int, default=1, help="rounds at most, while others disturb")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only cases with these words")
    parser.add_argument("--memory", action="store_true", help="only the memory of 10 M records")
    parser.add_argument("--cases", action="store_true", help="all but that")
    parser.add_argument("--lock", type=Path, help="file to lock meanwhile: what locks it, too, waits")
    parser.add_argument("--stored", action="store_true", help="show what is stored, measure nothing")
    return parser


def _show(console: Console, results: Results) -> int:
    console.print(table_of(results))
    if results.memory:
        console.print(memory_table_of(results))
    for left_out in results.left_out:
        console.print(f"left out: {left_out}", markup=False)
    found = bars.bars_of(results)
    for bar in found:
        console.print(str(bar), markup=False)
    console.print(f"{results.measured}, {results.revision}, {results.machine}", markup=False)
    console.print(bars.ratios(results), markup=False)
    return 0 if all(bar.met for bar in found) else 1


def table_of(results: Results) -> Table:
    """Return the figures, a case a line."""
    table = Table(title="Calls side by side")
    for column in ("system", "guarantee", "order", "keys"):
        table.add_column(column)
    for column in (
        "in flight",
        "sleep, ms",
        "in the call, ms",
        "records/s",
        "of in flight / latency",
        "CPU, µs",
        "MB",
        "others",
    ):
        table.add_column(column, justify="right")
    for each in results.cases:
        case, system = each.case, SYSTEMS[each.case.system]
        table.add_row(
            system.title, system.guarantee, case.order, case.keys, str(case.in_flight), str(case.latency_ms),
            f"{each.latency_ms:.2f}", f"{each.rate:,.0f}", f"{each.share:.2f}" if case.latency_ms else "-",
            f"{each.processor_us:,.0f}", f"{max(made.peak_memory_mb for made in each.rounds):,.0f}",
            f"{each.others:.0%}",
        )  # fmt: skip
    return table


def memory_table_of(results: Results) -> Table:
    """Return the memory of tasks, a curve a line."""
    table = Table(title="Memory of a task")
    for column in ("load", "records", "bytes of a value", "calls in flight", "seconds", "MB at most"):
        table.add_column(column, justify="left" if column == "load" else "right")
    for curve in results.memory:
        table.add_row(
            curve.name, f"{curve.records:,}", f"{curve.value_bytes:,}", str(curve.in_flight or "-"),
            f"{curve.seconds:,.0f}", f"{curve.peak_mb:,.0f}",
        )  # fmt: skip
    return table
