"""``airflow-kstreams doctor`` on a real broker: what it finds, what it prints to mend it, and that it only
looks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.streams.topology.loader import load_topology
from tests.conftest import read_rows
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import execute, printed_commands, topics_of

pytestmark = pytest.mark.promise("doctor-finds-settings")

APPLICATION = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    counts = builder.stream("{source}").group_by(lambda _, value: value).count(store="counts")
    counts.to_stream().send_to("{target}", value_serde=serdes.int64())
    return builder.build()
"""


class Scene:
    """An application file, its runs, and a doctor who looks at it."""

    def __init__(self, kafka: str, application_id: str, file: Path, source: str, target: str) -> None:
        self.kafka, self.application_id, self.file = kafka, application_id, file
        self.source, self.target = source, target
        file.write_text(APPLICATION.format(source=source, target=target))
        self.app = Application(
            bootstrap=kafka, application_id=application_id, topology=load_topology(str(file))
        )

    def doctor(self, *options: str) -> subprocess.CompletedProcess[str]:
        named = ("--application-id", self.application_id, "--bootstrap-server", self.kafka)
        return subprocess.run(
            [sys.executable, "-m", "airflow_kstreams.cli", "doctor", str(self.file), *named, *options],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def protocol_log(self) -> list[Any]:
        topics = (f"{self.application_id}-metadata", f"{self.application_id}-runs")
        return [row for topic in topics for row in read_rows(self.kafka, topic, isolation="read_uncommitted")]


@pytest.fixture
def scene(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> Scene:
    source, target = create_topic(topic_name("in"), 2), create_topic(topic_name("out"), 1)
    produce(source, [("k", "a"), ("k", "b")])
    return Scene(kafka, application_id, tmp_path / "counting.py", source, target)


def test_doctor_only_looks_and_finds_no_error_on_a_sound_application(scene: Scene) -> None:
    unknown = scene.doctor()
    assert (unknown.returncode, unknown.stderr) == (1, "")
    before = scene.doctor("--first-run")
    assert before.returncode == 0, before.stdout + before.stderr
    scene.app.run("run-1")
    log = scene.protocol_log()
    found = scene.doctor()
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stderr == ""
    assert scene.protocol_log() == log
    assert "topic ids; transaction.partition.verification.enable=true" in found.stdout
    assert "one replica only of" in found.stdout, "the broker of the tests is alone"
    assert not re.search(r"^\s*error\b", found.stdout, re.MULTILINE)
    assert "finished; finished runs in the ledger: 1" in found.stdout


def test_what_the_doctor_finds_is_mended_by_what_he_prints(scene: Scene) -> None:
    scene.app.run("run-1")
    changelog = f"{scene.application_id}-counts-changelog"
    for topic, change in (
        (scene.source, "unclean.leader.election.enable=true,retention.ms=3600000"),
        (scene.target, "message.timestamp.before.max.ms=1,max.message.bytes=1000"),
        (changelog, "cleanup.policy=delete"),
    ):
        where = ["--entity-type", "topics", "--entity-name", topic, "--add-config", change]
        execute(["kafka-configs.sh", "--bootstrap-server", "<broker>", "--alter", *where], scene.kafka)
    ill = scene.doctor("--gap-hours", "2")
    assert ill.returncode == 1
    for check in (
        "unclean leader election",
        "input retention",
        "record times",
        "message size",
        "internal topics",
    ):
        assert check in ill.stdout
    commands = [c for c in printed_commands(ill.stdout) if c[1] == "topics"]
    assert {topic for command in commands for topic in topics_of(command)} == {
        scene.source,
        scene.target,
        changelog,
    }
    for command in commands:
        execute(command, scene.kafka)
    mended = scene.doctor("--gap-hours", "2")
    assert mended.returncode == 0, mended.stdout
    assert [c for c in printed_commands(mended.stdout) if c[1] == "topics"] == []


def test_settings_that_begin_would_refuse_are_errors(scene: Scene) -> None:
    found = scene.doctor("--setting", "transaction.timeout.ms=1000000")
    assert found.returncode == 1
    assert "exceeds the broker's limit transaction.max.timeout.ms = 900000" in " ".join(found.stdout.split())
