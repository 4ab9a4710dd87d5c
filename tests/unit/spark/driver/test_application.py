"""The command line of an application file."""

from __future__ import annotations

import faulthandler
import sys
import tempfile
from pathlib import Path

import pytest

from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE, CLIENT_CONFIG_IS_TEMPORARY, RunSpec
from airflow_kstreams.spark.driver import application
from airflow_kstreams.spark.driver.application import _client_config_path, _parser, _spec
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.remedies import walked


def spec_of(*arguments: str) -> RunSpec:
    return _spec(_parser().parse_args(["--application-id", "app", *arguments]))


def settings_of(*arguments: str) -> ApplicationSettings:
    spec = spec_of(*arguments)
    return ApplicationSettings.parse(spec.application_id, spec.settings)


@pytest.mark.parametrize("arguments", [(), ("--setting", "autostop.at=")])
def test_application_runs_continuously_when_autostop_is_not_set(arguments: tuple[str, ...]) -> None:
    assert settings_of(*arguments).continuous


@pytest.mark.parametrize("arguments", [("--autostop-at", "eol"), ("--setting", "autostop.at=eol")])
def test_application_runs_a_batch_when_it_stops_at_the_end_of_the_log(arguments: tuple[str, ...]) -> None:
    assert not settings_of(*arguments).continuous


def test_stopping_point_is_refused_when_it_is_unknown() -> None:
    with pytest.raises(
        ConfigError, match=r"must be one of '' \(unset\), eol, interval_end, interval, got 'noon'"
    ):
        settings_of("--autostop-at", "noon")


def test_driver_that_a_library_kills_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled: list[bool] = []
    monkeypatch.setattr(faulthandler, "enable", lambda: enabled.append(True))
    with pytest.raises(SystemExit):
        application.run(lambda: pytest.fail("built"), ["--help"])
    assert enabled == [True]


def test_exit_code_says_so_when_a_person_interrupts_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(application, "_run", interrupted)
    arguments = ["--application-id", "app", "--bootstrap-servers", "h:1", "--autostop-at", "eol"]

    assert application.main(settings_of, arguments) == application.INTERRUPTED == 130  # type: ignore[arg-type]

    said = "interrupted: what is committed stays, and the next run finishes this one first\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(("terminal", "reports"), [(True, 0), (False, 1)])
def test_failure_is_told_to_a_person_without_its_report_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool, reports: int
) -> None:
    def failed(*_: object) -> str:
        raise ConfigError("the cause", fix="the remedy")

    monkeypatch.setattr(application, "_run", failed)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    arguments = ["--application-id", "app", "--bootstrap-servers", "h:1", "--autostop-at", "eol"]

    assert application.main(settings_of, arguments) == application.RETRY_CANNOT_HELP  # type: ignore[arg-type]

    said = capsys.readouterr().err
    assert said.endswith("the cause [KS-APP-001]\nWhat to do: the remedy\n")
    assert said.count("KSTREAMS-ERROR ") == reports


def _driver_reads(*arguments: str) -> str:
    """Return the path that a driver reads the client's settings from; its work is done."""
    options = _parser().parse_args(["--application-id", "app", *arguments])
    with _client_config_path(options) as path:
        assert Path(path).exists()
        return path


@pytest.mark.parametrize("temporary", [True, False])
def test_file_that_was_made_for_the_driver_alone_is_gone_with_it(
    temporary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.json"
    file.write_text('{"bootstrap.servers": "h:1"}')
    monkeypatch.setenv(CLIENT_CONFIG_FILE, str(file))
    monkeypatch.setenv(CLIENT_CONFIG_IS_TEMPORARY, "1" if temporary else "")
    named_here = tmp_path / "named.json"
    named_here.write_text("{}")

    assert _driver_reads() == str(file)
    assert _driver_reads("--client-config", str(named_here)) == str(named_here)

    assert file.exists() is not temporary
    assert named_here.exists()


def test_file_with_the_settings_of_tables_is_made_for_the_driver_alone(tmp_path: Path) -> None:
    client, tables = tmp_path / "client.json", tmp_path / "tables.json"
    client.write_text('{"bootstrap.servers": "h:1", "iceberg.type": "rest"}')
    tables.write_text('{"delta.aws_region": "eu"}')
    options = _parser().parse_args(
        ["--application-id", "app", "--client-config", str(client), "--tables-config", str(tables)]
    )
    with _client_config_path(options) as path:
        # The option takes the place of what stands in the file of the client.
        assert read_client_config(path) == {"bootstrap.servers": "h:1", "delta.aws_region": "eu"}
    assert not Path(path).exists()
    assert client.exists()


@pytest.mark.parametrize(
    "fault",
    [
        walked("application._client_config_path: name an existing", ("--client-config", "nowhere.json")),
        walked("application._client_config_path: give --bootstrap-servers", ()),
    ],
)
def test_driver_reads_the_clients_settings_where_the_error_says(
    fault: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CLIENT_CONFIG_FILE, raising=False)
    with pytest.raises(ConfigError):
        _driver_reads(*fault)
    file = tmp_path / "client.json"
    file.write_text('{"bootstrap.servers": "h:1"}')
    assert _driver_reads("--client-config", str(file)) == str(file)
    if not fault:
        assert _driver_reads("--bootstrap-servers", "h:1")
        monkeypatch.setenv(CLIENT_CONFIG_FILE, str(file))
        assert _driver_reads() == str(file)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        walked(
            "application._spec: give --application-id",
            ["--setting", "commit.interval.ms=7"],
            ["--application-id", "NAME", "--setting", "commit.interval.ms=7"],
        ),
        walked(
            "application._spec: write --setting",
            ["--application-id", "NAME", "--setting", "commit.interval.ms"],
            ["--application-id", "NAME", "--setting", "commit.interval.ms=7"],
        ),
    ],
)
def test_run_is_named_as_the_error_says(fault: list[str], told: list[str]) -> None:
    with pytest.raises(ConfigError):
        _spec(_parser().parse_args(fault))
    spec = _spec(_parser().parse_args(told))
    assert (spec.application_id, spec.settings) == ("NAME", {"commit.interval.ms": "7"})


def test_file_with_the_brokers_of_the_command_line_lasts_as_long_as_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.json"
    file.write_text('{"sasl.password": "secret"}')
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    made = _driver_reads("--client-config", str(file), "--bootstrap-servers", "h:1")

    assert made != str(file)
    assert list(tmp_path.iterdir()) == [file]
