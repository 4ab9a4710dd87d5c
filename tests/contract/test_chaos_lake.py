"""The verifier of the rounds with tables reads, without the formats' libraries, what commits have left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_kstreams.streams.table_plan import Column
from dev.chaos_rounds.tables.lake import FoundTable, Lake
from dev.chaos_rounds.tables.names import TableName
from dev.chaos_rounds.topics import APPLICATION_ID
from tests.support.tables.stands import Stand, commit_of, delta_stand, iceberg_stand, looked

COLUMNS = (Column("id", "long"), Column("_run", "text"))


@pytest.fixture(params=("iceberg", "delta"))
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    if request.param == "delta":
        return delta_stand(f"{tmp_path}/carriers", {})
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}"
    settings = {"iceberg.type": "sql", "iceberg.uri": uri, "iceberg.warehouse": warehouse}
    return iceberg_stand(settings, name="chaos")


def test_verifier_finds_rows_snapshots_marks_and_missing_files(stand: Stand, tmp_path: Path) -> None:
    name = TableName("delta" if stand.format == "delta" else "iceberg", "carriers")
    port = stand.port()
    port.create(COLUMNS, ())
    paths = []
    for sequence, rows in enumerate(({"id": 1, "_run": "run-1"}, {"id": 2, "_run": "run-2"}), start=1):
        look = looked(port)
        file = stand.write(port, look, rows)
        paths.append(file.path)
        commit = commit_of(sequence, file, application_id=APPLICATION_ID, sink=name.sink)
        said = {**commit.summary, "kstreams.application-id": APPLICATION_ID}
        port.commit(look, replace(commit, summary=said))
    stand.other.append({"id": 3, "_run": "other"})

    found = _read(name, tmp_path)

    assert sorted(row["id"] for row in found.rows) == [1, 2, 3]
    made = [snapshot for snapshot in found.snapshots if snapshot.added]
    assert [snapshot.run_id for snapshot in made] == ["run-1", "run-2", ""]
    runs = [{run for path in snapshot.added for run in found.runs_of_files[path]} for snapshot in made]
    assert runs == [{"run-1"}, {"run-2"}, {"other"}]
    assert (found.mark, found.missing) == (2, [])
    _local(paths[0], tmp_path).write_bytes(b"cut")
    _local(paths[1], tmp_path).unlink()
    assert len(_read(name, tmp_path).missing) == 2


def _read(name: TableName, folder: Path) -> FoundTable:
    return Lake({"catalog": f"{folder}/catalog.db", "root": str(folder)}).table(name)


def _local(path: str, folder: Path) -> Path:
    return folder / "carriers" / path if "/" not in path else Path(path.removeprefix("file://"))
