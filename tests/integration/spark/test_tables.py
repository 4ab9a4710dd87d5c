"""Runs on Spark and a real broker land in tables, which DuckDB reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.tables.connections import open_tables
from tests.conftest import TESTS
from tests.support.kafka.in_process import Application
from tests.support.spark.gated_scene import Scene
from tests.support.tables.duckdb_reader import delta_rows, iceberg_rows

if TYPE_CHECKING:
    import pytest

_QUERY = "SELECT count(*), count(DISTINCT n), sum(n) FROM {table}"


def test_each_run_is_one_snapshot_of_an_iceberg_and_of_a_delta_table(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{scene.folder}/catalog.db",
        "warehouse": f"file://{scene.folder}/warehouse",
    }
    settings = {f"iceberg.{name}": text for name, text in catalog.items()}
    settings["delta.aws_secret_access_key"] = "canary-of-storage"
    scene.application = TESTS / "applications" / "landed_numbers.py"
    scene.client = settings
    scene.launch = {"KSTREAMS_TEST_DELTA_TABLE": str(scene.folder / "numbers")}
    for name, text in {**scene.environment, **scene.launch}.items():
        monkeypatch.setenv(name, text)
    application = Application(
        application_id=scene.application_id,
        topology=ApplicationFile.read(scene.application).topology(),
        bootstrap=scene.bootstrap,
        tables=open_tables(settings),
    )
    # One driver makes two runs: it finishes the one that was begun, and then its own. Tasks close a file for
    # each record: 100 files are more than the driver merges itself, 60 are not.
    scene.publish(0, 50)
    application.begin("run-1")
    scene.publish(50, 80)
    driver = scene.start("run-2", num_stream_threads="2", commit_every_records="1")
    assert driver.wait(240) == 0, driver.output()[-6000:]
    assert "canary-of-storage" not in driver.output()

    assert application.run("run-3").empty

    iceberg = load_catalog("default", **catalog).load_table("lake.numbers")
    runs = [
        each.summary["kstreams.run-id"] for each in iceberg.metadata.snapshots if each.summary is not None
    ]
    assert runs == ["run-1", "run-2"]
    delta = DeltaTable(str(scene.folder / "numbers"))
    assert delta.version() == 2, "it was made, and two runs have landed"
    assert "run run-1: 100 small files are merged into 2" in driver.output()
    assert "run run-2: 60 small files are merged into 2" in driver.output()
    assert (len(iceberg.inspect.files()), len(delta.file_uris())) == (2, 2)
    expected = [(80, 80, sum(range(80)))]
    assert iceberg_rows(iceberg.metadata_location.removeprefix("file://"), _QUERY) == expected
    assert delta_rows(str(scene.folder / "numbers"), _QUERY) == expected
