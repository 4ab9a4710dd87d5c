"""``airflow-kstreams reset`` and ``status`` on the in-memory Kafka: options, tables, one line per error."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest

from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.batch.run.lease.lease_renewal import LeaseRenewal
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import ManualClock
from tests.support.command_line import json_of
from tests.support.kafka.reset_scene import APP, CHANGELOG, REPARTITION, ResetScene
from tests.unit.cli.test_app import invoke

pytestmark = pytest.mark.promise("dry-runs-change-nothing")

BROKER = ("--bootstrap-server", "in-memory:9092")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> ResetScene:
    """Two finished runs, and the commands' clusters are this one."""
    # The commands look at the clock on the wall.
    clock = ManualClock(now_ms=round((time.time() - 10) * 1000))
    scene = ResetScene(clock=clock, settings={"lease.ms": 3_600_000})
    scene.send("a", "b", "a")
    scene.run("r1")
    scene.send("c")
    scene.run("r2")
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda config, **_: scene.kafka)
    return scene


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_plan_is_shown_and_nothing_changes_when_run_dry(scene: ResetScene) -> None:
    before = scene.dump()
    result = invoke("reset", "--application-id", APP, *BROKER, "--input-topics", "in", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = lines(result.stdout)
    assert ["in", "0", "2", "0"] in shown
    assert ["in", "1", "2", "0"] in shown
    assert [CHANGELOG, "2"] in shown
    assert [REPARTITION, "2"] in shown
    assert "run r1" in result.stdout and "would be taken back" in result.stdout
    assert "Not named, and left alone: the offsets of mid." in result.stdout
    assert result.stdout.endswith("Dry run: nothing was changed.\n")
    document = json_of(
        invoke("reset", "--application-id", APP, *BROKER, "--input-topics", "in", "--dry-run", "--json"),
        "reset",
    )
    assert scene.dump() == before
    assert [(each["partition"], each["before"], each["after"]) for each in document["offsets"]] == [
        (0, 2, 0),
        (1, 2, 0),
    ]
    assert document["deleted_topics"] == {CHANGELOG: 2, REPARTITION: 2}
    assert (document["dry_run"], document["kept_topics"]) == (True, ["mid"])


def test_what_was_done_is_shown_when_run(scene: ResetScene) -> None:
    result = invoke(
        "reset", "--application-id", APP, *BROKER, "--input-topics", "in", "--intermediate-topics", "mid"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert ["in", "0", "2", "0"] in lines(result.stdout)
    assert "what is unread is skipped" in result.stdout
    assert result.stdout.endswith("Done.\n")
    assert scene.offsets("in") == [0, 0]
    assert CHANGELOG not in scene.kafka.topics()
    assert "would" not in result.stdout


@pytest.mark.parametrize(
    ("options", "offsets", "note"),
    [
        (["--to-earliest"], [0, 0], ""),
        (["--to-latest"], [2, 2], ""),
        (["--to-offset", "1"], [1, 1], ""),
        (["--to-offset", "7"], [2, 2], "7 asked for, the log ends before"),
        (["--to-offset", "-7"], [0, 0], "-7 asked for, the log begins later"),
        (["--shift-by", "-1"], [1, 1], ""),
        (["--shift-by", "3"], [2, 2], "5 asked for, the log ends before"),
        (["--to-datetime", "1970-01-01T00:00:00.000"], [0, 0], ""),
        (["--to-datetime", "2100-01-01T00:00:00.000+01:00"], [2, 2], ""),
        (["--by-duration", "PT0S"], [2, 2], ""),
    ],
    ids=str,
)
def test_offsets_are_set_as_the_scenario_says(
    scene: ResetScene, options: list[str], offsets: list[int], note: str
) -> None:
    result = invoke("reset", "--application-id", APP, *BROKER, "--input-topics", "in", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert scene.offsets("in") == offsets
    assert note in result.stdout


def test_offsets_are_set_as_the_file_says(scene: ResetScene, tmp_path: Path) -> None:
    (tmp_path / "plan.csv").write_text("in,1,1\nin,0,0\n")
    arguments = ["--input-topics", "in", "--from-file", str(tmp_path / "plan.csv")]
    assert invoke("reset", "--application-id", APP, *BROKER, *arguments).exit_code == 0
    assert scene.offsets("in") == [0, 1]


def test_lists_are_split_at_commas_and_may_be_repeated(scene: ResetScene) -> None:
    topics = ["--internal-topics", f"{CHANGELOG}, ,{REPARTITION}", "--internal-topics", CHANGELOG]
    result = invoke("reset", "--application-id", APP, *BROKER, *topics)
    assert result.exit_code == 0
    assert not {CHANGELOG, REPARTITION} & {*scene.kafka.topics()}
    assert scene.offsets("in") == [2, 2]


def test_only_the_slice_goes_when_only_stop_offsets_are_deleted(scene: ResetScene) -> None:
    scene.send("d")
    scene.begin("r3")
    result = invoke("reset", "--application-id", APP, *BROKER, "--delete-stopoffsets")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "unfinished slice of run r3" in result.stdout
    assert scene.state is RunState.NEW
    assert {CHANGELOG, REPARTITION} <= {*scene.kafka.topics()}


def test_nothing_to_reset_is_told(scene: ResetScene) -> None:
    for _ in range(2):
        result = invoke("reset", "--application-id", APP, *BROKER)
        assert result.exit_code == 0
    assert "There is nothing to reset." in result.stdout


@pytest.mark.promise("refused-resets-do-nothing")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input-topics", "in", "--to-latest", "--to-earliest"], "--to-earliest and --to-latest each say"),
        (
            ["--input-topics", "in", "--to-offset", "0", "--shift-by", "0"],
            "--shift-by and --to-offset each say",
        ),
        (["--input-topics", "in", "--to-datetime", "noon"], "--to-datetime 'noon' is not a date and time"),
        (["--input-topics", "in", "--by-duration", "1h"], "--by-duration '1h' is not a duration"),
        (["--input-topics", "in", "--from-file", "none.csv"], "'none.csv' cannot be read: No such file"),
        (["--to-latest"], "--to-latest says where to set the offsets of input topics, and none is named"),
        (["--input-topics", "inn"], "topic 'inn' does not exist"),
        (["--input-topics", "out"], "application 'app' does not read topic 'out'"),
        (["--internal-topics", "in"], "there is no internal topic 'in' of application 'app'"),
    ],
    ids=str,
)
@pytest.mark.parametrize("dry", [True, False])
def test_error_is_one_line_and_nothing_changes_when_refused(
    scene: ResetScene, options: list[str], message: str, dry: bool
) -> None:
    before = scene.dump()
    result = invoke("reset", "--application-id", APP, *BROKER, *options, *(["--dry-run"] if dry else []))
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(rf"error: [^\n]*{re.escape(message)}[^\n]* -- what to do: [^\n]+\n", result.stderr)
    assert scene.dump() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--application-id", "other"], "there is no application 'other' on this cluster"),
        (["--application-id", "no/topic"], "application id 'no/topic' cannot name Kafka topics"),
        (["--application-id", ""], "application id '' cannot name Kafka topics"),
    ],
)
def test_error_is_one_line_when_there_is_no_such_application(
    scene: ResetScene, arguments: list[str], message: str
) -> None:
    result = invoke("reset", *arguments, *BROKER)
    assert result.exit_code == 1
    assert re.fullmatch(rf"error: {message}[^\n]*\n", result.stderr)


def test_plan_is_shown_and_the_refusal_too_when_run_dry_on_an_application_at_work(
    scene: ResetScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = scene.coordinator()
    scene.send("d")
    scene.begin("r3", coordinator=driver)
    scene.kafka.join_group(APP, "a-consumer")
    arguments = ["--application-id", APP, *BROKER, "--input-topics", "in", "--delete-stopoffsets"]
    monkeypatch.setattr("airflow_kstreams.batch.run.lease.lease_observation._POLL_SECONDS", 0.1)
    renewing = LeaseRenewal(renew=driver.lease.renew, release=lambda: None, interval_seconds=0.02)
    with renewing:
        refused = invoke("reset", *arguments, "--dry-run")
        assert invoke("reset", *arguments).exit_code == 1
    assert refused.exit_code == 1
    assert "application 'app' cannot be reset: driver of r3 works on run 'r3'" in refused.stderr
    assert "lease of driver of r3 for run r3" in refused.stdout
    assert "In the consumer group, and not removed: a-consumer at 127.0.0.1" in refused.stdout
    driver.lease.renew()
    assert invoke("reset", *arguments, "--force", "--dry-run").exit_code == 0
    driver.lease.renew()
    assert invoke("reset", *arguments, "--force").exit_code == 0
    assert scene.offsets("in") == [0, 0]
    driver.close()


def test_unreachable_broker_is_one_line(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = ApplicationSettings.parse(APP, {"client.timeout.ms": 1_000})
    monkeypatch.setattr(
        "airflow_kstreams.kafka.cluster.KafkaCluster",
        lambda config, **_: KafkaCluster(config, settings=impatient),
    )
    settings = tmp_path / "client.properties"
    settings.write_text("sasl.password=hunter2\nsasl.username=me\nsecurity.protocol=PLAINTEXT\n")
    for command in ("reset", "status"):
        result = invoke(
            command,
            "--application-id",
            APP,
            "--bootstrap-server",
            f"127.0.0.1:{free_port}",
            "--command-config",
            str(settings),
        )
        assert (result.exit_code, result.stdout) == (1, "")
        assert re.fullmatch(r"error: broker unreachable at 127\.0\.0\.1:\d+: [^\n]+\n", result.stderr)
        assert "hunter2" not in result.output


def test_broker_is_asked_for_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KSTREAMS_KAFKA_CONFIG_FILE", raising=False)
    for command in ("reset", "status"):
        result = invoke(command, "--application-id", APP)
        assert result.exit_code == 1
        assert "bootstrap.servers" in result.stderr


# == status


@pytest.mark.promise("status-ends")
def test_status_ends_within_ten_seconds_when_a_broker_accepts_and_never_answers(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        result = invoke("status", "--application-id", APP, "--bootstrap-server", address)
        seconds = time.monotonic() - started
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: broker unreachable at {address}: ")
    assert seconds < 10
    assert capfd.readouterr() == ("", "")


@pytest.mark.promise("status-ends")
def test_status_bounds_every_request_and_all_together_by_the_time_for_looking(
    scene: ResetScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[tuple[int, int]] = []

    def made(
        config: object, settings: ApplicationSettings, look_ms: int, connect_ms: int, in_child: bool
    ) -> object:
        assert in_child
        bounds.append((settings.client_timeout_ms, look_ms))
        return scene.kafka

    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", made)
    for more in ((), ("--timeout", "60")):
        assert invoke("status", "--application-id", APP, *BROKER, *more).exit_code == 0
    (each, together), asked_for = bounds
    assert each < together < 10_000
    assert asked_for == (30_000, 60_000)


def test_status_says_what_the_topics_say_and_changes_nothing(scene: ResetScene) -> None:
    scene.send("d")
    scene.reset(inputs="in", intermediates="mid")
    driver = scene.coordinator()
    scene.tasks(scene.begin("r3", coordinator=driver), [0])
    before = scene.dump()
    result = invoke("status", "--application-id", APP, *BROKER, "--records")
    assert (result.exit_code, result.stderr) == (0, "")
    assert scene.dump() == before
    shown = lines(result.stdout)
    assert ["state", "running:", "driver", "of", "r3,"] in [words[:5] for words in shown]
    assert "driver of r3 for run r3, last renewed 20" in result.stdout
    assert ["in", "0", "3", "3", "3", "0"] in shown
    assert ["in", "1", "2", "2", "2", "0"] in shown
    assert f"reset --bootstrap-server <broker> --application-id {APP} --input-topics in" in " ".join(
        result.stdout.split()
    )
    assert re.search(r"r1\s.*taken back\s+3\s", result.stdout)
    assert "<in_0:3>  stop of run r3, generation 1, from 0" in result.stdout
    document = json_of(invoke("status", "--application-id", APP, *BROKER, "--records", "--json"), "status")
    assert (document["state"], document["run"]["run_id"]) == ("running", "r3")
    assert document["lease"]["run_id"] == "r3"
    assert next(each for each in document["offsets"] if each["topic"] == "in") == {
        "topic": "in",
        "partition": 0,
        "committed": 3,
        "stop": 3,
        "end": 3,
        "lag": 0,
    }
    assert document["last_reset"]["command"].endswith("--input-topics in --intermediate-topics mid")
    assert {run["run_id"]: run["taken_back"] for run in document["runs"]}["r1"]
    assert any("<in_0:3>  stop of run r3" in line for line in document["metadata"])
    driver.close()


def test_status_shows_lag_and_the_lease_that_is_not_held(scene: ResetScene) -> None:
    scene.send("d", "e", "f")
    shown = lines(invoke("status", "--application-id", APP, *BROKER, "--runs", "1").stdout)
    assert ["state", "finished,", "run", "r2,", "generation", "1"] in shown
    assert ["in", "0", "2", "2", "4", "2"] in shown
    assert ["lease", "not", "held"] in shown
    assert [row[0] for row in shown if row and row[0] in ("r1", "r2")] == ["r2"]


@pytest.mark.promise("misspelt-applications-are-refused")
@pytest.mark.remedy("known_applications.unknown_application")
@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["dead-letters", "list"],
        ["dead-letters", "replay", "--dry-run"],
        ["dead-letters", "replay", "--dead-letter-topic", "letters"],
        ["reset", "--delete-stopoffsets"],
        ["expand", "partitions", "in", "--to", "4"],
        ["expand", "processors", "--to", "4"],
        ["expand", "abort"],
        ["state", "counting.py", "counts"],
    ],
)
def test_misspelt_application_is_refused_with_the_ids_that_are_written_alike(
    scene: ResetScene, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("counting.py").write_text("from tests.support.kafka.reset_scene import counting as topology\n")
    scene.kafka.create_topic("letters")
    before = scene.dump()
    result = invoke(*command, "--application-id", f"{APP}p", *BROKER)
    assert result.exit_code != 0
    said = " ".join(result.output.split())
    assert f"there is no application '{APP}p' on this cluster" in said
    assert f"did you mean '{APP}'?" in said
    assert scene.dump() == before
    assert invoke("status", "--application-id", APP, *BROKER).exit_code == 0
