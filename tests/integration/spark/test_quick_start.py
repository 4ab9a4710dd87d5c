"""``prepare-spark`` with Spark: drivers take their classes from the archive, or do without a broken one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_kstreams.launch.jvm_options import ARCHIVE_VARIABLE, VARIABLE, size_file
from dev.servers.quick_java import SPARK_CLASSES
from tests.conftest import TESTS

#: What a driver does when an application file is started with plain Python.
_DRIVER = """
from airflow_kstreams.spark.driver.spark_session import open_session
session = open_session("quick")
frame = session.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long")
print(sorted(row.id for row in frame.collect()))
session.stop()
"""
#: Not what Java's own archive is called.
_FROM_THE_ARCHIVE = "shared objects file (top)"
#: A class of Spark's planner, which no Java has by itself.
_PLANNER = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan source:"


def run(archive: Path, *command: str, options: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, ARCHIVE_VARIABLE: str(archive), "PYTHONPATH": str(TESTS.parent)}
    # What this test session sets for its own Sparks.
    environment[VARIABLE] = options
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.prove  # dev/setup keeps the classes that the tests below take
def test_command_keeps_classes_in_a_folder_of_any_name(tmp_path: Path) -> None:
    path = tmp_path / "größere Klassen" / "spark.jsa"
    made = run(path, "-m", "airflow_kstreams.cli", "prepare-spark")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(f"{path}: ")
    assert ARCHIVE_VARIABLE not in made.stdout, "runs look there already"
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, size_file(path).name}
    assert classes_taken(path, tmp_path)


def classes_taken(archive: Path, folder: Path) -> int:
    """Run a driver; return how many classes its JVM had from the archive."""
    loaded = folder / "loaded.txt"
    done = run(archive, "-c", _DRIVER, options=f"-Xlog:class+load:file={loaded}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 1]\n"
    lines = loaded.read_text(encoding="utf-8").splitlines()
    assert any(_PLANNER in line for line in lines), "the planner was loaded"
    return sum(line.endswith(_FROM_THE_ARCHIVE) for line in lines)


def test_driver_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    assert classes_taken(SPARK_CLASSES, tmp_path) > 1_000


@pytest.mark.parametrize("cut_to", [0, pytest.param(100_000, marks=pytest.mark.prove)])
def test_driver_reads_the_jars_when_the_archive_is_broken(tmp_path: Path, cut_to: int) -> None:
    broken = tmp_path / "broken.jsa"
    broken.write_bytes(SPARK_CLASSES.read_bytes()[:cut_to])
    size_file(broken).write_bytes(size_file(SPARK_CLASSES).read_bytes())
    assert classes_taken(broken, tmp_path) == 0
