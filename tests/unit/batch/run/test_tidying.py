"""Tables are tidied up behind the finished marker; what fails there fails no run."""

from __future__ import annotations

import pytest

from airflow_kstreams.testing.faults import FaultyTables
from tests.support.kafka.in_process import Application
from tests.support.tables.packed_rows import packed_merges
from tests.support.tables.scene import TABLE, Down, Scene, topology


@pytest.fixture
def scene() -> Scene:
    return Scene()


def snapshots(scene: Scene) -> list[str | None]:
    line = scene.tables.state(TABLE).line()
    return [each.snapshot.summary.get("kstreams.run-id") for each in line][::-1]


def test_snapshots_expire_after_each_finish_when_the_sink_says_how_many_to_keep(scene: Scene) -> None:
    keeping = topology(expire_snapshots=2)
    assert [scene.run(run_id, keeping).tables[TABLE].sequence for run_id in ("r1", "r2", "r3")] == [1, 2, 3]
    assert snapshots(scene) == ["r2", "r3"]
    scene.run("r4", topology())
    assert snapshots(scene) == ["r2", "r3", "r4"]
    assert scene.rows() == scene.sent


@pytest.mark.parametrize("call", ["table.expire", "files.delete"])
def test_next_finish_expires_when_this_one_could_not(
    scene: Scene, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    keeping = topology(expire_snapshots=1)
    scene.run("r1", keeping)
    app = scene.application(keeping, tables=FaultyTables(scene.tables, Down(call)))
    app.settings = {"commit.every.records": 1}
    app.make_merges = packed_merges(scene.tables)
    for _ in range(2):
        scene.send()
    assert app.run("r2").tables[TABLE].rows == 2
    assert "what the next finish does, too, failed: no answer" in caplog.text
    assert snapshots(scene) == ["r1", "r2"]
    scene.run("r3", keeping)
    assert snapshots(scene) == ["r3"]
    assert scene.rows() == scene.sent
    # Two files that were merged: behind the marker no finish looks for them again.
    left = {path for path in scene.tables.stored if path not in scene.tables.state(TABLE).files}
    assert len(left) == (2 if call == "files.delete" else 0)


def test_finish_that_is_repeated_changes_no_table(scene: Scene) -> None:
    app: Application = scene.application(topology(expire_snapshots=1))
    scene.send()
    app.run("r1")
    before = scene.tables.state(TABLE)
    app.finish("r1")
    assert scene.tables.state(TABLE) is before
