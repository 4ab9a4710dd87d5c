"""How the JVM of a driver starts soon: an hourly run pays for it every hour.

Two things, both as options of Java (``prepare-spark`` and ``docs/installing.md`` for users):

- No better compiler than the first (``-XX:TieredStopAtLevel=1``). A driver's JVM plans a job or two and
  waits; records never pass through it, so what the second compiler makes is ready when the run is over.
- Classes that an earlier JVM has read and verified, from an archive (Java's class data sharing), if there is
  one. Java leaves an archive alone that was made by another Java or from other jars, or is broken.

They travel in ``SPARK_SUBMIT_OPTS``, which Spark puts before all other options of a JVM that it starts on
this machine, and go before what that variable holds already: where a user sets the same option anywhere, the
user's comes later and holds. No garbage collector is chosen here, since Java refuses to start with two.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: Where Spark looks for options of the JVMs that ``spark-submit`` starts.
VARIABLE: Final = "SPARK_SUBMIT_OPTS"
#: Names the archive, where it is not beside this Python's packages.
ARCHIVE_VARIABLE: Final = "KSTREAMS_SPARK_CLASSES"
COMPILER: Final = "-XX:TieredStopAtLevel=1"
#: An archive that does not fit is nothing that a run's log has to tell.
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def class_archive(environment: Mapping[str, str]) -> Path:
    """Return where Spark's classes are kept: what ``KSTREAMS_SPARK_CLASSES`` says, or a file of the
    environment that this Python runs in.
    """
    named = environment.get(ARCHIVE_VARIABLE)
    return Path(named) if named else Path(sys.prefix, "share", "airflow-kstreams", "spark-classes.jsa")


def taking(archive: Path) -> str:
    """Return the options with which a JVM takes its classes from an archive, where they are in it."""
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"


def keeping(archive: Path) -> str:
    """Return the options with which a JVM writes the classes that it has read into an archive as it ends."""
    return f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"


def quick_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that lets a driver's JVM start soon.

    :param environment: which the driver is started in.
    :return: to be added to it.
    """
    given, archive = environment.get(VARIABLE, ""), class_archive(environment)
    # Spark's launcher splits at spaces.
    options = f"{COMPILER} {taking(archive)}" if archive.is_file() and " " not in str(archive) else COMPILER
    return {VARIABLE: given if options in given else f"{options} {given}".strip()}


def start_quickly() -> None:
    """Have every Spark that this process starts from now on start soon."""
    os.environ.update(quick_start(os.environ))
