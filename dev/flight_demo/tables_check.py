"""Asks the command ``tables ... check`` of the demo's tables, and of copies that were changed by hand."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from dev.flight_demo.lake import DELTA, ICEBERG, Lake

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyiceberg.table import Table

_ROOT = Path(__file__).resolve().parents[2]
_AGREE, _DIFFER = 0, 1
_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the command has said.

    :param state: what was done to the tables.
    :param expected: the exit code that is right.
    :param exit_code: the one that it ended with.
    :param named: tables in which it found differences.
    """

    state: str
    expected: int
    exit_code: int
    named: frozenset[str]

    @property
    def is_right(self) -> bool:
        """Whether it found all there is to find, and nothing else."""
        right = frozenset() if self.expected == _AGREE else {ICEBERG, DELTA}
        return self.exit_code == self.expected and self.named == right


def words(lake: Lake, application_id: str, bootstrap: str) -> list[str]:
    """Return what follows ``airflow-kstreams`` in the command, which needs the lake's environment."""
    return [
        *("tables", "spark_apps/flight_delays.py", "check"),
        *("--application-id", application_id),
        *("--bootstrap-server", bootstrap),
        *("--tables-config", str(lake.config_file)),
    ]


def command(lake: Lake, application_id: str, bootstrap: str) -> str:
    """Return the command for a shell in the checkout."""
    variables = [f"{name}={value}" for name, value in lake.environment.items()]
    program = ".venv/bin/airflow-kstreams"
    return shlex.join(["env", *variables, program, *words(lake, application_id, bootstrap)])


def check_all(lake: Lake, application_id: str, bootstrap: str, *, copies: Path) -> Iterator[Checked]:
    """Check the tables, and a copy of them after each change that a person could make.

    :param copies: a folder that is made for the copies.
    """

    def checked(state: str, expected: int, tables: Lake) -> Checked:
        exit_code, named = _check(tables, application_id, bootstrap)
        return Checked(state=state, expected=expected, exit_code=exit_code, named=named)

    yield checked("as the runs left them", _AGREE, lake)
    copies.mkdir()
    for number, (state, change) in enumerate(CHANGES.items(), start=1):
        copy = lake.copy(copies / str(number))
        change(copy)
        yield checked(state, _DIFFER, copy)


def _check(lake: Lake, application_id: str, bootstrap: str) -> tuple[int, frozenset[str]]:
    """Return the exit code of the command, and the tables in which it names differences."""
    given = [*words(lake, application_id, bootstrap), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "airflow_kstreams.cli", *given],
        cwd=_ROOT,
        env=os.environ | lake.environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    differences = json.loads(done.stdout)["differences"] if done.stdout else []
    return done.returncode, frozenset(each["table"] for each in differences)


def add_row(lake: Lake) -> None:
    """Add a row of a carrier that there is not."""
    from deltalake import write_deltalake

    iceberg = _iceberg(lake)
    iceberg.append(_renamed(iceberg.scan().to_arrow()))
    delta = _delta(lake)
    write_deltalake(delta, _renamed(delta.to_pyarrow_table()), mode="append")


def remove_row(lake: Lake) -> None:
    """Take out the row of a carrier."""
    _iceberg(lake).delete("carrier = 'UA'")
    _delta(lake).delete("carrier = 'UA'")


def take_back_snapshot(lake: Lake) -> None:
    """Go back to the snapshot of the run before the last one."""
    iceberg, delta = _iceberg(lake), _delta(lake)
    last = iceberg.current_snapshot()
    if last is None or last.parent_snapshot_id is None:
        raise LookupError(f"{ICEBERG} has no two snapshots")
    iceberg.manage_snapshots().set_current_snapshot(last.parent_snapshot_id).commit()
    delta.restore(delta.version() - 1)


CHANGES: Mapping[str, Callable[[Lake], None]] = MappingProxyType(
    {
        "a copy, with a row added by hand": add_row,
        "a copy, with a row taken out by hand": remove_row,
        "a copy, with the last snapshot taken back": take_back_snapshot,
    }
)


def _iceberg(lake: Lake) -> Table:
    from pyiceberg.catalog import load_catalog

    properties = {name.removeprefix("iceberg."): text for name, text in lake.settings.items()}
    return load_catalog("default", **properties).load_table(ICEBERG)


def _delta(lake: Lake) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(lake.delta_folder)


def _renamed(rows: pa.Table) -> pa.Table:
    """Return the first row, as that of another carrier."""
    import pyarrow as pa

    (row,) = rows.slice(0, 1).to_pylist()
    return pa.Table.from_pylist([row | {"carrier": "by hand"}], schema=rows.schema)
