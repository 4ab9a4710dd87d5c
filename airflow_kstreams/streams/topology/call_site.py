"""Where in the user's code a node was defined."""

from __future__ import annotations

import sys
from pathlib import Path

from airflow_kstreams.streams.topology.nodes import CallSite

#: This package, and the constructors that dataclasses generate.
_NOT_THE_USERS = (f"{Path(__file__).resolve().parents[2]}/", "<string>")


def call_site() -> CallSite:
    """Return the innermost frame outside this package: the user's line that asked for what is being built."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
    return CallSite(file=frame.f_code.co_filename, line=frame.f_lineno)
