from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.reset.scenario import scenario_of
from airflow_kstreams.streams.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (None, ""),
        ({}, ""),
        ({"to-offset": None, "to-latest": False, "to-earliest": "false"}, ""),
        ({"to-offset": "7"}, "--to-offset 7"),
        ({"--shift-by": -3}, "--shift-by -3"),
        ({"to_datetime": "2026-01-31T00:00:00.000"}, "--to-datetime 2026-01-31T00:00:00.000"),
        ({"by-duration": "P1D"}, "--by-duration P1D"),
        ({"to-earliest": True}, "--to-earliest"),
        ({"to-latest": "True"}, "--to-latest"),
    ],
)
def test_scenario_is_the_one_of_the_command_when_named(options: dict[str, Any] | None, shown: str) -> None:
    assert scenario_of(options).option == shown


def test_file_is_read_when_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("in,0,42\n")

    assert scenario_of({"from-file": str(file)}).option == f"--from-file {file}"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"to-offset": "x"}, "to-offset is 'x', not a whole number"),
        ({"to-latest": "maybe"}, "to-latest is 'maybe'"),
        ({"to-ofset": 1}, "no option 'to-ofset'"),
        ({"to-offset": 1, "shift-by": 1}, "--to-offset"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        scenario_of(options)
