"""``dev/promises``: plants the faults of promises, or draws the pages made of them, or checks all."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dev.promise_register.checks import complaints
from dev.promise_register.faults import Copy, Outcome, Verdict
from dev.promise_register.page import draw
from dev.promise_register.pages import listed
from dev.promise_register.register import Fault, all_faults, load


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="dev/promises", description="The register of promises.")
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="a promise, or one fault as the table names it; all unless given"
    )
    parser.add_argument(
        "--write", action="store_true", help="draw docs/reference/guarantees.md and docs/internals/proofs.md"
    )
    parser.add_argument("--check", action="store_true", help="compare register, tests and pages")
    options = parser.parse_args()
    promises = load()
    if options.write:
        for page, text in draw(promises, listed()).items():
            page.write_text(text, encoding="utf-8")
    if options.write or options.check:
        found = complaints(promises)
        print("\n".join(found) or f"{len(promises)} promises are listed, registered, proven and drawn")
        return 1 if found else 0
    faults = all_faults(promises)
    of_promise = {name: all_faults({name: promise}) for name, promise in promises.items()}
    unknown = sorted(set(options.ids) - {*faults, *promises})
    if unknown:
        parser.error(f"not registered: {', '.join(unknown)}")
    chosen: dict[str, Fault] = {}
    for name in options.ids or promises:
        chosen |= of_promise[name] if name in promises else {name: faults[name]}
    return _plant(chosen)


def _plant(faults: Mapping[str, Fault]) -> int:
    console = Console()
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="kstreams-promises-") as folder:
        copy = Copy(Path(folder))
        console.print(f"{len(faults)} faults; their tests run without them first")
        failing = copy.failing(faults.values())
        if failing:
            console.print(failing, markup=False, highlight=False)
            return 1
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("", total=len(faults))
            for name, fault in faults.items():
                progress.update(bar, description=name)
                outcomes[name] = copy.outcome(fault)
                progress.console.print(f"{outcomes[name].verdict:<9}{name}", highlight=False)
                progress.advance(bar)
    table = Table("promise", "fault", "is", "by")
    for name, outcome in outcomes.items():
        # One line each: what a run printed is for faults that were not found.
        text = outcome.text if outcome.verdict is not Verdict.FOUND else outcome.text[:100]
        table.add_row(name, faults[name].title, outcome.verdict.value, text.replace("[", r"\["))
    console.print(table)
    left = [name for name, outcome in outcomes.items() if outcome.verdict is not Verdict.FOUND]
    console.print(
        f"{len(outcomes) - len(left)} of {len(outcomes)} found; not found: {', '.join(left) or 'none'}"
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
