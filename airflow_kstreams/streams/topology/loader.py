"""Loads an application file for another process.

``python -m airflow_kstreams.streams.topology.loader APP_FILE APPLICATION_ID`` prints the plan as JSON after
``KSTREAMS-PLAN`` on stdout, or the error as JSON after ``KSTREAMS-ERROR`` on stderr. With a third argument,
the partition count of every source topic as a JSON object, it prints :class:`LoadedGroups` after
``KSTREAMS-GROUPS`` instead. ``--settings`` gives settings as a JSON object by dotted names. With ``--parent``
it ends with that process, even if that is killed at once (on Linux). Airflow's workers use it, so that user
code neither stays in their memory nor can crash them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from airflow_kstreams.streams.errors import ERROR_MARKER, KStreamsError
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.plan import decode_json
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.outputs import with_outputs
from airflow_kstreams.streams.topology.topology import Topology

#: Starts the line that carries the plan.
PLAN_MARKER = "KSTREAMS-PLAN "
#: Starts the line that carries the partition groups.
GROUPS_MARKER = "KSTREAMS-GROUPS "

#: Option of Linux's ``prctl``: the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


class LoadedGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Partition groups of an application file's topology.

    :param topology_hash: hash of the loaded topology, which may be newer than an earlier plan.
    :param groups: partition groups by subtopology id as text.
    """

    topology_hash: str
    groups: dict[str, Groups]


def load_topology(path: str | Path) -> Topology:
    """Run an application file and call its ``topology()``.

    :raises TopologyError: see :class:`ApplicationFile`.
    """
    return ApplicationFile.read(path).topology()


def main(argv: Sequence[str]) -> int:
    """Print the plan of ``APP_FILE APPLICATION_ID``, or the groups with ``COUNTS``; return 0, or 1 after
    printing an error.
    """
    given = _parser().parse_args(argv)
    if given.parent is not None and not _ends_with(given.parent):
        return 1
    try:
        # Output of user code must not mix with the answer.
        with contextlib.redirect_stdout(sys.stderr):
            settings = ApplicationSettings.parse(given.application_id, json.loads(given.settings))
            topology = with_outputs(load_topology(given.file), settings)
            answer = (
                _plan(topology, given.application_id)
                if given.counts is None
                else _groups(topology, given.application_id, given.counts)
            )
    except KStreamsError as error:
        sys.stderr.write(f"\n{ERROR_MARKER}{json.dumps(error.to_dict())}\n")
        return 1
    sys.stdout.write(f"{answer}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Print the plan of an application file.")
    parser.add_argument("file")
    parser.add_argument("application_id")
    parser.add_argument("counts", nargs="?")
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--parent", type=int)
    return parser


def _ends_with(parent: int) -> bool:
    """Ask the kernel to kill this process when its parent ends; return whether the parent is still there.

    This process asks, not its parent between fork and exec, where a parent with threads may not run Python.

    :param parent: process id.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the request.
    return os.getppid() == parent


def _plan(topology: Topology, application_id: str) -> str:
    return f"{PLAN_MARKER}{msgspec.json.encode(topology.plan(application_id)).decode()}"


def _groups(topology: Topology, application_id: str, counts: str) -> str:
    found = topology.partition_groups(application_id, decode_json(counts, dict[str, int]))
    answer = LoadedGroups(
        topology_hash=topology.topology_hash(), groups={str(sub): groups for sub, groups in found.items()}
    )
    return f"{GROUPS_MARKER}{msgspec.json.encode(answer).decode()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
