"""Draws a round with tables from a seed: which fault, where, when and how. No process is touched here."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from dev.chaos_rounds.plan import RoundPlan, drawn_plan, fault_of
from dev.chaos_rounds.tables.names import TABLES, TableName


class TableFault(StrEnum):
    """The faults; each block of as many rounds as there are faults has each of them once."""

    WORKER_KILLED = "table: worker killed"
    EXECUTOR_KILLED = "table: executor killed"
    DRIVER_KILLED = "table: driver killed before the seal"
    DRIVER_AT_COMMIT = "table: driver killed at a commit"
    BROKER_KILLED = "table: broker killed"
    CATALOG_KILLED = "table: catalogue killed"
    UPLOAD_LOST = "table: upload lost"
    COMMIT_LOST = "table: commit lost"
    COMMIT_LATE = "table: commit late"
    STOPPED = "table: driver stopped, retried, continued"
    SECOND_DRIVER = "table: second driver"
    OTHER_WRITER = "table: other writer before a commit"


#: A SQL catalogue over a local folder, or a REST catalogue over an object store.
PlaceName = Literal["sql", "rest"]
#: While tasks write files, behind the freeze of their list, at a commit, or when it has landed and its answer
#: has not come.
Moment = Literal["upload", "merge", "commit", "answer"]

_ALL: tuple[Moment, ...] = ("upload", "merge", "commit", "answer")
_MOMENTS: dict[TableFault, tuple[Moment, ...]] = {
    TableFault.WORKER_KILLED: ("upload",),
    TableFault.EXECUTOR_KILLED: ("upload",),
    TableFault.DRIVER_KILLED: ("upload", "merge"),
    TableFault.DRIVER_AT_COMMIT: ("commit", "answer"),
    TableFault.BROKER_KILLED: _ALL,
    TableFault.CATALOG_KILLED: ("upload", "merge", "commit"),
    TableFault.UPLOAD_LOST: ("upload",),
    TableFault.COMMIT_LOST: ("commit", "answer"),
    TableFault.COMMIT_LATE: ("commit",),
    TableFault.STOPPED: _ALL,
    TableFault.SECOND_DRIVER: ("upload", "commit", "answer"),
    TableFault.OTHER_WRITER: ("commit",),
}
#: Faults that need a server between the application and its tables.
_SERVED = frozenset(
    {
        TableFault.CATALOG_KILLED,
        TableFault.UPLOAD_LOST,
        TableFault.COMMIT_LOST,
        TableFault.COMMIT_LATE,
        TableFault.OTHER_WRITER,
    }
)

#: Faults after which another driver goes on, while a commit of the first may still be on its way.
_TAKEN_OVER = frozenset(
    {
        TableFault.DRIVER_AT_COMMIT,
        TableFault.COMMIT_LATE,
        TableFault.STOPPED,
        TableFault.SECOND_DRIVER,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRoundPlan:
    """One round, drawn from seed, number and draw alone.

    :param drawn: what every round has.
    :param table: whose commit it is.
    :param late: whether a commit that was held goes on only when the run is finished.
    :param answer_only: of what is lost: the answer rather than the request.
    :param frozen_seconds: of a merge: so long after the list was frozen.
    """

    drawn: RoundPlan
    fault: TableFault
    place: PlaceName
    moment: Moment
    table: TableName
    late: bool
    answer_only: bool
    frozen_seconds: float

    @property
    def point(self) -> str:
        """When the fault comes, in words."""
        match self.moment:
            case "upload":
                return f"{self.place}: {self.drawn.point}"
            case "merge":
                return f"{self.place}: {self.frozen_seconds:.1f} s after the list was frozen"
            case moment if self.place == "sql":
                return f"{self.place}: {moment} of {self.table}, as its log shows it"
            case moment:
                return f"{self.place}: {moment} of {self.table}"

    @property
    def manner(self) -> str:
        """How it comes, in words; empty when there is but one way."""
        parts = []
        if self.fault in {TableFault.UPLOAD_LOST, TableFault.COMMIT_LOST}:
            parts.append("the answer" if self.answer_only else "the request")
        if self.fault is TableFault.CATALOG_KILLED:
            parts.append(f"for {self.drawn.seconds:.1f} s")
        if self.fault is TableFault.STOPPED:
            parts.append(f"on {self.drawn.resume}")
        if self.place == "rest" and self.moment == "commit" and self.late:
            parts.append("the commit goes on when finished")
        return ", ".join(parts)


def place_of(seed: int, number: int) -> PlaceName:
    """Return where a round is played, the same for each draw."""
    rng = random.Random(f"{seed}/place of tables/{number}")  # noqa: S311 - reproducible on purpose
    drawn: PlaceName = rng.choice(("sql", "rest"))
    return "rest" if table_fault_of(seed, number) in _SERVED else drawn


def table_fault_of(seed: int, number: int) -> TableFault:
    """Return the fault of a round."""
    return fault_of(TableFault, f"{seed}/tables", number)


def table_plan_of(seed: int, number: int, draw: int = 0) -> TableRoundPlan:
    """Draw a round; the same for the same seed, number and draw."""
    fault = table_fault_of(seed, number)
    rng = random.Random(f"{seed}/tables/{number}/{draw}")  # noqa: S311 - reproducible on purpose
    drawn = replace(
        drawn_plan(rng, seed, number, draw, fault, early=False),
        records=rng.randrange(300, 700),
        commit_records=rng.choice((60, 150, 400)),
    )
    place = place_of(seed, number)
    moments = _MOMENTS[fault]
    if place == "sql" and fault is TableFault.SECOND_DRIVER:
        moments = ("upload",)  # nothing holds a commit until a second driver has started
    moment = rng.choice(moments)
    late = fault in _TAKEN_OVER and (rng.random() < 0.5 or fault is TableFault.COMMIT_LATE)
    # Between the last commit and the marker lies as much as between all others.
    table = TABLES[-1] if moment == "answer" and rng.random() < 0.4 else rng.choice(TABLES)
    return TableRoundPlan(
        drawn=drawn,
        fault=fault,
        place=place,
        moment=moment,
        table=table,
        late=late,
        answer_only=moment == "answer" or (fault is TableFault.UPLOAD_LOST and rng.random() < 0.5),
        frozen_seconds=rng.uniform(0.0, 1.0),
    )
