"""Whatever others write at one of the product's entries is refused by an error of ours, taken or left out; it
ends no process, holds none up, and fills no memory. ``dev/fuzz`` feeds the entries for as long as one likes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

import pytest
from rich.console import Console

from dev.commands.fuzz_command import table_of
from tests.support.fuzzing.entries import ENTRIES
from tests.support.fuzzing.lane import DEADLINE_SECONDS, Fed, feed_all

PROOF_SECONDS = 600.0


def test_cases_of_every_entry_do_no_harm() -> None:
    fed = feed_all(ENTRIES, "slice", seconds=0.0, at_a_time_seconds=0.5)
    assert {name: each.fault for name, each in fed.items() if each.fault} == {}
    assert all(each.outcomes.total() for each in fed.values())


@pytest.mark.prove
def test_ten_minutes_of_every_entry_do_no_harm(tell: Callable[[str], None]) -> None:
    seed, shown = secrets.token_hex(4), 0

    def progress(fed: Mapping[str, Fed]) -> None:
        nonlocal shown
        shown += 1
        if shown % 20 == 0:
            tell(f"{sum(each.outcomes.total() for each in fed.values()):,} cases")

    fed = feed_all(ENTRIES, seed, seconds=PROOF_SECONDS, at_a_time_seconds=3.0, progress=progress)
    console = Console(width=160)
    with console.capture() as table:
        console.print(table_of(fed))
    tell(f"dev/fuzz --seed {seed}\n{table.get()}")
    assert {name: each.fault for name, each in fed.items() if each.fault} == {}
    assert max(each.slowest_seconds for each in fed.values()) < DEADLINE_SECONDS
