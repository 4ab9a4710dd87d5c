"""Defines ``airflow-kstreams prepare-spark``: makes drivers start sooner."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import say


def prepare_spark(
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsa",
            help="File to write; by default the archive that runs look for (KSTREAMS_SPARK_CLASSES).",
        ),
    ] = None,
) -> None:
    """Keep Spark's classes in an archive, from which the drivers of later runs start sooner.

    Run it once for each machine or image that starts drivers, and again after Java or Spark has changed:
    drivers ignore an archive of another Java or Spark. It takes about half a minute.
    """
    from airflow_kstreams.launch.jvm_options import ARCHIVE_VARIABLE, class_archive
    from airflow_kstreams.spark.driver.class_archive import keep_classes
    from airflow_kstreams.streams.errors import require

    require("spark", "pyspark", "pandas", "pyarrow", what="prepare-spark")
    looked_for = class_archive(os.environ)
    archive = (output or looked_for).absolute()
    keep_classes(archive)
    say(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB")
    if archive != looked_for.absolute():
        say(f"Set this where runs are started: {ARCHIVE_VARIABLE}={archive}")
