"""Finds the line of the user's code that a call came from, for messages and for the picture of a topology."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import airflow_kstreams

#: What the file names in this package's code objects begin with. It is not resolved: neither are those.
PACKAGE_FOLDER: Final = f"{Path(airflow_kstreams.__file__).parent}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """The user's file and line that defined a node, for messages."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def call_site() -> CallSite:
    """Return the innermost frame outside this package: the user's line that asked for what is being built."""
    frame = sys._getframe(1)
    # The __init__ that dataclasses generate has no file, but the globals of the module it was made in.
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(PACKAGE_FOLDER)
        or (
            frame.f_code.co_filename == "<string>"
            and frame.f_globals.get("__file__", "").startswith(PACKAGE_FOLDER)
        )
    ):
        frame = frame.f_back
    return CallSite(file=frame.f_code.co_filename, line=frame.f_lineno)
