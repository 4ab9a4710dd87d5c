"""``dev/fuzz``: feed each entry of the product from seeds, or one case again."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.support.fuzzing.entries import ENTRIES
from tests.support.fuzzing.lane import Fed, feed_all, feed_one

#: Time of one process.
_AT_A_TIME_SECONDS = 3.0
console = Console(width=140)


def main(arguments: list[str]) -> int:
    """Run the command; the exit code is 1 when a case did harm."""
    options = _parser().parse_args(arguments)
    entries = {name: ENTRIES[name] for name in options.entry or ENTRIES}
    if options.case:
        for feed in entries.values():
            console.print(f"{options.case}: {feed_one(feed, options.case)}")
        return 0
    seconds, begun = options.minutes * 60, time.monotonic()
    console.print(f"seed {options.seed}: dev/fuzz --seed {options.seed} draws the same cases")
    with Progress(console=console) as shown:
        bar = shown.add_task("cases", total=seconds)

        def progress(fed: Mapping[str, Fed]) -> None:
            cases = sum(each.outcomes.total() for each in fed.values())
            shown.update(
                bar, completed=min(seconds, time.monotonic() - begun), description=f"{cases:,} cases"
            )

        fed = feed_all(
            entries, options.seed, seconds=seconds, at_a_time_seconds=_AT_A_TIME_SECONDS, progress=progress
        )
    console.print(table_of(fed))
    for name, each in fed.items():
        if each.fault:
            console.print(f"\n{name}: dev/fuzz --entry '{name}' --case '{each.fault}'", markup=False)
    return 1 if any(each.fault for each in fed.values()) else 0


def table_of(fed: Mapping[str, Fed]) -> Table:
    """Return how many cases of each entry came to what."""
    table = Table("entry", "cases", "refused", "taken", "skipped", "slowest", "harm")
    for name, each in fed.items():
        counts = [each.outcomes[outcome] for outcome in ("refused", "taken", "skipped")]
        table.add_row(
            name,
            f"{each.outcomes.total():,}",
            *(f"{count:,}" for count in counts),
            f"{each.slowest_seconds:.1f} s",
            each.fault.partition(":")[0],
        )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dev/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="another one each time unless given")
    parser.add_argument("--entry", action="append", choices=list(ENTRIES), help="this entry; may be repeated")
    parser.add_argument("--case", default="", help="one case again, in this process; with --entry")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
