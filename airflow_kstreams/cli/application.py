"""The topology of an application file, as commands build it."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_kstreams.streams.topology.topology import Topology


def load_topology(path: Path, function: str) -> Topology:
    """Build the topology that an application file defines.

    What the file prints goes to stderr, apart from the command's own output.

    :raises TopologyError: the file does not run, or defines no topology.
    """
    from airflow_kstreams.streams.topology.application_file import ApplicationFile

    with contextlib.redirect_stdout(sys.stderr):
        return dataclasses.replace(ApplicationFile.read(path), function=function).topology()
