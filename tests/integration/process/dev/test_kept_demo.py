"""A demo that was left up is shown, not doubled, and ended whole."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dev.flight_demo.__main__ as demo
from dev.flight_demo.children import end_families
from dev.flight_demo.kept import KeptDemo
from dev.flight_demo.lake import Lake
from dev.flight_demo.tables_check import command

_PAGE = "http://127.0.0.1:1/dags/flight_delays_hourly/runs/increment-3"


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Two processes in the place of a demo's; the first has started another one, whose number it prints."""
    monkeypatch.setattr(demo, "_FOLDER", tmp_path)
    monkeypatch.setattr(demo, "_ROOT", tmp_path.parent)
    with_child = "sleep 60 & echo $!; wait"
    running = {
        name: subprocess.Popen(["/bin/sh", "-c", line], stdout=subprocess.PIPE, text=True)
        for name, line in {"scheduler": with_child, "broker": "exec sleep 60"}.items()
    }
    yield running
    end_families([process.pid for process in running.values()])
    for process in running.values():
        process.communicate()


def _keep(parts: dict[str, subprocess.Popen[str]], *, ready: bool = True, check: str = "") -> None:
    pids = {name: process.pid for name, process in parts.items()}
    kept = KeptDemo.of(
        pids, broker="127.0.0.1:2", airflow="http://127.0.0.1:1", page=_PAGE, ready=ready, check=check
    )
    kept.write(demo._kept_file())


def test_a_second_keep_says_where_the_first_is(
    parts: dict[str, subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _keep(parts)

    assert demo.main(["--keep"]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith("the demo is up already, by an earlier --keep\n")
    assert f"page:    {_PAGE}\n" in printed
    assert "without a login" in printed
    assert "broker:  127.0.0.1:2" in printed
    assert printed.endswith("stop:    dev/demo --stop\n")

    assert demo.main([]) == 1
    assert "stop it first with dev/demo --stop" in " ".join(capsys.readouterr().out.split())
    assert all(process.poll() is None for process in parts.values())


def test_a_demo_with_tables_says_how_to_check_them(
    parts: dict[str, subprocess.Popen[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _keep(parts, check=command(Lake(tmp_path), "flight-delays", "127.0.0.1:2"))

    assert demo.main(["--keep", "--tables"]) == 0

    said = f"tables:  env FLIGHT_TABLES={tmp_path} .venv/bin/airflow-kstreams tables spark_apps/"
    assert said in capsys.readouterr().out


def test_stop_ends_all_that_is_up(
    parts: dict[str, subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    output = parts["scheduler"].stdout
    assert output is not None
    grandchild = Path("/proc") / output.readline().strip()
    # Also what a demo that was killed while it came up has left behind.
    _keep(parts, ready=False)
    assert (grandchild / "cmdline").read_text()

    assert demo.main(["--stop"]) == 0

    assert "the demo is stopped" in capsys.readouterr().out
    assert [process.wait(timeout=5) != 0 for process in parts.values()] == [True, True]
    assert not grandchild.exists() or not (grandchild / "cmdline").read_text()

    assert demo.main(["--stop"]) == 0
    assert capsys.readouterr().out == "no demo is up\n"


def test_a_demo_of_which_a_part_ended_says_so(
    parts: dict[str, subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _keep(parts)
    parts["broker"].kill()
    parts["broker"].wait()

    assert demo.main(["--keep"]) == 0

    assert "the demo is not whole any more: broker ended\n" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--keep", "--stop"], ["--keep", "--without-airflow"]])
def test_options_that_contradict_each_other_are_refused(options: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        demo.main(options)
