"""Loads an application file for another process.

``python -m airflow_kstreams.streams.topology.loader APP_FILE APPLICATION_ID`` prints the plan as JSON after
``KSTREAMS-PLAN`` on stdout, or the error as JSON after ``KSTREAMS-ERROR`` on stderr. Airflow's workers use it
so, because user code then neither stays in their memory nor can it take them down.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from airflow_kstreams.streams.errors import ERROR_MARKER, KStreamsError
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.topology import Topology

#: Starts the line that carries the plan.
PLAN_MARKER = "KSTREAMS-PLAN "


def load_topology(path: str | Path) -> Topology:
    """Run an application file and call its ``topology()``.

    :raises TopologyError: see :class:`ApplicationFile`.
    """
    return ApplicationFile.read(path).topology()


def main(argv: Sequence[str]) -> int:
    """Print the plan of ``APP_FILE APPLICATION_ID``; return 0, or 1 after printing an error."""
    path, application_id = argv
    try:
        # What user code prints must not mix with the answer.
        with contextlib.redirect_stdout(sys.stderr):
            plan = load_topology(path).plan(application_id)
    except KStreamsError as error:
        sys.stderr.write(f"\n{ERROR_MARKER}{json.dumps(error.to_dict())}\n")
        return 1
    sys.stdout.write(f"{PLAN_MARKER}{msgspec.json.encode(plan).decode()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
