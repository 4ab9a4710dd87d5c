"""``airflow-kstreams tables`` on a Kafka and on tables in memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from airflow_kstreams.cli.app import app
from airflow_kstreams.testing import InMemoryKafka
from tests.support.command_line import fitting, json_of
from tests.support.tables.beside_topics import TABLE
from tests.support.tables.landed_scene import APP, LandedScene, file_of
from tests.support.tables.packed_rows import unpacked

APPLICATION = """
from tests.support.tables.beside_topics import topology
"""


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandedScene:
    """Two runs; the commands run in the folder of the application file."""
    made = LandedScene()
    made.run("r1", 3)
    made.run("r2", 2)
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *_, **__: made.kafka)
    monkeypatch.setattr("airflow_kstreams.tables.connections.open_tables", lambda _: made.tables)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    Path("lines.py").write_text(APPLICATION)
    Path("tables.json").write_text('{"iceberg.type": "sql"}')
    return made


def tables(action: str, *more: str, config: bool = True) -> Result:
    named = ["--application-id", APP, "--bootstrap-server", "in-memory:9092"]
    named += ["--tables-config", "tables.json"] if config else []
    return CliRunner().invoke(app, ["tables", "lines.py", action, *named, *more])


def test_list_shows_each_table_beside_the_ledger(scene: LandedScene) -> None:
    result = tables("list")
    assert result.exit_code == 0, result.output
    assert f"{TABLE}   iceberg   {TABLE}   ready" in result.stdout
    assert "r2    2             2        2      2       1" in result.stdout
    (table,) = json_of(tables("list", "--json"), "tables")["tables"]
    assert (table["mark"], table["sequence"], table["rows"], table["run_id"]) == (2, 2, 2, "r2")


def test_check_fails_once_a_row_was_added_by_hand(scene: LandedScene) -> None:
    result = tables("check")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Tables and ledger agree." in result.stdout
    scene.other.append(file_of(1))
    result = tables("check")
    assert result.exit_code == 1
    assert "a snapshot of no run (append) changed rows: 1 added, 0 taken out" in result.stdout
    assert "1 difference between tables and ledger." in result.stdout
    result = tables("check", "--json")
    assert result.exit_code == 1
    (difference,) = fitting(result.stdout, "tables check")["differences"]
    assert difference["snapshot"] == "3"
    assert tables("check", "--allow-others").exit_code == 0


def test_check_says_what_an_accepted_rollback_took_back_and_succeeds(scene: LandedScene) -> None:
    scene.other.roll_back("1")
    assert tables("check").exit_code == 1
    assert tables("accept").exit_code == 0
    result = tables("check")
    assert result.exit_code == 0, result.output
    assert f"{TABLE}: 1 run taken back by an accepted rollback." in result.stdout
    (table,) = json_of(tables("check", "--json"), "tables check")["tables"]
    assert (table["runs"], table["taken_back"], table["rows"]) == (1, 1, 3)


@pytest.mark.parametrize(
    ("choice", "planned", "done", "left"),
    [("remove", "would be taken out", "was taken out", 0), ("keep", "come again", "come again", 5)],
)
def test_reset_says_what_becomes_of_rows_that_come_again(
    scene: LandedScene, choice: str, planned: str, done: str, left: int
) -> None:
    asked = ["reset", "--application-id", APP, "--bootstrap-server", "in-memory:9092", "--input-topics", "in"]
    asked += ["--tables-config", "tables.json"]
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code == 1
    assert "add --tables remove, and the reset takes them out, or --tables keep" in refused.stderr
    for more, said in ((["--dry-run"], planned), ([], done)):
        result = CliRunner().invoke(app, [*asked, "--tables", choice, *more])
        assert result.exit_code == 0, result.output
        for run_id in ("r1", "r2"):
            assert re.search(f"rows of run {run_id} in {TABLE} +{said}", result.stdout)
    assert len(scene.tables.rows(TABLE, unpacked)) == left
    assert CliRunner().invoke(app, [*asked, "--tables", "drop"]).exit_code != 0


def test_orphans_are_listed_and_deleted_when_told(
    scene: LandedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files in memory are named after their task alone.
    monkeypatch.setattr("airflow_kstreams.tables.parquet.parquet_files.file_prefix", lambda _: "0_")
    scene.other.drop()
    scene.tables.table(scene.plan.tables[0]).create(scene.plan.tables[0].columns, ())
    port = scene.tables.table(scene.plan.tables[0])
    look = port.look()
    assert look is not None
    left = port.files(look).path("0_0-left")
    with port.files(look).create(left) as file:
        file.write(b"rows")
    result = tables("orphans", "--older-than", "1m")
    assert result.exit_code == 0, result.output
    assert "1 file of app, 4 bytes" in result.stdout
    assert left in scene.tables.stored
    document = json_of(tables("orphans", "--delete", "--older-than", "1m", "--json"), "tables orphans")
    assert [each["deleted"] for each in document["files"]] == [True]
    assert left not in scene.tables.stored


def test_expire_keeps_so_many_snapshots(scene: LandedScene) -> None:
    document = json_of(tables("expire", "--keep", "1", "--json"), "tables expire")
    assert document["tables"] == [{"table": TABLE, "format": "iceberg", "before": 2, "after": 1}]
    assert tables("expire", "--keep", "1").exit_code == 0


def test_accept_takes_a_table_as_it_is(scene: LandedScene) -> None:
    scene.other.make_anew()
    result = tables("accept")
    assert result.stdout == f"{TABLE}: accepted: table table-2 takes the place of table table-1\n"
    document = json_of(tables("accept", "--json"), "tables accept")
    assert [each["changed"] for each in document["tables"]] == [False]


def test_tables_need_settings(scene: LandedScene) -> None:
    result = tables("list", config=False)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "it is not said where tables are" in result.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("expire",),
        ("list", "--keep", "3"),
        ("check", "--delete"),
        ("orphans", "--older-than", "three days"),
        ("vacuum",),
    ],
)
def test_wrong_command_lines_are_refused(scene: LandedScene, wrong: tuple[str, ...]) -> None:
    assert tables(*wrong).exit_code == 2
    assert isinstance(scene.kafka, InMemoryKafka)
