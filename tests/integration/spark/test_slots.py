"""The spec's deadlock DAG on real Spark: two tasks write the topic that two others read."""

from __future__ import annotations

import pytest

from tests.support.spark.gated_scene import Scene

pytestmark = pytest.mark.promise("intermediate-topics-are-drained")


@pytest.mark.parametrize("slots", [1, pytest.param(4, marks=pytest.mark.prove)])
def test_deadlock_dag_ends_when_spark_has_one_slot_or_four(
    scene: Scene, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER", f"local[{slots},4]")
    scene.publish(0, 200)
    driver = scene.start("run-1")
    assert driver.wait() == 0, driver.output()[-6000:]
    assert scene.results() == scene.sums(scene.sent)
