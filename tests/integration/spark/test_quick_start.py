"""``prepare-spark`` with Spark: drivers take their classes from the archive, or do without a broken one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_kstreams.launch.jvm_options import ARCHIVE_VARIABLE, VARIABLE, size_file
from tests.conftest import TESTS

#: What a driver does when an application file is started with plain Python.
_DRIVER = """
from airflow_kstreams.spark.driver.session import open_session
session = open_session("quick")
frame = session.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long")
print(sorted(row.id for row in frame.collect()))
session.stop()
"""
#: A class of Spark's planner, which no Java has by itself.
_PLANNER = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan source:"


def run(archive: Path, *command: str, options: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, ARCHIVE_VARIABLE: str(archive), "PYTHONPATH": str(TESTS.parent)}
    # What this test session sets for its own Sparks.
    environment[VARIABLE] = options
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("classes") / "größere Klassen" / "spark.jsa"
    made = run(path, "-m", "airflow_kstreams.cli", "prepare-spark")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(f"{path}: ")
    assert ARCHIVE_VARIABLE not in made.stdout, "runs look there already"
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, size_file(path).name}
    return path


def driver(archive: Path, folder: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a driver; return what it said, and where its JVM had the planner's class from."""
    loaded = folder / "loaded.txt"
    done = run(archive, "-c", _DRIVER, options=f"-Xlog:class+load:file={loaded}")
    lines = loaded.read_text(encoding="utf-8").splitlines() if loaded.exists() else []
    sources = [line.partition(_PLANNER)[2].strip() for line in lines if _PLANNER in line]
    return done, next(iter(sources), "")


def test_driver_takes_its_classes_from_the_archive(archive: Path, tmp_path: Path) -> None:
    done, source = driver(archive, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 1]\n"
    assert source == "shared objects file (top)"


@pytest.mark.parametrize("cut_to", [0, pytest.param(100_000, marks=pytest.mark.prove)])
def test_driver_reads_the_jars_when_the_archive_is_broken(archive: Path, tmp_path: Path, cut_to: int) -> None:
    broken = tmp_path / "broken.jsa"
    broken.write_bytes(archive.read_bytes()[:cut_to])
    size_file(broken).write_bytes(size_file(archive).read_bytes())
    done, source = driver(broken, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 1]\n"
    assert "shared objects" not in source
    assert source, "the class was loaded"
