"""Slices that an earlier version has begun, and whose tasks notified once per pair of partitions."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.protocol.slice.metadata import read_metadata
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.kafka.reset_scene import APP, METADATA, REPARTITION, ResetScene
from tests.support.kafka.stored_slices import RUN, stored_slice

COUNTS = {"a": 2, "b": 1, "c": 1, "x": 1}
MID = [TopicPartition("mid", number) for number in range(2)]


def finish(scene: ResetScene) -> list[str]:
    """Take the run over, as a driver does after the upgrade, and finish it; return the tasks that ran."""
    driver = scene.coordinator()
    slice_ = scene.begin(RUN, coordinator=driver, order=2)
    ran = []
    for subtopology in (0, 1, 2):
        for share in driver.unfinished(slice_, subtopology):
            scene.application().launched(slice_, share)
            ran.append(f"{subtopology}_{share.group}")
        assert driver.unfinished(slice_, subtopology) == []
    driver.finish(RUN)
    driver.close()
    return ran


def told(scene: ResetScene) -> dict[str, str]:
    """The metadata topic's keys and values."""
    live = {(r.key() or b"").decode(): r.value() for r in scene.kafka.records(METADATA)}
    return {key: value.decode() for key, value in live.items() if value is not None}


@pytest.mark.parametrize(
    ("how_far", "left"),
    [
        ("begun", ["0_0", "0_1", "1_0", "1_1", "2_0", "2_1"]),
        ("one of two", ["0_1", "1_0", "1_1", "2_0", "2_1"]),
        ("all of the first", ["1_0", "1_1", "2_0", "2_1"]),
        ("half of the second", ["1_0", "2_0", "2_1"]),
    ],
)
def test_run_goes_on_where_it_stood_when_the_package_was_upgraded_in_the_middle(
    how_far: str, left: list[str]
) -> None:
    scene = stored_slice(how_far)
    ran = finish(scene)
    assert [task for task in ran if not task.startswith("2")] == [t for t in left if not t.startswith("2")]
    assert dict(scene.counts()) == COUNTS
    scene.send("a")
    scene.run("run-2")
    assert dict(scene.counts()) == {"a": 3}


def test_complete_pairs_are_the_stops_when_outsiders_have_written_more() -> None:
    scene = stored_slice("all of the first")
    pairs = {
        tp: max(int(v) for k, v in told(scene).items() if k.endswith(f"-mid_{tp.partition}")) for tp in MID
    }
    scene.kafka.append("mid", b"late", b"k", partition=0)
    driver = scene.coordinator()
    slice_ = scene.begin(RUN, coordinator=driver, order=2)
    stops = {TopicPartition("mid", s.group): s.spans[0].stop_offset for s in driver.unfinished(slice_, 1)}
    assert stops == pairs
    assert read_metadata(scene.kafka, APP, clock=scene.clock).intermediate_stops == {}
    driver.close()


def test_high_watermarks_are_the_stops_when_pairs_are_incomplete() -> None:
    scene = stored_slice("one of two")
    assert sorted(key for key in told(scene) if "-mid_" in key) == ["in_0-mid_0", "in_0-mid_1"]
    finish(scene)
    after = told(scene)
    assert after[f"{APP}-0_1"] == "done"
    assert f"{APP}-0_0" not in after, "its pairs were all there"
    found = read_metadata(scene.kafka, APP, clock=scene.clock).intermediate_stops
    assert {tp for tp in found if tp.topic == "mid"} == {*MID}
    assert {tp for tp in found if tp.topic == REPARTITION} == {
        TopicPartition(REPARTITION, n) for n in range(2)
    }


def test_task_notifies_once_more_when_one_of_its_pairs_was_overwritten() -> None:
    scene = stored_slice("all of the first")
    scene.kafka.append(METADATA, b"1", b"in_1-mid_0")  # another program's, in the bare format
    assert finish(scene)[:1] == ["0_1"]
    assert dict(scene.counts()) == COUNTS
