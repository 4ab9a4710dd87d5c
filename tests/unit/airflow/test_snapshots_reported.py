"""What Airflow is told of the snapshots of tables that a run has made."""

from __future__ import annotations

import json
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from airflow.sdk import Asset

from airflow_kstreams.batch.ledger.facts import LandedTable
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.report.lineage import TableUse, event_extra, lineage_of
from airflow_kstreams.batch.report.results import MAX_RESULT_BYTES, result_of_slice, result_of_summary
from airflow_kstreams.operators.work.lineage_facets import _facets, announced
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.tables.scene import APP, TABLE, Scene

SNAPSHOT = {
    "table": TABLE,
    "table_id": "table-1",
    "sequence": 1,
    "snapshot": "1",
    "rows": 1,
    "files": 1,
}
DELTA = LandedTable(
    table_id="d", sequence=7, run_id="r1", rows=3, format="delta", location="s3://lake/flights/carriers"
)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def told(summary: RunSummary, *outlets: Any) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """The assets that are updated, and what their events say."""
    events: dict[str, Any] = defaultdict(lambda: SimpleNamespace(extra={}))
    by_name = type("Events", (), {"__getitem__": lambda _, asset: events[asset.name]})()
    context: Any = {"outlet_events": by_name}
    settings = ApplicationSettings.parse(APP)
    updated = announced(context, outlets, summary, settings, for_backfills=False)
    return [asset.name for asset in updated], {name: event.extra for name, event in events.items()}


def test_events_and_results_have_the_snapshots_that_the_run_made(scene: Scene) -> None:
    summary = scene.run("r1")
    assert event_extra(summary)["tables"] == {TABLE: SNAPSHOT}
    result = result_of_summary(summary)
    assert (result["snapshots"], result["snapshots_omitted"]) == ({TABLE: SNAPSHOT}, 0)
    nothing_new = scene.application().run("r2")
    assert nothing_new.tables[TABLE].run_id == "r1", "the last commit is another run's"
    assert "tables" not in event_extra(nothing_new)
    assert result_of_summary(nothing_new)["snapshots"] == {}


def test_asset_of_a_table_is_updated_with_each_snapshot_and_with_no_run_without_one(scene: Scene) -> None:
    by_name, other = Asset(name=TABLE, uri="iceberg://lake/lines"), Asset("totals")
    updated, said = told(scene.run("r1"), by_name, other)
    assert updated == [TABLE, "totals"]
    assert said[TABLE]["snapshot"] == SNAPSHOT
    assert "snapshot" not in said["totals"]
    assert said["totals"]["tables"] == {TABLE: SNAPSHOT}
    updated, said = told(scene.application().run("r2"), by_name, other)
    assert updated == ["totals"]
    assert list(said) == ["totals"]


def test_asset_is_known_by_the_uri_of_a_delta_table(scene: Scene) -> None:
    summary = msgspec.structs.replace(scene.run("r1"), tables={"carriers": DELTA})
    updated, said = told(summary, Asset(name="c", uri="s3://lake/flights/carriers"))
    assert updated == ["c"]
    assert said["c"]["snapshot"]["sequence"] == 7


def test_result_stays_small_when_a_run_writes_many_tables(scene: Scene) -> None:
    many = {f"table-{number}": DELTA for number in range(100)}
    result = result_of_summary(msgspec.structs.replace(scene.run("r1"), tables=many))
    assert len(json.dumps(result)) <= MAX_RESULT_BYTES
    assert len(result["snapshots"]) + result["snapshots_omitted"] == 100
    assert result["snapshots"]


def test_tables_are_datasets_of_the_lineage(scene: Scene) -> None:
    scene.send()
    slice_ = scene.application().begin("r1")
    assert lineage_of(slice_, "b:1").tables == (TableUse("iceberg", TABLE, None),)
    assert result_of_slice(slice_)["snapshots"] == {}
    app = scene.application()
    app.tasks(slice_)
    summary = app.finish("r1")
    local = msgspec.structs.replace(DELTA, location="/data/carriers")
    lineage = lineage_of(
        msgspec.structs.replace(summary, tables={**summary.tables, "c": DELTA, "l": local}), "b:1"
    )
    assert set(lineage.tables) == {
        TableUse("iceberg", TABLE, 1),
        TableUse("s3://lake", "flights/carriers", 3),
        TableUse("file", "/data/carriers", 3),
    }
    facets = _facets(APP, lineage)
    assert facets is not None
    outputs = {(each.namespace, each.name): each.outputFacets for each in facets.outputs}
    assert outputs["s3://lake", "flights/carriers"]["outputStatistics"].rowCount == 3
