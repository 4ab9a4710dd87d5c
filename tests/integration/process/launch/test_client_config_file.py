"""Files of client settings whose worker was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from airflow_kstreams.launch.client_config_file import client_config_file, remove_left_behind
from tests.support.fresh_python import ROOT

pytestmark = pytest.mark.promise("client-files-are-removed")

CONFIG = {"bootstrap.servers": "h:1", "sasl.password": "secret"}


#: Makes a file, starts a child that may inherit its lock, tells of both, and waits.
_WORKER = """
import subprocess, sys
from airflow_kstreams.launch.client_config_file import client_config_file
with client_config_file({"sasl.password": "secret"}) as made:
    inherited = (made.lock,) if sys.argv[1] == "inherited" else ()
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=inherited)
    print(made.path, child.pid, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], Path, psutil.Process]]:
    """A worker, its file, and what it has started, which does not end with it."""
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, request.param],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        path, child = process.stdout.readline().split()
        driver = psutil.Process(int(child))
        driver.suspend()  # else it would end with the pipe that it reads
        yield process, Path(path), driver
        process.kill()
        with suppress(psutil.NoSuchProcess):
            driver.kill()


@pytest.mark.parametrize("worker", ["not inherited"], indirect=True)
def test_file_of_a_killed_worker_is_removed_by_the_next_one(
    worker: tuple[subprocess.Popen[str], Path, psutil.Process],
) -> None:
    process, path, _ = worker
    remove_left_behind()
    assert path.exists(), "its worker is alive"
    process.kill()
    process.wait()

    with client_config_file(CONFIG):
        assert not path.exists()


@pytest.mark.parametrize("worker", ["inherited"], indirect=True)
def test_file_of_a_killed_worker_stays_as_long_as_its_driver_lives(
    worker: tuple[subprocess.Popen[str], Path, psutil.Process],
) -> None:
    process, path, driver = worker
    process.kill()
    process.wait()

    remove_left_behind()
    assert path.exists()
    driver.kill()
    driver.wait()

    remove_left_behind()
    assert not path.exists()
