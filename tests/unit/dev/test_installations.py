"""The corners of ``dev/matrix``: what the page and the bounds say is what they install."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from airflow_kstreams.launch.installation import PROVEN
from dev.installations import __main__ as matrix
from dev.installations import environment
from dev.installations.corners import CORNERS, Corner, table
from dev.installations.environment import ROOT, NotRunError, StepError, interpreter

_PAGE = Path(ROOT, "docs", "reference", "installing.md").read_text(encoding="utf-8")


def test_page_holds_the_table_that_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert printed in f"{_PAGE}\n"
    assert [line.split("`")[1] for line in table() if "`" in line] == [corner.name for corner in CORNERS]


@pytest.mark.parametrize("corner", CORNERS, ids=lambda corner: corner.name)
def test_corner_lies_within_what_is_proven(corner: Corner) -> None:
    pins = {pin.name: next(iter(pin.specifier)).version for pin in map(Requirement, corner.pins)}
    assert all(PROVEN[name].contains(version) for name, version in pins.items())
    assert PROVEN["Python"].contains(f"{corner.python}.0")
    assert all(Path(ROOT, "tests", path.partition("::")[0]).exists() for path in corner.left_out)


def test_bounds_are_those_of_the_outermost_corners() -> None:
    """A release that no corner installs is not proven at either end."""
    spark = {corner.pyspark for corner in CORNERS}
    lowest = {bound.version for name in ("pyspark", "apache-airflow") for bound in PROVEN[name]}
    assert {"3.5.9", "4.2.0"} <= spark & lowest
    assert min(corner.airflow for corner in CORNERS if corner.airflow) in lowest


def test_corner_is_not_run_when_its_python_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(environment, "_is_python", lambda *_: False)
    monkeypatch.setattr(matrix, "_FOLDER", tmp_path)
    with pytest.raises(NotRunError, match=r"Python 3\.12 was not found.*KSTREAMS_DEV_PYTHON_3_12"):
        interpreter("3.12")

    assert matrix.main(["airflow-3.1"]) == matrix.NOT_RUN

    said = capsys.readouterr().out
    assert "airflow-3.1: NOT RUN: Python 3.12 was not found" in said
    assert "passed" not in said


def test_python_of_pyenv_is_found_when_the_path_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = tmp_path / "versions" / "3.13.0" / "bin" / "python3.13"
    ours.parent.mkdir(parents=True)
    ours.touch()
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(environment, "_is_python", lambda candidate, _: candidate == str(ours))
    assert interpreter("3.13") == str(ours)


def test_command_fails_when_one_corner_fails_and_another_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(self: environment.Environment) -> None:
        raise StepError("install") if self.corner.name == "oldest" else NotRunError("no Python")

    monkeypatch.setattr(environment.Environment, "make", make)
    assert matrix.main(["airflow-3.2", "oldest"]) == matrix.FAILED
    assert matrix.main(["airflow-3.2"]) == matrix.NOT_RUN


def test_every_failed_step_is_said_when_one_before_it_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(self: environment.Environment, step: str, *_: object) -> str:
        if step == "demo":
            return "equal\n"
        raise StepError(f"{step}: exit code 1")

    monkeypatch.setattr(environment.Environment, "make", lambda _: None)
    monkeypatch.setattr(environment.Environment, "run", run)

    assert matrix.main(["spark-3.5"]) == matrix.FAILED

    said = capsys.readouterr().out
    assert "demo: passed in 0 s: equal" in said
    assert "spark-3.5: FAILED: unit and property, spark" in said
