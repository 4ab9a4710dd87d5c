"""The tables of a seed: what stood in them after each snapshot, and others who change them.

Others append rows of their own, compact files, forget snapshots and add columns, at any time. A table may
also be *harmed*, so that no run may land in it: rolled back, dropped, made anew, partitioned in another way,
or a column of it given another type; until somebody mends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
from msgspec import structs

from airflow_kstreams.streams.table_plan import Column, TablePlan
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.testing.in_memory_tables import InMemoryTables
from tests.simulation.drawn_landings import DrawnLanding, Harm
from tests.simulation.history import History, MadeSnapshot, Row
from tests.simulation.sometimes import sometimes
from tests.simulation.stages import APPLICATION_ID
from tests.simulation.world import World
from tests.support.tables.packed_rows import unpacked

#: The first column of rows that are not the application's.
_OTHERS = "other"
#: Most columns that others add to a table.
_MOST_COLUMNS = 6


class _Observed(dict[str, Any]):
    """States of tables by location; a function sees each before it is kept."""

    def __init__(self, see: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._see = see

    def __setitem__(self, location: str, state: Any) -> None:
        self._see(location, state)
        super().__setitem__(location, state)


@dataclass(frozen=True, slots=True)
class _Harmed:
    location: str
    kind: Harm
    before: Any


class Lake:
    """See the module.

    :param history: takes the snapshots that are made.
    :param plans: the application's tables.
    :param drawn: what happens to them.
    :param random: of the details.
    """

    def __init__(
        self,
        world: World,
        history: History,
        plans: Iterable[TablePlan],
        drawn: DrawnLanding,
        random: Random,
    ) -> None:
        self._world, self._history, self._drawn, self._random = world, history, drawn, random
        self._names = {plan.location: plan.name for plan in plans}
        self._seen: set[str] = set()
        self._harmed: _Harmed | None = None
        self._numbers = 0
        self.tables = InMemoryTables(now_ms=world.now_ms)
        self.tables.states = _Observed(self._see)
        #: Whether a table was harmed in the life of this seed.
        self.was_harmed = False
        if drawn.there != "missing":
            for plan in plans:
                columns = plan.columns if drawn.there == "whole" else _lacking(plan.columns)
                self.tables.table(plan).create(columns, plan.partition_by)

    def rows(self) -> dict[str, Counter[Row]]:
        """Return the application's rows in each table, by the table's name."""
        return {
            self._names[location]: self._ours(state.files) for location, state in self.tables.states.items()
        }

    # == others

    def keep_changing(self) -> None:
        """Change tables now and then, as a process of its own."""
        while True:
            self._world.sleep(self._random.choice((0.1, 0.5, 3.0, 20.0)))
            self.change()

    def change(self) -> None:
        """Change a table as others do, if there is one."""
        if self._harmed is not None or not self.tables.states:
            return
        location = self._random.choice(sorted(self.tables.states))
        _CHANGES[self._random.choice(self._drawn.changes)](self, location)

    def _append(self, location: str) -> None:
        columns = len(self.tables.state(location).columns)
        self._numbers += 1
        row = (f"{_OTHERS} {self._numbers}", *[None] * (columns - 1))
        self.tables.other_writer(location).append(self._file([row]))

    def _compact(self, location: str) -> None:
        files = self.tables.state(location).files
        chosen = self._random.sample(sorted(files), min(len(files), self._random.randint(2, 4)))
        if len(chosen) < 2:
            return
        by_partition: dict[tuple[Any, ...], list[str]] = {}
        for path in chosen:
            by_partition.setdefault(files[path].partition, []).append(path)
        added = [self._file(self._read(paths), partition) for partition, paths in by_partition.items()]
        self.tables.other_writer(location).compact(removed=chosen, added=added)
        if any(row[0].split()[0] != _OTHERS for row in self._read(chosen)):
            sometimes("others compacted files of a run")

    def _expire(self, location: str) -> None:
        self.tables.other_writer(location).expire(self._random.randint(1, 3))

    def _add_column(self, location: str) -> None:
        columns = self.tables.state(location).columns
        if len(columns) < _MOST_COLUMNS:
            more = Column(f"more_{len(columns)}", "text", required=False)
            self.tables.other_writer(location).change_columns((*columns, more))

    def _file(self, rows: list[Row], partition: tuple[Any, ...] = ()) -> FileFacts:
        self._numbers += 1
        path, data = f"memory://others/{self._numbers}", msgspec.msgpack.encode(rows)
        self.tables.stored[path] = (self._world.now_ms(), data)
        return FileFacts(path=path, size=len(data), rows=len(rows), partition=partition)

    # == harm

    @property
    def is_harmed(self) -> bool:
        """Whether a table is harmed now."""
        return self._harmed is not None

    def harm(self, kinds: Iterable[Harm]) -> None:
        """Harm a table as the seed has drawn it, if that is one of some kinds, and there is such a table."""
        kind = self._drawn.harm
        if kind not in kinds or self.was_harmed or not self.tables.states:
            return
        location = self._random.choice(sorted(self.tables.states))
        before, other = self.tables.state(location), self.tables.other_writer(location)
        ours = next((each for each in before.line() if _is_ours(each.snapshot.summary)), None)
        if ours is None and kind in ("rolled back", "dropped", "made anew"):
            return  # the application does not know the table yet
        if kind == "rolled back" and ours is not None:
            other.roll_back(ours.parent if ours.parent in before.kept else "")
        elif kind == "dropped":
            other.drop()
        elif kind == "made anew":
            other.make_anew()
        elif kind == "other partitioning":
            other.change_partitioning(("text",))
        else:
            text, *others = before.columns
            other.change_columns((structs.replace(text, type="long"), *others))
        self._harmed, self.was_harmed = _Harmed(location, kind, before), True

    def mend(self) -> None:
        """Put a harmed table back as it was."""
        if self._harmed is None:
            return
        location, kind, before = self._harmed.location, self._harmed.kind, self._harmed.before
        if kind == "other partitioning":
            other = self.tables.other_writer(location)
            other.change(partition_by=before.partition_by, spec_id=before.spec_id)
        elif kind == "other type":
            other = self.tables.other_writer(location)
            other.change(columns=before.columns, schema_id=before.schema_id)
        else:
            self.tables.states[location] = before
        self._harmed = None

    # == what is seen

    def _see(self, location: str, state: Any) -> None:
        """Take note of a snapshot that is made."""
        if not state.head or state.head in self._seen:
            return
        self._seen.add(state.head)
        kept = state.kept[state.head]
        if not _is_ours(kept.snapshot.summary):
            return
        before = state.kept[kept.parent].files if kept.parent in state.kept else {}
        self._history.snapshots.append(
            MadeSnapshot(
                table=self._names[location],
                snapshot=state.head,
                summary=kept.snapshot.summary,
                mark=state.marks.get((APPLICATION_ID, self._names[location]), 0),
                added=Counter(self._read(path for path in kept.files if path not in before)),
                rows=self._ours(kept.files),
                files=sum(path not in before for path in kept.files),
                commits=len(self._history.commits),
                by=self._world.process().name,
                harmed=self._harmed is not None and self._harmed.location == location,
            )
        )

    def _ours(self, paths: Iterable[str]) -> Counter[Row]:
        return Counter(row for row in self._read(paths) if row[0].split()[0] != _OTHERS)

    def _read(self, paths: Iterable[str]) -> list[Row]:
        stored = self.tables.stored
        return [
            row
            for path in paths
            for row in (unpacked(stored[path][1]) if path in stored else [(f"{path} is gone",)])
        ]


def _lacking(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns of a table that begin has to widen."""
    narrow = [structs.replace(column, type="int") if column.type == "long" else column for column in columns]
    return tuple(column for column in narrow if column.required)


def _is_ours(summary: Mapping[str, str]) -> bool:
    return summary.get("kstreams.application-id") == APPLICATION_ID


_CHANGES: Mapping[str, Callable[[Lake, str], None]] = {
    "append": Lake._append,
    "compact": Lake._compact,
    "expire": Lake._expire,
    "column": Lake._add_column,
}
