"""Looks at this machine: releases that are installed, Java, Spark, and the disk of local state."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.version import Version

from airflow_kstreams.batch.inspect.doctor.looks import Finding, error, ok, unseen, warning
from airflow_kstreams.launch.installation import installed, is_older, mixed_pyspark, version_of
from airflow_kstreams.launch.java import find_java
from airflow_kstreams.streams.settings import ApplicationSettings

_JAVA, _DISK = "Java and Spark", "disk"
_SPARK_4 = Version("4")
#: The oldest Java that a release of Spark runs on.
_OF_SPARK_4, _OF_SPARK_3 = 17, 8
_SPARK_JAR = re.compile(r"spark-core_[\d.]+-(?P<version>\d[^/]*)\.jar")
_GIB = 1 << 30


def look_at_releases() -> Iterator[Finding]:
    """Look whether this package is proven with what is installed beside it."""
    check, found = "releases", list(installed())
    beyond = [part for part in found if not part.is_proven]
    for part in beyond:
        yield warning(
            check,
            "release-not-proven",
            f"{part.name} {part.version} is installed, and this package is proven with {part.proven}",
            f"install a release of {part.name} between those of a line in docs/reference/installing.md, "
            "together with the others of that line",
        )
    if (mixed := mixed_pyspark()) is not None:
        yield error(check, "pyspark-mixed", mixed.cause, mixed.fix)
    elif not beyond:
        yield ok(check, ", ".join(f"{part.name} {part.version}" for part in found))


def look_at_java(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look whether a run that starts Spark here would find a Java that this Spark runs on."""
    spark = version_of("pyspark")
    if spark is None:
        yield unseen(_JAVA, "pyspark is not installed here: runs start Spark elsewhere, or a Spark server")
        return
    wanted = _OF_SPARK_3 if is_older(spark, _SPARK_4) else _OF_SPARK_4
    java = find_java(environment)
    if java is None or not java.version:
        named = "neither JAVA_HOME nor the PATH names one" if java is None else f"{java.path} does not run"
        yield error(
            _JAVA,
            "java-missing",
            f"no Java for Spark {spark}: {named}",
            f"install Java {wanted} or a later one, or name its folder by JAVA_HOME",
        )
        return
    if java.feature < wanted:
        yield error(
            _JAVA,
            "java-too-old",
            f"{java.path} ({java.named_by}) is Java {java.version}, and Spark {spark} needs {wanted}",
            f"install Java {wanted} or a later one, and name its folder by JAVA_HOME",
        )
    home = environment.get("SPARK_HOME", "")
    other = _spark_in(Path(home)) if home else None
    if other is not None and other != spark:
        yield error(
            _JAVA,
            "spark-home-differs",
            f"SPARK_HOME names Spark {other} in {home}, and pyspark is {spark}: its Python would talk to the "
            "other's Java",
            f"unset SPARK_HOME, or install pyspark=={other}",
        )
    elif java.feature >= wanted:
        yield ok(_JAVA, f"Java {java.version} by {java.named_by} at {java.path}; Spark {spark}")


def _spark_in(home: Path) -> str | None:
    """Return the version of the Spark in a folder, None if there is none."""
    for jar in sorted(home.glob("jars/spark-core_*.jar")):
        if match := _SPARK_JAR.fullmatch(jar.name):
            return match["version"]
    return None


def look_at_state_dir(settings: ApplicationSettings) -> Iterator[Finding]:
    """Look whether the folder of local state can be written here, and its disk has room."""
    if not settings.state_dir:
        yield ok(_DISK, "state.dir is not set: stores live in executors' scratch folders during a task")
        return
    wanted = Path(settings.state_dir)
    try:
        folder = next(each for each in (wanted, *wanted.absolute().parents) if each.exists())
        free = shutil.disk_usage(folder).free
        used = _bytes_below(wanted / settings.application_id)
    except OSError as fault:
        yield unseen(_DISK, f"state.dir {wanted}: {fault.strerror or fault}")
        return
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        yield error(
            _DISK,
            "state-dir-unwritable",
            f"state.dir {wanted} cannot be written on this machine: {folder} is no folder of this user's",
            "let state.dir name a folder that this user can write, on the machines of the executors",
        )
    elif free < max(_GIB, used):
        yield warning(
            _DISK,
            "disk-nearly-full",
            f"state.dir {wanted} has {free / _GIB:.1f} GiB left, and the application's stores take "
            f"{used / _GIB:.1f} GiB there: a restore needs as much again, and a GiB at least",
            "make room on that disk, or let state.dir name a folder on a larger one",
        )
    else:
        yield ok(_DISK, f"state.dir {wanted} of this machine has {free / _GIB:.1f} GiB left")


def _bytes_below(folder: Path) -> int:
    return sum(each.lstat().st_size for each in folder.rglob("*") if each.is_file() and not each.is_symlink())
