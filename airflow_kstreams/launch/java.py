"""Finds the Java that Spark and a local broker are started with."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Java itself answers at once; what stands in its place may not.
_SECONDS = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """The Java of an environment.

    :param path: of its command.
    :param version: as it says it, e.g. ``17.0.9`` or ``1.8.0_402``; empty if it does not run.
    :param named_by: the variable that names it: ``JAVA_HOME`` or ``PATH``.
    """

    path: str
    version: str
    named_by: str

    @property
    def feature(self) -> int:
        """Number of the release: 17 of ``17.0.9``, 8 of ``1.8.0_402``; 0 if it does not run."""
        number = self.version.removeprefix("1.").partition(".")[0].partition("-")[0]
        return int(number) if number.isdecimal() else 0


def find_java(environment: Mapping[str, str]) -> Java | None:
    """Return the Java that ``JAVA_HOME`` names, else the one of the ``PATH``; None if neither names one."""
    home = environment.get("JAVA_HOME")
    path = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if path is None:
        return None
    version = _said(path).partition('version "')[2].partition('"')[0]
    return Java(path=path, version=version, named_by="JAVA_HOME" if home else "PATH")


def _said(java: str) -> str:
    try:
        ended = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stderr
