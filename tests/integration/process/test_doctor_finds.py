"""Each fault alone, around an application on a real broker: doctor finds it, and nothing else that it would
not find without it; and what it says to do takes the finding away.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.inspect.doctor import Level
from airflow_kstreams.cli.app import app
from airflow_kstreams.inspect.surroundings import connection_checks, executor_checks
from airflow_kstreams.launch import installation
from airflow_kstreams.spark.driver import print_executors
from airflow_kstreams.streams.topology.loader import load_topology
from dev.servers.embedded import Broker
from tests.conftest import Row
from tests.support.command_line import fitting
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import execute, printed_commands
from tests.support.kafka.registry_server import registry_server
from tests.support.remedies import walked

APPLICATION = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("{source}").send_to("{target}")
    return builder.build()
"""
TYPES = ("GET", "/schemas/types")


@dataclass(kw_only=True)
class Scene:
    """An application that has run, its machine, and doctor.

    :param options: of doctor, besides the application's.
    """

    kafka: str
    application_id: str
    file: Path
    source: str
    broker: Broker
    produce: Callable[..., None]
    patch: pytest.MonkeyPatch
    folder: Path
    options: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def findings(self) -> list[dict[str, Any]]:
        """What doctor finds, apart from what is well."""
        named = ["doctor", str(self.file), "--application-id", self.application_id, "--json"]
        config = self.folder / "client.properties"
        config.write_text("\n".join((f"bootstrap.servers={self.kafka}", *self.settings)))
        result = CliRunner().invoke(app, [*named, "--config-file", str(config), *self.options])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        assert result.stdout, result.output
        found = fitting(result.stdout, "doctor")["findings"]
        return [each for each in found if each["level"] != "ok"]

    def faults(self) -> list[str]:
        """The codes of warnings and errors."""
        return sorted(each["code"] for each in self.findings() if each["level"] != "not looked at")

    def script(self, name: str, text: str) -> str:
        """An executable script."""
        made = self.folder / name
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(f"#!/bin/sh\n{text}\n")
        made.chmod(stat.S_IRWXU)
        return str(made)


@pytest.fixture
def scene(
    broker: Broker,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Scene]:
    for name in ("AIRFLOW_HOME", "SPARK_HOME", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    source, target = create_topic(topic_name("in"), 1), create_topic(topic_name("out"), 1)
    file = tmp_path / "copying.py"
    file.write_text(APPLICATION.format(source=source, target=target))
    produce(source, [("k", "a")])
    topology = load_topology(str(file))
    Application(bootstrap=broker.bootstrap, application_id=application_id, topology=topology).run("run-1")
    with pytest.MonkeyPatch.context() as patch:
        yield Scene(
            kafka=broker.bootstrap,
            application_id=application_id,
            file=file,
            source=source,
            broker=broker,
            produce=produce,
            patch=patch,
            folder=tmp_path,
        )


# == faults, each with what takes it away; a patch of the environment is taken away by its end


def slow_clock(scene: Scene) -> None:
    now_ms = SystemClock.now_ms
    scene.patch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) - 700_000)


def no_java(scene: Scene) -> None:
    scene.patch.setenv("JAVA_HOME", str(scene.folder / "nowhere"))


def old_java(scene: Scene) -> None:
    scene.script("jdk/bin/java", "echo 'openjdk version \"11.0.2\"' >&2")
    scene.patch.setenv("JAVA_HOME", str(scene.folder / "jdk"))


def other_spark(scene: Scene) -> None:
    jars = scene.folder / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-core_2.13-3.5.1.jar").touch()
    scene.patch.setenv("SPARK_HOME", str(scene.folder / "spark"))


def mixed_pyspark(scene: Scene) -> None:
    scene.patch.setattr(
        installation, "version", lambda name: "4.1.0" if name == "pyspark-client" else version(name)
    )


def unwritable(scene: Scene) -> None:
    (scene.folder / "file").touch()
    scene.options = ("--setting", f"state.dir={scene.folder / 'file' / 'state'}")


def writable(scene: Scene) -> None:
    scene.options = ("--setting", f"state.dir={scene.folder / 'state'}")


def full_disk(scene: Scene) -> None:
    writable(scene)
    usage = shutil.disk_usage(scene.folder)._replace(free=1 << 20)
    scene.patch.setattr(shutil, "disk_usage", lambda _: usage)


def no_registry(scene: Scene) -> None:
    scene.settings = ("schema.registry.url=http://127.0.0.1:9",)


def undone(scene: Scene) -> None:
    scene.patch.undo()


def without_settings(scene: Scene) -> None:
    scene.settings = ()


def without_options(scene: Scene) -> None:
    scene.options = ()


FAULTS = [
    pytest.param(slow_clock, undone, "clocks-differ", id="a clock that is behind"),
    walked(
        "machine_checks.look_at_java: install Java {} or a later one, or", no_java, undone, "java-missing"
    ),
    walked(
        "machine_checks.look_at_java: install Java {} or a later one, and", old_java, undone, "java-too-old"
    ),
    walked("machine_checks.look_at_java: unset", other_spark, undone, "spark-home-differs"),
    pytest.param(mixed_pyspark, undone, "pyspark-mixed", id="pyspark beside another client"),
    walked("machine_checks.look_at_state_dir: let state.dir", unwritable, writable, "state-dir-unwritable"),
    walked("machine_checks.look_at_state_dir: make room", full_disk, undone, "disk-nearly-full"),
    pytest.param(no_registry, without_settings, "registry-unfit", id="no registry"),
]


@pytest.mark.promise("doctor-finds-what-surrounds")
@pytest.mark.parametrize(("plant", "mend", "code"), FAULTS)
def test_fault_is_found_alone_until_it_is_mended(
    scene: Scene, plant: Callable[[Scene], None], mend: Callable[[Scene], None], code: str
) -> None:
    plant(scene)
    found = scene.findings()
    faults = [each for each in found if each["level"] != "not looked at"]
    # The broker of the tests is alone.
    assert [each["code"] for each in faults if each["code"] != "one-replica"] == [code]
    assert all(each["fix"] for each in faults)
    mend(scene)
    assert scene.faults() == ["one-replica"]


def test_login_that_a_registry_refuses_is_found(scene: Scene) -> None:
    with registry_server() as registry:
        login = "Basic bWU6Z29vZA=="
        registry.by_request[TYPES] = lambda given, _: (
            (200, ["AVRO"]) if given == login else (401, {"message": "no"})
        )
        named = f"schema.registry.url={registry.url}"
        scene.settings = (named, "schema.registry.basic.auth.user.info=me:bad")
        assert scene.faults() == ["one-replica", "registry-unfit"]
        assert "refuses the credentials" in json.dumps(scene.findings())
        scene.settings = (named, "schema.registry.basic.auth.user.info=me:good")
        assert scene.faults() == ["one-replica"]


# == faults of the broker itself


def with_commands(scene: Scene) -> None:
    """Execute what the findings print."""
    texts = "\n".join(each["fix"] for each in scene.findings())
    for command in printed_commands(texts):
        if command[1] == "topics" and scene.source in command:
            execute(command, scene.kafka)


def test_records_that_expire_are_found_until_the_command_lets_them_stay(scene: Scene) -> None:
    week = "--bootstrap-server <broker> --config retention.ms=604800000"
    execute(["airflow-kstreams", "topics", "set", scene.source, *week.split()], scene.kafka)
    scene.produce(scene.source, [Row(key="k", value="old", timestamp_ms=1_357_000_000_000)])
    assert scene.faults() == ["one-replica", "records-expire-unread"]
    with_commands(scene)
    assert scene.faults() == ["one-replica"]


@pytest.mark.parametrize("code", ["listener-unresolved", "listener-unreachable"])
def test_listener_of_a_broker_is_found_and_what_could_not_be_seen_is_said(scene: Scene, code: str) -> None:
    assert scene.broker.astray_port is not None
    assert scene.broker.proxy_port is not None
    # The broker sends clients of the one to no host, of the other to where its proxy would stand.
    ports = {
        "listener-unresolved": scene.broker.astray_port,
        "listener-unreachable": scene.broker.proxy_port + 1,
    }
    scene.kafka = f"127.0.0.1:{ports[code]}"
    found = scene.findings()
    assert [each["code"] for each in found if each["level"] == "error"] == [code]
    unseen = {each["code"] for each in found if each["level"] == "not looked at"}
    assert unseen & {"topics-and-ledger", "runs", "settings-of-topics"}
    scene.kafka = scene.broker.bootstrap
    assert scene.faults() == ["one-replica"]


def test_executors_are_looked_at_by_one_job(scene: Scene) -> None:
    scene.options = ("--spark",)
    scene.patch.setenv("MASTER", "local[1]")
    scene.patch.setenv("PYSPARK_PYTHON", sys.executable)
    assert "executors" not in {each["check"] for each in scene.findings()}
    scene.patch.setenv("PYSPARK_PYTHON", "/no/such/python")
    (fault,) = (each for each in scene.findings() if each["check"] == "executors")
    assert (fault["code"], "PYSPARK_PYTHON" in fault["fix"]) == ("executors-fail", True)


# == listeners


@pytest.mark.promise("doctor-finds-what-surrounds")
@pytest.mark.parametrize(
    ("host", "code"),
    [
        walked(
            "connection_checks._look_at_listener: let advertised", "broker.invalid", "listener-unresolved"
        ),
        walked("connection_checks._look_at_listener: start broker", "127.0.0.1", "listener-unreachable"),
    ],
)
def test_listener_is_found_until_it_is_advertised_where_it_can_be_reached(
    host: str, code: str, free_port: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        good = ("127.0.0.1", server.getsockname()[1])
        fault, well = connection_checks.look_at_listeners({1: good, 2: (host, free_port)})
        assert (fault.level, fault.code) == (Level.ERROR, code)
        assert fault.text.startswith(f"broker 2 is advertised at {host}:{free_port}, and ")
        assert well.text == f"reached from here: 127.0.0.1:{good[1]}"
        (well,) = connection_checks.look_at_listeners({1: good, 2: good})
        assert well.level is Level.OK


# == executors


@pytest.mark.remedy("executor_checks.look_at_executors")
def test_spark_that_is_slow_is_not_looked_at_until_it_is_given_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark would answer, and when, is played by a module."""
    packages = {"airflow-kstreams": "0.1.0", "confluent-kafka": "2.16.1", "msgspec": "0.22"}
    seen = {"host": "a", "packages": packages}
    answer = json.dumps({"here": {"packages": packages}, "workers": [seen], "master": "yarn"})
    (tmp_path / "played_spark.py").write_text(f"import time\ntime.sleep(1)\nprint({answer!r})\n")
    monkeypatch.setattr(executor_checks, "_MODULE", "played_spark")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def looked(seconds: float) -> list[tuple[Level, str]]:
        found = executor_checks.look_at_executors(environment, asked=True, seconds=seconds)
        return [(each.level, each.fix) for each in found]

    assert looked(1.1) == [(Level.UNSEEN, "wait longer for it: --timeout SECONDS")]
    assert looked(60.0) == [(Level.OK, "")]


def test_worker_tells_what_is_installed_where_it_runs() -> None:
    (told,) = next(print_executors.look(iter([None]))).to_pydict()["seen"]
    assert json.loads(told)["packages"]["confluent-kafka"] == version("confluent-kafka")


@pytest.mark.parametrize(
    ("there", "code"),
    [
        ({}, None),
        walked("executor_checks._judged", {"confluent-kafka": ""}, "executor-lacks-package"),
        ({"airflow-kstreams": "0.0.9"}, "executor-versions-differ"),
        ({"pandas": "2.2.0"}, "executor-versions-differ"),
    ],
)
def test_packages_of_executors_are_compared_with_those_here(there: dict[str, str], code: str | None) -> None:
    here = {"airflow-kstreams": "0.1.0", "confluent-kafka": "2.16.1", "msgspec": "0.22", "pandas": "2.3.0"}

    def judged(packages: dict[str, str]) -> list[str]:
        workers = [{"host": "a", "packages": packages}, {"host": "b", "packages": here}]
        found = executor_checks._judged({"here": {"packages": here}, "workers": workers, "master": "yarn"})
        return [each.code for each in found if each.fix]

    assert judged({**here, **there}) == ([code] if code else [])
    assert judged(here) == []
