"""What ``status`` shows of topics under state that have grown, on the in-memory Kafka."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from unittest import mock

import msgspec
import pytest

from airflow_kstreams.batch.inspect import status
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.report.growing import expansion_rows
from airflow_kstreams.streams import FixedGroups, KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.streams.ports import TopicPartition
from tests.unit.batch.expand.test_processor_expansion import begin_to_copy, expand, grown
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene
from tests.unit.cli.test_app import invoke

pytestmark = pytest.mark.promise("expansions-that-do-not-arrive-are-said", "blocked-partitions-are-said")


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


def test_new_processors_are_shown_with_what_they_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = grown()
    assert "Processors on their way" not in shown(scene, monkeypatch)[0]
    begin_to_copy(scene, 4, records=20)
    ends = [changelog_end(scene, number) for number in (0, 1)]
    text, cells = shown(scene, monkeypatch)
    assert "Processors on their way: 2 -> 4 of subtopology 0, 0 runs finished meanwhile" in text
    copied = next(row for row in cells if row[:2] == ["0_2", "0_0"])
    assert copied[2:5] == [copied[2], "of", str(ends[0])]
    assert 0 < int(copied[2]) < ends[0]
    assert f"the next run, if acceptable.recovery.lag is {ends[0] - int(copied[2])} or more" in text
    assert ["0_3", "0_1", "0", "of", str(ends[1]), "-", "-", "its", "state", "to", "be", "copied"] in cells
    scene.run()
    assert "1 run finished meanwhile" in shown(scene, monkeypatch)[0]
    expand(scene, 4)
    _, cells = shown(scene, monkeypatch)
    whole = ["0_3", "0_1", str(ends[1]), "of", str(ends[1])]
    assert any(row[:5] == whole and row[-3:] == ["the", "next", "run"] for row in cells)
    scene.run()
    text, cells = shown(scene, monkeypatch)
    assert "Processors on their way" not in text
    assert ["0", "in", "2", "->", "4", "linear", "or", "modulo,", "alike", "here", "2", "4", "4"] in cells


def test_new_processors_wait_for_partitions_whose_ancestors_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(2)
    scene.send(KEYS, 0)
    scene.run()
    scene.send(KEYS, 1)
    scene.grow(4)
    scene.send(KEYS, 2)
    slice_ = scene.app.begin("run-2")
    scene.runs = 2
    expand(scene, 4)
    _, cells = shown(scene, monkeypatch)
    to = scene.recorded.boundaries["in-3"][1]
    (row,) = [row for row in cells if row[:2] == ["0_3", "0_1"]]
    assert " ".join(row).endswith(f"in-3 to be read, after in-1 (at 19 of {to})")
    scene.app.tasks(slice_)
    scene.app.finish("run-2")
    assert "to be read, after" not in shown(scene, monkeypatch)[0]


def test_time_that_is_left_is_shown_while_a_copy_is_at_work() -> None:
    scene = grown()
    begin_to_copy(scene, 4, records=20)
    (plan,) = read_status(scene.kafka, "app").expansions or ()
    told = msgspec.structs.replace(plan.sources[0].told, rate=10.0, stepped_ms=1_000_000)
    source = dataclasses.replace(plan.sources[0], position=100, end=400, told=told)
    plan = dataclasses.replace(plan, sources=(source,))
    rows = [next(expansion_rows(plan, (), now_ms)) for now_ms in (1_010_000, 1_100_000)]
    assert rows[0][2:5] == ("100 of 400", "10", "30 s")
    assert rows[1][2:5] == ("100 of 400", "10", "-")


def test_status_says_that_it_may_not_see_new_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = grown()
    group = Permission(operation=Operation.DESCRIBE, resource=Resource.GROUP, name="app-catchup")
    denied = AccessDeniedError(what="asking", where="here", permission=group, principal="", kafka_code="X")
    with mock.patch.object(status, "expansions", side_effect=denied):
        text, _ = shown(scene, monkeypatch)
    assert "unknown: this user may not describe their group or the changelogs" in text


def changelog_end(scene: Scene, partition: int) -> int:
    with closing(scene.kafka.admin()) as admin:
        tp = TopicPartition("app-listed-changelog", partition)
        return admin.end_offsets([tp], isolation="read_committed")[tp]


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
