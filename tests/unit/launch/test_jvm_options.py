"""Options with which a driver's JVM starts soon: added to what a user says, never against it."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from airflow_kstreams.launch.jvm_options import (
    ARCHIVE_VARIABLE,
    COMPILER,
    VARIABLE,
    class_archive,
    quick_start_options,
    size_file,
    spark_options,
    starting_quickly,
    taking,
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return archive_at(tmp_path / "spark-classes.jsa")


def archive_at(path: Path) -> Path:
    path.write_bytes(b"classes")
    size_file(path).write_text("7", encoding="ascii")
    return path


def test_archive_is_named_when_there_is_one(archive: Path) -> None:
    named = {ARCHIVE_VARIABLE: str(archive)}
    assert quick_start_options(named) == {VARIABLE: spark_options(COMPILER, *taking(archive))}
    archive.unlink()
    assert quick_start_options(named) == {VARIABLE: COMPILER}


def test_archive_is_looked_for_beside_this_python() -> None:
    assert Path(sys.prefix) in class_archive({}).parents
    assert class_archive({ARCHIVE_VARIABLE: ""}) == class_archive({})


def test_users_options_come_last_and_so_hold(archive: Path) -> None:
    users = "-XX:TieredStopAtLevel=4 -XX:+UseZGC"
    found = quick_start_options({VARIABLE: users, ARCHIVE_VARIABLE: str(archive)})[VARIABLE]
    assert found.split()[0] == COMPILER
    assert found.endswith(f" {users}")


def test_nothing_is_added_twice(archive: Path) -> None:
    once = {ARCHIVE_VARIABLE: str(archive)}
    once |= quick_start_options(once)
    assert quick_start_options(once) == {VARIABLE: once[VARIABLE]}


def test_archive_stays_one_word_when_its_name_has_spaces(tmp_path: Path) -> None:
    spaced = archive_at(tmp_path / "zwei Wörter.jsa")
    options = quick_start_options({ARCHIVE_VARIABLE: str(spaced)})[VARIABLE]
    assert f"-XX:SharedArchiveFile={spaced}" in shlex.split(options)


@pytest.mark.parametrize("told", ["", "8", "seven", "\u0667", None])
def test_archive_is_left_out_when_its_size_is_another(archive: Path, told: str | None) -> None:
    if told is None:
        size_file(archive).unlink()
    else:
        size_file(archive).write_text(told, encoding="utf-8")
    assert quick_start_options({ARCHIVE_VARIABLE: str(archive)}) == {VARIABLE: COMPILER}


def test_archive_is_left_out_when_it_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert quick_start_options({ARCHIVE_VARIABLE: str(file / "below")}) == {VARIABLE: COMPILER}


def test_no_collector_is_chosen_since_java_refuses_two(archive: Path) -> None:
    assert "GC" not in quick_start_options({ARCHIVE_VARIABLE: str(archive)})[VARIABLE]


def test_this_process_environment_is_set_when_it_starts_spark_itself(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "-Dmine=1")
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(archive))
    with starting_quickly():
        assert os.environ[VARIABLE] == f"{spark_options(COMPILER, *taking(archive))} -Dmine=1"
    assert os.environ[VARIABLE] == "-Dmine=1"
    monkeypatch.delenv(VARIABLE)
    with starting_quickly():
        assert os.environ[VARIABLE] == spark_options(COMPILER, *taking(archive))
    assert VARIABLE not in os.environ
