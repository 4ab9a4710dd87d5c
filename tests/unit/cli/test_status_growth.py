"""What ``status`` shows of topics under state that have grown, on the in-memory Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kstreams.streams import FixedGroups, KStreamBuilder, Topology, serdes
from tests.unit.batch.run.test_partition_expansion import KEYS, Scene
from tests.unit.cli.test_app import invoke

if TYPE_CHECKING:
    import pytest


def shown(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[list[str]]]:
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *given, **named: scene.kafka)
    result = invoke("status", "--application-id", "app", "--bootstrap-server", "in-memory:9092")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout, [line.split() for line in result.stdout.splitlines()]


def test_topic_is_shown_as_it_began_when_it_has_not_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    text, cells = shown(scene, monkeypatch)
    assert ["0", "in", "2", "-", "2", "2", "2"] in cells
    assert "Tasks of topics that have grown" not in text
    assert "that wait" not in text


def test_growth_mapping_and_what_waits_are_shown_when_a_topic_has_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.send(KEYS, 1)
    scene.grow(5)
    text, _ = shown(scene, monkeypatch)
    assert "2, the next run finds 5" in text
    scene.send(KEYS, 2)
    # What the ancestors hold is cut short of their boundaries, so that partitions wait after the run, too.
    slice_ = scene.app.begin("run-2")
    text, cells = shown(scene, monkeypatch)
    assert ["0", "in", "2", "->", "5", "linear", "2", "5", "2"] in cells
    assert ["0_0", "in", "0,", "2", "(from", "0),", "4", "(from", "0)"] in cells
    assert ["0_1", "in", "1,", "3", "(from", "1)"] in cells
    to = scene.recorded.boundaries["in-3"][1]
    assert ["in-3", "0_1", "in-1", "(at", "19", "of", f"{to})", str(to - 19)] in cells
    scene.app.tasks(slice_)
    scene.app.finish("run-2")
    text, cells = shown(scene, monkeypatch)
    assert ["in-3", "0_1", "nothing", "any", "more:", "the", "next", "run", "reads", "it", "0"] in cells
    scene.runs = 2
    scene.run()
    text, _ = shown(scene, monkeypatch)
    assert "Partitions that wait" not in text


def grouped() -> Topology:
    builder = KStreamBuilder(
        default_key_serde=serdes.string(), default_value_serde=serdes.json(), partition_grouper=FixedGroups(2)
    )
    builder.stream("in").group_by_key().count(store="counted").to_stream().send_to("out")
    return builder.build()


def test_first_count_is_not_known_when_a_grouper_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(4, grouped())
    scene.send(KEYS, 0)
    scene.run()
    _, cells = shown(scene, monkeypatch)
    assert ["0", "in", "4", "-", "-", "4", "2"] in cells


def test_rows_are_left_out_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(30)
    scene.send(KEYS, 0)
    scene.run()
    scene.send(KEYS, 1)
    scene.grow(60)
    scene.send(KEYS, 2)
    scene.app.begin("run-2")
    text, _ = shown(scene, monkeypatch)
    _, _, mapping = text.partition("Tasks of topics that have grown")
    mapping, _, waiting = mapping.partition("Partitions that wait")
    assert "0_19" in mapping and "0_20" not in mapping and "10 more" in mapping
    assert waiting.count(" (at ") <= 20
