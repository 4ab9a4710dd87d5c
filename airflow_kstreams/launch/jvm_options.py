"""Makes the JVM of a driver start soon: an hourly run pays for its start every hour.

Two things, both as options of Java (``prepare-spark`` and ``docs/reference/installing.md`` for users):

- No better compiler than the first (``-XX:TieredStopAtLevel=1``). A driver's JVM plans a job or two and
  waits; records never pass through it, so what the second compiler makes is ready when the run is over.
- Classes that an earlier JVM has read and verified, from an archive (Java's class data sharing), if there is
  one. Java ignores an archive of another Java or of other jars. A truncated one would end it, so a file
  beside the archive, written last, holds the archive's size.

They travel in ``SPARK_SUBMIT_OPTS``, which Spark's launcher puts before ``spark.driver.extraJavaOptions``,
and go before what that variable holds already: the same option in either of them comes later and holds. (Java
itself reads ``JAVA_TOOL_OPTIONS`` and ``JDK_JAVA_OPTIONS`` first, before all that Spark's launcher says.) No
garbage collector is chosen here, since Java refuses to start with two.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: Variable with the options of the JVMs that ``spark-submit`` starts.
VARIABLE: Final = "SPARK_SUBMIT_OPTS"
#: Names the archive, where it is not beside this Python's packages.
ARCHIVE_VARIABLE: Final = "KSTREAMS_SPARK_CLASSES"
COMPILER: Final = "-XX:TieredStopAtLevel=1"


def class_archive(environment: Mapping[str, str]) -> Path:
    """Return where Spark's classes are kept: what ``KSTREAMS_SPARK_CLASSES`` says, or a file of the
    environment that this Python runs in.
    """
    named = environment.get(ARCHIVE_VARIABLE)
    return Path(named) if named else Path(sys.prefix, "share", "airflow-kstreams", "spark-classes.jsa")


def size_file(archive: Path) -> Path:
    """Return the file that holds an archive's size in bytes."""
    return archive.with_name(f"{archive.name}.size")


def taking(archive: Path) -> tuple[str, ...]:
    """Return the options with which a JVM takes its classes from an archive, where they are in it."""
    # A run's log need not mention an archive that does not fit.
    return f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"


def keeping(archive: Path) -> tuple[str, ...]:
    """Return the options with which a JVM writes the classes that it has read into an archive as it ends."""
    return f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=error", "-Xlog:cds+dynamic=error"


def spark_options(*options: str) -> str:
    """Return options of a JVM as Spark reads them from a variable or setting: quoted as for a shell."""
    return shlex.join(options)


def quick_start_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that lets a driver's JVM start soon.

    :param environment: variables that the driver is started with.
    :return: variables to add.
    """
    given, archive = environment.get(VARIABLE, ""), class_archive(environment)
    options = spark_options(COMPILER, *(taking(archive) if _is_whole(archive) else ()))
    return {VARIABLE: given if options in given else f"{options} {given}".strip()}


def _is_whole(archive: Path) -> bool:
    """Whether the archive can be read and has its full size."""
    try:
        size = size_file(archive).read_text(encoding="ascii")
        return os.access(archive, os.R_OK) and size == str(archive.stat().st_size)
    except (OSError, ValueError):
        return False


@contextmanager
def starting_quickly() -> Iterator[None]:
    """Make the Spark that this process starts in the block start soon."""
    given = os.environ.get(VARIABLE)
    os.environ.update(quick_start_options(os.environ))
    try:
        yield
    finally:
        if given is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = given
