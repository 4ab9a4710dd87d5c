"""Commits to an Iceberg table that has many snapshots behind it: with expiry, which keeps the last ones, and
without.

A commit is what a finish does of it: a look, the question whether the history still holds the run before, the
commit of one file, and where snapshots expire, another look and the expiry. The files are named only: neither
a commit nor an expiry opens a file of rows.

A history with expiry is made commit by commit; while it is made, snapshots expire now and then, and the last
hundred are all kept. Without expiry that takes hours, as each commit takes longer than the one before: so the
snapshots of a shorter history are written into the table's metadata again and again, under ids and numbers of
their own.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from airflow_kstreams.streams.tables.table_port import (
    ColumnFacts,
    FileFacts,
    TableCommit,
    TableLook,
    TablePort,
)
from dev.benchmarks.tables.places import Place, described

APPLICATION, KEPT = "bench", 100
_ROWS = 10_000
#: While a history is made, so many snapshots are kept, whenever so many more have come.
_FEW, _EVERY = 5, 25


class Row(msgspec.Struct):
    """A row of the table."""

    id: int
    text: str


@dataclass(kw_only=True)
class History:
    """A table, and the commits that are made to it.

    :param place: the table, which is Iceberg's.
    :param keep: number of snapshots that are kept after each commit; 0 keeps all.
    """

    place: Place
    keep: int = 0
    _port: TablePort = field(init=False)
    _number: int = 0
    _last: str = ""

    def __post_init__(self) -> None:
        plan = described(self.place, Row).plan
        self._port = self.place.opened().table(plan)
        self._port.create(plan.columns, plan.partition_by)

    def grow(self, snapshots: int) -> None:
        """Commit until so many snapshots were made, the last of which are kept, if snapshots expire."""
        keep, self.keep = self.keep, 0
        while self._number < snapshots:
            self.commit()
            if keep and self._number < snapshots - keep and self._number % _EVERY == 0:
                self._port.expire(self._looked(), _FEW)
        self.keep = keep

    def commit(self) -> None:
        """Make one more snapshot, and let older ones expire."""
        look = self._looked()
        if self._last and self._port.holds(look, self._last) is False:
            raise SystemExit(f"the table does not hold snapshot {self._last}")
        self._number += 1
        summary = {"kstreams.application-id": APPLICATION, "kstreams.sequence": str(self._number)}
        change = TableCommit(
            application_id=APPLICATION,
            sink=self.place.location,
            sequence=self._number,
            summary=summary,
            added=[self._file()],
        )
        self._last = self._port.commit(look, change).snapshot
        if self.keep:
            self._port.expire(self._looked(), self.keep)

    def snapshots(self) -> int:
        """Return how many snapshots the table has."""
        return len(self._port.snapshots(self._looked()))

    def repeat(self, snapshots: int) -> None:
        """Write the table's snapshots into its metadata until there are so many."""
        table = self.place.by_pyiceberg()
        file = Path(table.metadata_location.removeprefix("file://"))
        repeated = file.with_name(f"repeated-{file.name}")
        repeated.write_text(json.dumps(with_snapshots(json.loads(file.read_text()), snapshots)))
        table.catalog.drop_table(self.place.location)
        table.catalog.register_table(self.place.location, f"file://{repeated}")
        self._last = ""

    def _looked(self) -> TableLook:
        look = self._port.look(APPLICATION)
        if look is None:
            raise SystemExit(f"there is no table {self.place.location}")
        return look

    def _file(self) -> FileFacts:
        first = self._number * _ROWS
        return FileFacts(
            path=f"file://{self.place.folder}/lake/bench/{self.place.name}/data/{self._number:06d}.parquet",
            size=250_000,
            rows=_ROWS,
            columns={"id": ColumnFacts(0, first, first + _ROWS - 1), "text": ColumnFacts(0, "a", "z")},
            row_groups=(4,),
        )


def with_snapshots(metadata: dict[str, Any], snapshots: int) -> dict[str, Any]:
    """Return a table's metadata with so many snapshots: those that it has come again and again.

    The newest one stays the newest. Times and sequence numbers go on, and each has the one before as parent.
    """
    known, log = metadata["snapshots"], metadata["snapshot-log"]
    newest = known[-1]
    made: list[dict[str, Any]] = []
    for number, known_one in enumerate(itertools.islice(itertools.cycle(known), snapshots - 1)):
        parent = {"parent-snapshot-id": made[-1]["snapshot-id"]} if made else {}
        one = {name: value for name, value in known_one.items() if name != "parent-snapshot-id"}
        made.append({**one, "snapshot-id": number + 1, "sequence-number": number + 1, **parent})
    made.append({**newest, "sequence-number": snapshots, "parent-snapshot-id": made[-1]["snapshot-id"]})
    times = [{"snapshot-id": each["snapshot-id"], "timestamp-ms": log[-1]["timestamp-ms"]} for each in made]
    return {**metadata, "snapshots": made, "snapshot-log": times, "last-sequence-number": snapshots}


class Histories:
    """Tables with histories, each made before its first commit is timed.

    :param folder: for the tables.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[int, bool], History] = {}

    def commit(self, snapshots: int, *, expiring: bool) -> Mapping[str, float]:
        """Make one more snapshot of a table.

        :param snapshots: number of snapshots that the table has had before the first one.
        :param expiring: whether older ones expire.
        :return: ``seconds``, and how many snapshots the table has.
        """
        history = self._made.get((snapshots, expiring)) or self._new(snapshots, expiring=expiring)
        started = time.monotonic()
        history.commit()
        return {"seconds": time.monotonic() - started, "snapshots": history.snapshots()}

    def _new(self, snapshots: int, *, expiring: bool) -> History:
        name = f"{'expiring' if expiring else 'kept'}-{snapshots}"
        place = Place(format="iceberg", folder=str(self._folder), name=name)
        history = self._made[snapshots, expiring] = History(place=place, keep=KEPT if expiring else 0)
        history.grow(snapshots if expiring else min(snapshots, KEPT))
        if history.snapshots() < snapshots and not expiring:
            history.repeat(snapshots)
        return history
