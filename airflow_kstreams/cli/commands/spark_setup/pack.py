"""Defines ``airflow-kstreams pack``: writes the archive that brings this package to Spark's executors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import say


def pack(
    output: Annotated[Path, typer.Option(metavar="FILE.tar.gz", help="File to write.")] = Path(
        "kstreams.tar.gz"
    ),
    extras: Annotated[
        str,
        typer.Option(
            "--extras",
            metavar="NAMES",
            help="Extras that executors need: rocksdb, schema-registry, separated by commas.",
        ),
    ] = "",
) -> None:
    """Write an archive with this package and its requirements, for executors that have neither.

    Build it on a machine like the executors, with their Python version. Arrow, pandas and Spark itself are
    not in it.
    """
    from airflow_kstreams.spark.driver.package_archive import build_archive, python_tag, spark_conf

    archive = build_archive(output, extras=[extra.strip() for extra in extras.split(",") if extra.strip()])
    for name, version in sorted(archive.distributions.items()):
        say(f"{name} {version}")
    say(f"{archive.path}: {archive.size_bytes / 1e6:.1f} MB, for {python_tag()}")
    say("Use it with these Spark settings (conf= of the operators):")
    for name, value in spark_conf(str(archive.path.resolve())).items():
        say(f"  {name}={value}")
