"""The command line of an application file."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.run_spec import RunSpec
from airflow_kstreams.spark.application import _parser, _spec
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings


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
