"""The wheel as a provider of a whole Airflow, with Airflow's own Kafka provider and without it: each an
environment of its own, in which the other is really not there.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.get_provider_info import get_provider_info
from tests.support.airflow.python_environment import PACKAGE, environment_without, install

_KAFKA_PROVIDER = "apache-airflow-providers-apache-kafka"
_WITHOUT_FORM = "airflow,rocksdb,schema-registry,spark"
#: All that ``airflow providers`` knows but lazy-loaded, which fails in Airflow 3.3 whatever is installed: its
#: own configuration asks the providers first.
_COMMANDS = tuple(
    f"{command} -o json"
    for command in (
        f"get {PACKAGE} --full",
        "list",
        "hooks",
        "links",
        "triggers",
        "behaviours",
        "widgets",
        "configs",
        "executors",
        "queues",
        "notifications",
        "logging",
        "secrets",
        "auth-managers",
    )
)
_RUN_COMMANDS = """
import contextlib, io, json, pathlib, sys
from airflow.__main__ import main
commands, answer = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
said = {}
for command in commands:
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["airflow", "providers", *command.split()]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    said[command] = [code, out.getvalue(), err.getvalue()]
answer.write_text(json.dumps(said))
"""
_USE_CONNECTIONS = """
import json, pathlib, sys
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.streams.errors import ConfigError
seen = {}
for conn_id in json.loads(sys.argv[1]):
    try:
        admin = KafkaHook(conn_id).cluster().admin()
    except ConfigError as error:
        seen[conn_id] = str(error)
        continue
    try:
        seen[conn_id] = sorted(admin.topic_names())
    finally:
        admin.close()
pathlib.Path(sys.argv[2]).write_text(json.dumps(seen))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """An Airflow with this package installed.

    :param form: whether Airflow's own Kafka provider is there, too.
    """

    python: Path
    home: Path
    form: bool

    def run(self, code: str, argument: list[str], **variables: str) -> tuple[Any, str]:
        """Run a program of its Python; returns what it wrote as JSON, and what the process said on stderr."""
        answer = self.home / "answer.json"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        inherited.pop("PYTHONPATH", None)
        done = subprocess.run(
            [str(self.python), "-c", code, json.dumps(argument), str(answer)],
            cwd=self.home,
            env={**inherited, "AIRFLOW_HOME": str(self.home), **variables},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(answer.read_text()), done.stderr


@pytest.fixture(scope="module", params=[True, False], ids=["with its form", "without its form"])
def deployment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Deployment:
    """Each with the extras that it has."""
    folder = tmp_path_factory.mktemp("deployment")
    form: bool = request.param
    python = environment_without(folder / "environment", *([] if form else [_KAFKA_PROVIDER]))
    install(python, wheel, extras="all" if form else _WITHOUT_FORM)
    home = folder / "home"
    home.mkdir()
    return Deployment(python=python, home=home, form=form)


def test_airflows_commands_show_the_provider_and_complain_of_nothing(deployment: Deployment) -> None:
    said, errors = deployment.run(_RUN_COMMANDS, list(_COMMANDS))

    assert errors == ""
    assert {command: (code, error) for command, (code, _, error) in said.items()} == dict.fromkeys(
        _COMMANDS, (0, "")
    )

    def rows(command: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(said[f"{command} -o json"][1])
        return found

    (shown,) = rows(f"get {PACKAGE} --full")
    shown_as_given = {key: value for key, value in shown.items() if key != "documentation-url"}
    description = {"description": get_provider_info()["description"].removesuffix(".")}
    assert shown_as_given == {**get_provider_info(), **description}
    ours = [row["class"] for row in rows("triggers") if row["package_name"] == PACKAGE]
    assert sorted(ours) == sorted(get_provider_info()["triggers"][0]["python-modules"])
    links = {row["extra_link_class_name"] for row in rows("links")}
    assert set(get_provider_info().get("extra-links", [])) <= links

    hooks = [row for row in rows("hooks") if row["connection_type"] == "kafka"]
    assert [row["package_name"] for row in hooks] == [_KAFKA_PROVIDER] * deployment.form
    assert [row for row in rows("hooks") if row["package_name"] == PACKAGE] == []
    behaviours = [row["field_behaviours"] for row in rows("behaviours")]
    assert behaviours.count("kafka") == int(deployment.form)


def test_connections_reach_the_broker_however_they_are_written(
    deployment: Deployment, kafka: str, sasl_bootstrap: str, topic_name: Callable[..., str], create_topic: Any
) -> None:
    topic = create_topic(topic_name("seen"))
    settings = {"bootstrap.servers": kafka}
    login = "security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN"
    written = {
        "uri": f"kafka://{kafka}",
        "uri_with_login": f"kafka://alice:alice-secret@{sasl_bootstrap}/?{login}",
        "uri_with_servers": f"kafka://?bootstrap.servers={kafka.replace(':', '%3A')}",
        "json": json.dumps({"conn_type": "kafka", "extra": settings}),
        "as_the_form_stores_it": json.dumps({"conn_type": "kafka", "extra": json.dumps(settings)}),
        # What the form of Airflow's own provider suggests, for its operators.
        "with_a_group": json.dumps({"conn_type": "kafka", "extra": {**settings, "group.id": "my-group"}}),
    }

    seen, errors = deployment.run(
        _USE_CONNECTIONS,
        list(written),
        **{f"AIRFLOW_CONN_{name.upper()}": text for name, text in written.items()},
    )

    refused = seen.pop("with_a_group")
    assert "connection 'with_a_group': client setting 'group.id' is owned by the engine" in refused
    assert "give them a connection of their own" in refused
    assert {name: topic in topics for name, topics in seen.items()} == dict.fromkeys(seen, True)
    assert "alice-secret" not in errors
