"""Keeps the classes of a Spark driver, so that later ones start sooner (``launch/jvm_options.py``).

A driver starts on this machine, does the steps of a run's driver, and writes the classes that it has loaded
as it ends. The archive appears whole or not at all, so that it can be made while runs go on: an archive
without its size beside it is not used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_kstreams.launch.jvm_options import (
    ARCHIVE_VARIABLE,
    COMPILER,
    VARIABLE,
    keeping,
    size_file,
    spark_options,
)
from airflow_kstreams.spark.driver.spark_session import STATIC_SETTINGS, plan_quickly
from airflow_kstreams.streams.errors import ConfigError, SparkSessionError, unwritable

if TYPE_CHECKING:
    import pyarrow as pa

#: Number of Java's last lines in the error.
_LINES = 4
#: Long enough for any machine on which runs are possible.
_JAVA_ENDS_SECONDS = 300


def keep_classes(archive: Path) -> None:
    """Write an archive in place of an older one.

    :raises ConfigError: the file cannot be written.
    :raises SparkSessionError: Spark did not start, or ended without the archive.
    """
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=f"{archive.name}-", dir=archive.parent)
    except OSError as error:
        raise _unwritable(archive, error) from None
    with folder:
        partial = Path(folder.name, "partial.jsa")
        _run_driver(partial)
        try:
            size = Path(folder.name, "size")
            size.write_text(str(partial.stat().st_size), encoding="ascii")
            partial.replace(archive)
            size.replace(size_file(archive))
        except OSError as error:
            raise _unwritable(archive, error) from None


def _run_driver(partial: Path) -> None:
    environment = os.environ | {
        VARIABLE: spark_options(COMPILER, *keeping(partial)),
        ARCHIVE_VARIABLE: str(partial),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or not partial.exists():
        # Java's standard output names the cause.
        lines = [line.strip() for line in (done.stdout.strip() or done.stderr).splitlines() if line.strip()]
        raise SparkSessionError(
            f"Spark ended without an archive of its classes: {' / '.join(lines[-_LINES:]) or 'no output'}",
            fix="check that Java 17 or newer is on the PATH and that a run starts here, then try again",
        )


def _unwritable(archive: Path, error: OSError) -> ConfigError:
    fix = f"name a file that you may write by --output, and in {ARCHIVE_VARIABLE} where runs are started"
    return unwritable(archive, error, fix=fix)


def _work() -> int:
    """Do the steps of a run's driver, and end Java in order; return its exit code."""
    from pyspark.sql import SparkSession

    settings = {**STATIC_SETTINGS, "spark.master": "local[2]", "spark.driver.host": "127.0.0.1"}
    session = SparkSession.builder.appName("prepare-spark").config(map=settings).getOrCreate()
    plan_quickly(session)
    session.range(0, 2, 1, 2).mapInArrow(_unchanged, "id long").collect()
    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is None:
        return 1
    gateway.shutdown()
    # Java ends with its standard input.
    gateway.proc.stdin.close()
    return int(gateway.proc.wait(_JAVA_ENDS_SECONDS))


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


if __name__ == "__main__":
    sys.exit(_work())
