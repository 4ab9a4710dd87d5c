"""Asks a subprocess for the plan of an application file, and for the groups of its partition grouper.

User code runs outside Airflow's own process: it cannot stay in a worker's memory, change its modules or hang
it. The subprocess imports neither Airflow, Spark nor a Kafka client, so it takes a fraction of a second. It
ends with the task that waits for it: a task that is killed ends it, and the kernel does where the worker was
killed at once (on Linux).
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from airflow_kstreams.launch.processes import end_session
from airflow_kstreams.streams.decoders import decode_json
from airflow_kstreams.streams.errors import KilledError, ReportedError, TopologyError, reported_in
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.loader import GROUPS_MARKER, PLAN_MARKER, LoadedGroups

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_LOADER = "airflow_kstreams.streams.topology.loader"
_GRACE_SECONDS = 0.5
#: How soon a killed task ends its wait. Airflow gives it five seconds.
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationLoader:
    """Loads an application file in subprocesses.

    :param application: path of the application file.
    :param log: gets what the file prints.
    :param timeout_seconds: how long one subprocess may take.
    :param settings: may name the topics to write.
    :param was_killed: says whether to give up, because the Airflow task was killed.
    """

    application: str
    log: Logger | logging.Logger
    timeout_seconds: float
    settings: ApplicationSettings | None = None
    was_killed: Callable[[], bool] = lambda: False

    def plan(self, application_id: str) -> TopologyPlan:
        """Return the plan of the file's topology.

        :param application_id: the application.
        :raises ReportedError: the file or its topology is wrong; with file and line.
        :raises TopologyError: loading took too long, or ended the process.
        :raises KilledError: the Airflow task was killed meanwhile.
        """
        return decode_json(self._answer(PLAN_MARKER, application_id), TopologyPlan)

    def groups(self, plan: TopologyPlan, counts: Mapping[str, int]) -> dict[int, Groups]:
        """Ask the file's partition grouper for the groups of every subtopology.

        :param plan: what the file built before.
        :param counts: partition count of every topic that is read, by real name.
        :raises ReportedError: the grouper fails, or its groups cannot be; with file and line.
        :raises TopologyError: the file builds another topology by now, took too long, or ended the process.
        :raises KilledError: the Airflow task was killed meanwhile.
        """
        answer = self._answer(GROUPS_MARKER, plan.application_id, msgspec.json.encode(counts).decode())
        loaded = decode_json(answer, LoadedGroups)
        if loaded.topology_hash != plan.topology_hash:
            raise TopologyError(
                f"application file {self.application!r} changed while the run began: it built topology "
                f"{plan.topology_hash[:12]}, and builds {loaded.topology_hash[:12]} now",
                fix="run the task again",
            )
        return {int(sub): groups for sub, groups in loaded.groups.items()}

    def _answer(self, marker: str, *asked: str) -> str:
        """Run the loader and return its answer."""
        arguments = [self.application, *asked]
        if self.settings is not None:
            arguments += ["--settings", json.dumps(self.settings.to_dict())]
        # As a context manager it closes the pipes, also when loading took too long.
        with subprocess.Popen(
            [sys.executable, "-m", _LOADER, *arguments, "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = self._output(process)
            finally:
                end_session(process.pid, grace_seconds=_GRACE_SECONDS)
        reported = _printed(err, self.log)
        if reported is not None:
            raise reported
        answer = next((line for line in reversed(out.splitlines()) if line.startswith(marker)), None)
        if process.returncode != 0 or answer is None:
            raise TopologyError(
                f"loading application file {self.application!r} ended the process with code "
                f"{process.returncode}",
                fix="see the lines above in this log; try: python -m " + shlex.join([_LOADER, *arguments]),
            )
        return answer.removeprefix(marker)

    def _output(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        """Wait for the loader's end, and return what it wrote on stdout and stderr."""
        deadline = time.monotonic() + self.timeout_seconds
        while True:
            if self.was_killed():
                raise KilledError(
                    f"the Airflow task was killed while application file {self.application!r} was loaded"
                )
            left = deadline - time.monotonic()
            try:
                # Called again after its time is up, it goes on collecting.
                return process.communicate(timeout=max(0.0, min(left, _LOOK_SECONDS)))
            except subprocess.TimeoutExpired:
                if left > _LOOK_SECONDS:
                    continue
                raise TopologyError(
                    f"application file {self.application!r} did not load within {self.timeout_seconds:g} s",
                    fix="building a topology must not connect to anything: move such work into the "
                    "processors",
                ) from None


def _printed(text: str, log: Logger | logging.Logger) -> ReportedError | None:
    reported: ReportedError | None = None
    for line in text.splitlines():
        found = reported_in(line)
        if found is not None:
            reported = found
        elif line.strip():
            log.info("%s", line)
    return reported
