"""What ``init`` writes: files that hold together, all or none."""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_kstreams.first_steps.project import Example, Project
from airflow_kstreams.streams.errors import ConfigError
from tests.support.remedies import walked

EXAMPLES: tuple[Example, ...] = ("orders", "flights", "empty")


def project(
    example: Example = "orders",
    application_id: str | None = None,
    bootstrap_servers: str = "localhost:9092",
    schedule: str = "@hourly",
) -> Project:
    return Project(
        example=example,
        application_id=application_id or f"my-{example}",
        bootstrap_servers=bootstrap_servers,
        schedule=schedule,
    )


@pytest.fixture
def modules() -> Iterator[None]:
    """Forget the modules that a test imports."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("my_", "test_my_")):
            del sys.modules[name]


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.usefixtures("modules")
def test_own_test_passes_when_a_project_is_written(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(example).write(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    written = importlib.import_module(f"test_my_{example}")
    tests = [getattr(written, name) for name in vars(written) if name.startswith("test_")]
    for test in tests:
        test()
    assert tests


def test_connections_can_be_read_by_a_shell_when_they_are_written(tmp_path: Path) -> None:
    servers = "a.example:9092,[::1]:9093"
    project(bootstrap_servers=servers).write(tmp_path)

    lines = shlex.split((tmp_path / "connections.env").read_text(), comments=True)
    values = dict(line.split("=", 1) for line in lines if line != "export")
    assert json.loads(values["AIRFLOW_CONN_KAFKA_DEFAULT"])["extra"] == {"bootstrap.servers": servers}
    assert json.loads(values["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] == "local[2,4]"
    assert values["KSTREAMS_BOOTSTRAP_SERVERS"] == servers
    assert values["KSTREAMS_APPLICATION_ID"] == "my-orders"


@pytest.mark.parametrize(
    ("application_id", "module"),
    [
        ("shop.orders-2", "shop_orders_2"),
        ("json", "json_app"),  # would hide Python's own
        ("airflow", "airflow_app"),
        ("class", "app_class"),
        ("2-orders", "app_2_orders"),
        ("test-orders", "test_orders_app"),
    ],
)
def test_module_has_a_name_of_its_own_when_the_id_cannot_be_one(application_id: str, module: str) -> None:
    assert project(application_id=application_id).module == module


@pytest.mark.promise("init-leaves-files")
@pytest.mark.remedy("project.Project.write: name another folder")
def test_nothing_is_written_when_one_file_exists(tmp_path: Path) -> None:
    (tmp_path / "connections.env").write_text("mine")

    with pytest.raises(ConfigError, match=r"exists already: .*connections\.env"):
        project().write(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["connections.env"]
    assert (tmp_path / "connections.env").read_text() == "mine"
    assert project().write(tmp_path / "another")


@pytest.mark.remedy("project.Project.write: name a folder that you may write to")
def test_nothing_is_written_when_a_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "dags").write_text("a file")

    with pytest.raises(ConfigError, match=r"nothing was written: .*dags"):
        project().write(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["dags"]
    assert project().write(tmp_path / "another")


@pytest.mark.parametrize(
    "schedule", ["hourly", "* * *", "0 * * * * *", '@daily"', walked("project.check_schedule", "")]
)
def test_schedule_is_refused_when_airflow_has_no_such(schedule: str) -> None:
    with pytest.raises(ConfigError, match="no schedule of Airflow's") as refused:
        project(schedule=schedule)

    for good in (refused.value.fix.split("'")[1], *refused.value.fix.partition(" one of ")[2].split(", ")):
        assert project(schedule=good)


@pytest.mark.parametrize("servers", ["localhost", "a:1,", walked("project.check_addresses", "a b:9092")])
def test_address_is_refused_when_it_names_no_port(servers: str) -> None:
    with pytest.raises(ConfigError, match="no address of a broker"):
        project(bootstrap_servers=servers)

    assert project(bootstrap_servers="host:1234, other:5678")
