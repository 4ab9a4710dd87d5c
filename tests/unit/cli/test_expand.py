"""``airflow-kstreams expand partitions`` on the in-memory Kafka: the plan, the growth, one line per error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_kstreams.streams import KStreamBuilder, serdes
from tests.support.command_line import json_of
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene
from tests.unit.cli.test_app import invoke

if TYPE_CHECKING:
    from typer.testing import Result

pytestmark = pytest.mark.promise("growth-is-refused-before-it-happens")

BROKER = ("--bootstrap-server", "in-memory:9092")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """An application with a run behind it, and with records that no run has read."""
    scene = Scene(2)
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *given, **named: scene.kafka)
    scene.send(KEYS, 0)
    scene.run()
    scene.send(KEYS, 1)
    return scene


def grow(*arguments: str, app: str = "app") -> Result:
    return invoke("expand", "partitions", *arguments, "--application-id", app, *BROKER)


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_plan_is_shown_and_nothing_changes_when_run_dry(scene: Scene) -> None:
    result = grow("in", "--to", "5", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = cells(result.stdout)
    assert ["partitions", "2", "->", "5"] in shown
    assert ["first", "count", "2"] in shown
    assert ["kinds", "of", "growth", "linear"] in shown
    assert ["in-2", "0_0", "in-0", "in-0", "(at", "21", "of", "42)"] in shown
    assert ["in-3", "0_1", "in-1", "in-1", "(at", "19", "of", "38)"] in shown
    assert "every producer must place them by LinearHashPartitioner({'in': 2})" in result.stdout
    assert "3 of the new partitions would wait" in result.stdout
    assert "What stays: 2 tasks" in result.stdout
    assert result.stdout.endswith("Dry run: nothing was changed.\n")
    document = json_of(grow("in", "--to", "5", "--dry-run", "--json"), "expand partitions")
    assert (document["before"], document["count"], document["kinds"]) == (2, 5, ["linear"])
    assert document["new"][0] == {
        "partition": 2,
        "task": "0_0",
        "keys_come_from": [0],
        "waits_for": ["in-0 (at 21 of 42)"],
    }
    assert len(scene.kafka.partitions("in")) == 2


def test_topic_has_as_many_partitions_as_were_asked_for_when_run(scene: Scene) -> None:
    result = grow("in", "--to", "4")
    assert (result.exit_code, result.stderr) == (0, "")
    assert ["kinds", "of", "growth", "linear", "or", "modulo,", "alike", "here"] in cells(result.stdout)
    assert "by Kafka's default partitioner, or by LinearHashPartitioner({'in': 2})" in result.stdout
    assert result.stdout.endswith("Done.\n")
    assert len(scene.kafka.partitions("in")) == 4
    again = grow("in", "--to", "4")
    assert (again.exit_code, again.stderr) == (0, "")
    assert "in has 4 partitions already." in again.stdout
    assert "New partitions" not in again.stdout


def test_rows_are_left_out_when_there_are_many(scene: Scene) -> None:
    result = grow("in", "--to", "40", "--dry-run")
    assert "in-21" in result.stdout and "in-22" not in result.stdout
    assert "18" in result.stdout.split("New partitions")[1]


def test_growth_is_said_to_be_free_when_there_is_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").send_to("out")
    scene = Scene(2, builder.build())
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *given, **named: scene.kafka)
    scene.send(KEYS, 0)
    scene.run()
    result = grow("in", "--to", "3")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "No state of application app depends on the keys of in." in result.stdout
    assert "LinearHash" not in result.stdout
    assert len(scene.kafka.partitions("in")) == 3


def test_settings_of_the_runs_are_taken(scene: Scene) -> None:
    result = grow("in", "--to", "4", "--setting", "initial.partitions=in=1")
    assert result.exit_code == 1
    assert "has state by 2" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "app", "code", "said"),
    [
        (["in", "--to", "1"], "app", 1, "topic in has 2 partitions, and a topic never loses any"),
        (["out", "--to", "4"], "app", 1, "does not read topic 'out', it only writes it"),
        (["in", "--to", "4"], "other", 1, "there is no application 'other' on this cluster"),
        (["in"], "app", 2, "--to"),
        (["in", "--to", "0"], "app", 2, "--to"),
        (["in", "--to", "4", "--setting", "settle"], "app", 2, "NAME=VALUE"),
    ],
)
def test_one_line_says_why_when_growth_is_refused(
    scene: Scene, arguments: list[str], app: str, code: int, said: str
) -> None:
    result = grow(*arguments, app=app)
    assert result.exit_code == code
    assert said in result.stderr
    if code == 1:
        assert len(result.stderr.splitlines()) == 1 and " -- what to do: " in result.stderr
    assert result.stdout == ""
    assert len(scene.kafka.partitions("in")) == 2
