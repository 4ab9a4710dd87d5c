"""``dev/bench``: this engine beside its peers, on one broker, in one run."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dev.benchmarks import (
    against,
    bars,
    charts,
    expansion,
    guard,
    machine,
    page,
    record_profile,
    restore,
    results,
    scale,
    window_memory,
)
from dev.benchmarks.calls import command as calls
from dev.benchmarks.inputs import Inputs
from dev.benchmarks.results import Result
from dev.benchmarks.suite import Suite
from dev.benchmarks.systems import EARLIER, OURS
from dev.benchmarks.waterfall import command as waterfall
from dev.benchmarks.workloads import GUARDS, SYSTEMS, WORKLOADS, Workload
from dev.servers.embedded import Broker, free_port

console = Console(soft_wrap=True, highlight=False)

#: Options that measure nothing of the suite, and those that say what of it is measured.
_ALONE = ("bars", "page", "guard", "profile", "restore")
_MEASURED = ("workload", "system", "records", "rounds", "against", "pairs")
#: What an earlier revision is measured with unless workloads are named: much input, and next to none.
_AGAINST = ("stateless", "sum-50k", "join", "two-stage", "hourly", "empty")
_PAIRS = 7


def main() -> int:
    """Run what the command line names; the exit code is 1 if something failed or a bar was missed."""
    if sys.argv[1:2] == ["scale"]:
        return scale.main(sys.argv[2:])
    if sys.argv[1:2] == ["expansion"]:
        return expansion.main(sys.argv[2:])
    if sys.argv[1:2] == ["windows"]:
        return window_memory.main(sys.argv[2:])
    if sys.argv[1:2] == ["async"]:
        return calls.main(sys.argv[2:])
    if sys.argv[1:2] == ["waterfall"]:
        return waterfall.main(sys.argv[2:])
    options = _options()
    if options.bars:
        return _bars()
    if options.profile:
        table, profiles = record_profile.measure()
        console.print(table)
        console.print("\n\n".join(profiles), markup=False)
        return 0
    if options.page:
        _write_page(results.read())
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="kstreams-bench-") as folder,
        Broker(port=free_port(), folder=Path(folder) / "broker", heap="1g") as broker,
    ):
        if options.restore:
            _restore(broker.bootstrap, folder, options.records or 10_000_000)
            return 0
        suite = Suite(
            bootstrap=broker.bootstrap,
            folder=Path(folder),
            inputs=Inputs(bootstrap=broker.bootstrap, show=_publishing),
            say=lambda line: console.print(line, markup=False),
            machine=machine.describe(),
        )
        try:
            if options.guard:
                return _guard(suite)
            return _against(suite, options) if options.against else _suite(suite, options)
        except against.RevisionError as error:
            console.print(f"dev/bench: {error}", markup=False)
            return 1
        finally:
            suite.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev/bench", description=__doc__)
    parser.add_argument(
        "--workload",
        nargs="+",
        choices=sorted(WORKLOADS),
        metavar="W",
        help="only these, and what is a part of them: %(choices)s",
    )
    parser.add_argument(
        "--system",
        choices=sorted({system.name for system in SYSTEMS}),
        metavar="S",
        help="only this one beside ours; nothing is stored: %(choices)s",
    )
    parser.add_argument("--records", type=int, help="input records, at most; nothing is stored")
    parser.add_argument("--rounds", type=int, help="alternations; nothing is stored")
    parser.add_argument(
        "--against",
        metavar="REVISION",
        help="this engine beside itself at another revision of git: exit code 1 when it is slower; nothing "
        "is stored",
    )
    parser.add_argument(
        "--pairs", type=int, metavar="N", help="how often --against runs both, in turn; 7 unless given"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--bars", action="store_true", help="print every bar with its figure as stored")
    what.add_argument("--page", action="store_true", help="write the pages on benchmarks from what is stored")
    what.add_argument(
        "--guard", action="store_true", help="short form for CI: compare with the stored ratios"
    )
    what.add_argument(
        "--profile", action="store_true", help="where the CPU time of one record goes in a task"
    )
    what.add_argument(
        "--restore",
        action="store_true",
        help="replay of a changelog into both kinds of store; 10 M keys, or --records",
    )
    options = parser.parse_args()
    alone = next((name for name in _ALONE if getattr(options, name)), "")
    beside = [name for name in _MEASURED if getattr(options, name) is not None]
    if alone == "restore" and beside == ["records"]:
        return options
    if alone and beside:
        parser.error(f"--{alone} takes no --{beside[0]}")
    if options.against and (options.system or options.rounds):
        parser.error(f"--against takes no --{'system' if options.system else 'rounds'}")
    if options.pairs is not None and (not options.against or options.pairs < 1):
        parser.error("--pairs says how often --against runs both: at least once")
    return options


def _restore(bootstrap: str, folder: str, keys: int) -> None:
    """Print how fast a changelog is replayed into each kind of store."""
    restore.publish_changelog(bootstrap, keys, _publishing("publishing the changelog", keys))
    found = {storage: restore.measure(bootstrap, storage, keys, folder) for storage in restore.STORAGES}
    console.print(restore.table_of(found))
    console.print(f"one task, one partition, JSON documents; {machine.describe()}")


def _suite(suite: Suite, options: argparse.Namespace) -> int:
    stored = not (options.system or options.records or options.rounds)
    everything: list[Result] = []
    for name in with_parts(options.workload or []) or _with(options.system):
        measured = suite.measure(_chosen(WORKLOADS[name], options))
        everything += measured
        console.print("\n" + page.tables(measured), markup=False)
        if stored and measured:
            # After each workload: a run that is cut short has not measured in vain.
            kept = results.merged(results.read(), measured, list(WORKLOADS))
            results.write(kept)
            _write_page(kept)
    for line in page.bar_lines(everything, bars.measured_by(everything)):
        console.print(line, markup=False)
    for failure in suite.failures:
        console.print(f"FAILED {failure}", markup=False)
    return 1 if suite.failures else 0


def _against(suite: Suite, options: argparse.Namespace) -> int:
    measured: list[Result] = []
    with against.earlier(options.against, suite.folder):
        for name in options.workload or _AGAINST:
            workload = dataclasses.replace(_chosen(WORKLOADS[name], options), rounds=options.pairs or _PAIRS)
            measured += suite.measure(dataclasses.replace(workload, systems=(OURS, EARLIER)))
        suite.close()
    compared = against.pairs(measured)
    lines = [line for pairs in compared for line in pairs.lines()]
    for line in (*lines, *(f"FAILED {failure}" for failure in suite.failures)):
        console.print(line, markup=False)
    return 1 if suite.failures or any(pairs.slower for pairs in compared) else 0


def _with(system: str | None) -> list[str]:
    """Return the workloads that a system runs; all of them unless one is given."""
    return [
        workload.name
        for workload in WORKLOADS.values()
        if system is None or any(system == other.name for other in workload.systems)
    ]


def with_parts(names: Sequence[str]) -> list[str]:
    """Return workloads with those that are part of them, each behind its own."""
    found = [part.name for name in names for part in WORKLOADS.values() if name in (part.name, part.part_of)]
    return list(dict.fromkeys(found))


def _chosen(workload: Workload, options: argparse.Namespace) -> Workload:
    """Return the workload as the command line wants it."""
    systems = workload.systems
    if options.system:
        systems = tuple(system for system in systems if system == OURS or system.name == options.system)
    before = min(workload.before, options.records or workload.before)
    return dataclasses.replace(
        workload,
        systems=systems,
        records=min(workload.records, options.records or workload.records),
        before=before,
        # Keys that a smaller run before could not all have had would be new to the measured one.
        keys=min(workload.keys, before or workload.keys),
        rounds=options.rounds or workload.rounds,
    )


def _guard(suite: Suite) -> int:
    measured: list[Result] = []
    for workload in GUARDS:
        measured += suite.measure(workload)
    lines, good = guard.verdict(results.read(), measured)
    for line in (*lines, *suite.failures):
        console.print(line, markup=False)
    return 0 if good and not suite.failures else 1


def _bars() -> int:
    table, good = bars.table_of(results.read())
    console.print(table)
    return 0 if good else 1


def _write_page(stored: Sequence[Result]) -> None:
    charts.draw(stored)
    page.write(stored)


def _publishing(title: str, records: int) -> Callable[[int], None]:
    """Return a function that shows how many records are published; without a terminal it shows nothing."""
    if not console.is_terminal:
        return lambda _done: None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console)
    task = progress.add_task(title, total=records)
    progress.start()

    def tell(done: int) -> None:
        progress.update(task, completed=done)
        if done >= records:
            progress.stop()

    return tell


if __name__ == "__main__":
    sys.exit(main())
