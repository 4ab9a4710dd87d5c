"""What of a seed happens to the tables that it writes to."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from tests.simulation.faults import TABLE_CELLS, PlannedFault, plan_of_tables

Harm = Literal["", "rolled back", "dropped", "made anew", "other partitioning", "other type"]
#: What may happen to a table while a run is under way, and what before one begins.
DURING: tuple[Harm, ...] = ("other partitioning", "other type")
BEFORE: tuple[Harm, ...] = ("rolled back", "dropped", "made anew", "other partitioning", "other type")
#: Faults of calls to tables in each seed.
_CELLS = 4
#: What others do to tables.
_CHANGES = (
    ("append", "compact", "expire", "column"),
    ("append",),
    ("compact", "append"),
    ("expire", "append"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLanding:
    """What happens to tables.

    :param there: which tables are there when the first run begins: none, whole ones, or tables that lack a
        column and have another one that is too narrow.
    :param changes: what others do to them.
    :param busy: whether others do that by themselves, or only where a fault says so.
    :param harm: what is done to a table that no run may land in then.
    :param during: whether that happens while a run is under way, or before it.
    """

    there: Literal["missing", "whole", "lacking"]
    changes: tuple[str, ...]
    busy: bool
    harm: Harm
    during: bool

    def __str__(self) -> str:
        harm = f", {self.harm} {'during' if self.during else 'before'} a run" if self.harm else ""
        return f"tables {self.there}, others {'busy' if self.busy else 'quiet'}: {self.changes}{harm}"


def drawn_landing(seed: int) -> tuple[DrawnLanding, list[PlannedFault]]:
    """Draw what happens to the tables of a seed, and the faults of its calls."""
    random = Random(f"{seed} landing")
    # Neighbouring seeds take different cells; each comes again after few seeds, in another company.
    every = len(TABLE_CELLS)
    first, apart = seed * 10 % every, every // _CELLS + seed // every % 5
    cells = [TABLE_CELLS[(first + number * apart) % every] for number in range(_CELLS)]
    there = random.choice(("missing", "missing", "whole", "lacking"))
    if any(call == "table.create" for call, _ in cells):
        there = "missing"
    if any(call == "table.widen" for call, _ in cells):
        there = "lacking"
    during = random.random() < 0.5
    drawn = DrawnLanding(
        there=there,  # type: ignore[arg-type]
        changes=random.choice(_CHANGES),
        busy=random.random() < 0.5,
        harm=random.choice(DURING if during else BEFORE) if random.random() < 0.35 else "",
        during=during,
    )
    return drawn, plan_of_tables(cells, random)
