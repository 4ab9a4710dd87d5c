"""Every command that connects, where things are not as they should be, and where they are large.

The command lines are the examples of the commands' own help, so a new command is tried as soon as it is
listed. A command ends with one line of error and no traceback, in text and in JSON; what it prints fits its
schema and 80 columns. Real processes stand for what one process cannot show.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from airflow_kstreams.cli import shared_options
from airflow_kstreams.cli.app import COMMANDS, app
from airflow_kstreams.cli.commands import dead_letters as letters_command
from airflow_kstreams.cli.commands import state as state_command
from airflow_kstreams.cli.commands import status as status_command
from airflow_kstreams.explore import exploration
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from dev.servers.secured import SecuredBroker
from tests.support.command_line import fitting, json_error_of, process
from tests.support.fresh_python import ROOT
from tests.support.kafka.in_process import Application

CLUSTER = "airflow_kstreams.kafka.cluster.KafkaCluster"
#: As users have them.
CONNECT_MS, EXPLORE_MS = shared_options.CONNECT_MS, exploration._TIMEOUT_MS
APP = "flight-delays"
FILE = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    counts = builder.stream("flights").group_by_key().count(store="delays")
    counts.to_stream().send_to("carrier-delays", value_serde=serdes.int64())
    return builder.build()

if __name__ == "__main__":
    raise SystemExit("a run is not started here")
"""


def _examples() -> Iterator[tuple[str, list[str], set[str]]]:
    """Yield the words of each command, its example, and the names of its parameters."""
    root: Any = get_command(app)
    with root.make_context("airflow-kstreams", ["--help"], resilient_parsing=True) as context:
        for name, listed in COMMANDS.items():
            command = root.get_command(context, name)
            for example in listed.examples:
                words = shlex.split(example)
                below = getattr(command, "commands", {})
                one = below[words[1]] if below else command
                named = {parameter.name for parameter in one.params}
                yield (f"{name} {words[1]}" if below else name), words, named


#: The first example of each command.
EVERY: dict[str, list[str]] = {}
#: Those that connect, and those of them that print JSON.
LINES: dict[str, list[str]] = {"status all": ["status", "--all"]}
WITH_JSON = {"status all"}
for _command, _example, _named in _examples():
    EVERY.setdefault(_command, _example)
    if "config_file" in _named:
        LINES.setdefault(_command, _example)
        WITH_JSON |= {_command} if "as_json" in _named else set()
each_command = pytest.mark.parametrize("command", LINES)
#: Without the one that becomes another process, which has tests of its own.
each_look = pytest.mark.parametrize("command", [each for each in LINES if each != "run"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the application file; commands wait a moment for a broker."""
    for name in ("KSTREAMS_BOOTSTRAP_SERVERS", "KSTREAMS_KAFKA_CONFIG_FILE", "KSTREAMS_APPLICATION_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flight_delays.py").write_text(FILE)
    (tmp_path / "tables.json").write_text('{"iceberg.type": "sql", "iceberg.uri": "sqlite:///tables.db"}')
    (tmp_path / "records.jsonl").write_text('{"order": "a", "at": 1700000000000}\n')
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("a run was started"))
    monkeypatch.setattr(shared_options, "CONNECT_MS", 200)
    monkeypatch.setattr(exploration, "_TIMEOUT_MS", 1_000)
    return tmp_path


def tried(command: str, *more: str, server: str = "in-memory:9092") -> Result:
    """Run the example of a command."""
    words = [word.replace("spark_apps/flight_delays.py", "flight_delays.py") for word in LINES[command]]
    named = ["--bootstrap-server", server] if server else []
    return CliRunner().invoke(app, [*words, *named, *more])


def json_of(command: str) -> list[str]:
    return ["--json"] if command in WITH_JSON else []


def refused(result: Result, exit_code: int = 1) -> str:
    """Return the one line of error of a command that printed nothing else."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
    (line,) = result.stderr.splitlines()
    return line


def well_ended(command: str, result: Result) -> None:
    """Check the end of a command that got all answers: no traceback, and a reason for each failure."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 1), result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith(("error: ", "{"))]
    # The findings of doctor say why it failed.
    assert len(errors) == (result.exit_code if command != "doctor" or not result.stdout else 0), result.stderr


# == what is wrong


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.promise("no-broker-is-said")
@each_command
def test_no_broker_is_one_line_that_names_the_address(command: str, free_port: int, silent: str) -> None:
    address = f"127.0.0.1:{free_port}"
    line = refused(tried(command, server=address))
    assert line.startswith(f"error: broker unreachable at {address}: ")
    result = tried(command, *json_of(command), server=silent)
    cause = json_error_of(result)["cause"] if command in WITH_JSON else refused(result).partition(" -- ")[0]
    cause = cause.removeprefix("error: ").removesuffix(" [KS-KAFKA-001]")
    assert cause.startswith(f"broker unreachable at {silent}: ")
    # The bound of the first contact, not that of a request of a run.
    assert cause.endswith("(waited 1 s)" if command == "explore" else "(waited 0.2 s)")
    assert (result.exit_code, result.stdout) == (1, "")


def test_first_contact_leaves_room_in_ten_seconds() -> None:
    assert max(CONNECT_MS, EXPLORE_MS) <= 8_000
    assert status_command._TIMEOUT_SECONDS <= 8
    assert letters_command._TIMEOUT_SECONDS <= 8
    assert state_command._TIMEOUT_SECONDS + state_command._LOOKS_SECONDS <= 9


@pytest.fixture(scope="module")
def wrong_login(secured_broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of client settings with a password that the broker refuses."""
    config = {**secured_broker.scram_config("carol"), "sasl.password": "canary of another"}
    path = tmp_path_factory.mktemp("login") / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    return path


@pytest.mark.promise("wrong-logins-are-final")
@each_command
def test_wrong_login_is_one_line_that_says_what_to_correct(
    command: str, wrong_login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_options, "CONNECT_MS", CONNECT_MS)
    monkeypatch.setattr(exploration, "_TIMEOUT_MS", EXPLORE_MS)
    result = tried(command, "--config-file", str(wrong_login), *json_of(command), server="")
    if command in WITH_JSON:
        error = json_error_of(result)
        cause, fix = error["cause"], error["fix"]
        assert (result.exit_code, result.stdout) == (1, "")
        assert (error["error"], error["code"]) == ("KafkaClientError", "KS-KAFKA-001")
    else:
        cause, _, fix = refused(result).removeprefix("error: ").partition(" -- what to do: ")
    assert re.match(r"the broker at 127\.0\.0\.1:\d+ refused the credentials: .*[Aa]uthentication", cause)
    assert "sasl.username and sasl.password" in fix
    assert "canary" not in result.output


@pytest.mark.promise("json-fits-its-schema")
@pytest.mark.parametrize("command", EVERY)
def test_wrong_option_is_one_line(command: str) -> None:
    def wrong(*more: str) -> Result:
        return CliRunner().invoke(app, [*EVERY[command], "--no-such-option", *more])

    line = refused(wrong(), 2)
    assert line.startswith("error: No such option: --no-such-option")
    assert line.endswith(f" -- what to do: see airflow-kstreams {command} --help")
    assert json_error_of(wrong("--json"))["error"] == "UsageError"


@each_command
def test_no_cluster_named_is_one_line(command: str) -> None:
    assert refused(tried(command, server="")).startswith("error: ")


def kafka_of(partitions: int, monkeypatch: pytest.MonkeyPatch) -> Application:
    """An application on an in-memory Kafka, which commands find."""
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
    kafka.create_topic("flights", partitions=partitions)
    kafka.create_topic("carrier-delays")
    for number in range(5):
        kafka.append("flights", b"late", b"AA", partition=number % partitions)
    monkeypatch.setattr(CLUSTER, lambda *_, **__: kafka)
    topology = ApplicationFile.read(Path("flight_delays.py")).topology()
    return Application(
        on=kafka,
        clock=kafka.clock,
        application_id=APP,
        topology=topology,
        settings={"initial.partitions": f"flights={partitions}"},
    )


@pytest.mark.promise("misspelt-applications-are-refused")
@pytest.mark.parametrize(
    "command", [each for each in LINES if "--application-id" in LINES[each] and each != "run"]
)
def test_wrong_id_is_an_error_with_the_ids_that_are_spelt_alike(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_of(1, monkeypatch).run("r")
    result = tried(command, "--application-id", "flight-delay")
    assert result.exit_code == 1
    assert f"did you mean {APP!r}?" in " ".join(result.output.split())
    if command != "doctor":
        assert refused(result).startswith("error: there is no application 'flight-delay'")


# == no partitions, and many


@each_look
def test_topics_that_are_gone_leave_no_traceback(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    application = kafka_of(2, monkeypatch)
    application.run("r")
    application.cluster.admin().delete_topics(["flights"])
    for more in ([], *([json_of(command)] if command in WITH_JSON else ())):
        result = tried(command, *more)
        well_ended(command, result)
        if more and result.stdout:
            fitting(result.stdout, command)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An application with 1,000 partitions, of which a run has been begun."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("wide")
        (folder / "flight_delays.py").write_text(FILE)
        patch.chdir(folder)
        application = kafka_of(1_000, patch)
        application.task(application.begin("r"), 0, 0)
        return application.cluster


@pytest.mark.promise("json-fits-its-schema")
@each_look
def test_a_thousand_partitions_fit_80_columns_and_the_schema(
    command: str, wide: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CLUSTER, lambda *_, **__: wide)
    text = tried(command)
    well_ended(command, text)
    # Notes and remedies are whole lines, to be copied.
    rows = [line for line in text.stdout.splitlines() if line.startswith(" ") and "   " in line.strip()]
    assert max(map(len, rows), default=0) <= 80
    if command not in WITH_JSON:
        return
    result = tried(command, "--json")
    well_ended(command, result)
    if result.stdout:
        fitting(result.stdout, command)
    assert text.exit_code == result.exit_code
    if command == "status":
        assert len(json.loads(result.stdout)["offsets"]) == 1_000
        assert " partition " in text.stdout


# == processes


def test_pipe_that_is_closed_is_no_traceback() -> None:
    file = shlex.quote(str(ROOT / "spark_apps" / "flight_delays.py"))
    command = f"{shlex.quote(sys.executable)} -m airflow_kstreams.cli describe {file} --json | head -n 1"
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_process_says_that_there_is_no_broker(free_port: int) -> None:
    options = ("--application-id", APP, "--bootstrap-servers", f"127.0.0.1:{free_port}", "--timeout", "2")
    done = process("status", *options, "--json")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert fitting(line, "error")["cause"].startswith(f"broker unreachable at 127.0.0.1:{free_port}")
