"""Asks a subprocess for the plan of an application file.

User code runs outside Airflow's own process: it cannot stay in a worker's memory, change its modules or hang
it. The subprocess imports neither Airflow, Spark nor a Kafka client, so it takes a fraction of a second.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from airflow_kstreams.hooks.processes import end_session
from airflow_kstreams.streams.errors import ReportedError, TopologyError, reported_in
from airflow_kstreams.streams.topology.plan import TopologyPlan

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_LOADER = "airflow_kstreams.streams.topology.loader"
_PLAN_MARKER = "KSTREAMS-PLAN "
_GRACE_SECONDS = 0.5


def plan_of(application: str, application_id: str, *, timeout_seconds: float, log: Logger) -> TopologyPlan:
    """Load an application file in a subprocess and return its topology's plan.

    :param application: path of the application file.
    :param application_id: the application.
    :param timeout_seconds: how long loading may take.
    :param log: gets what the file prints.
    :raises ReportedError: the file or its topology is wrong; with file and line.
    :raises TopologyError: loading took too long, or ended the process.
    """
    # As a context manager it closes the pipes, also when loading took too long.
    with subprocess.Popen(
        [sys.executable, "-m", _LOADER, application, application_id],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            raise TopologyError(
                f"application file {application!r} did not load within {timeout_seconds:g} s",
                fix="building a topology must not connect to anything: move such work into the processors",
            ) from None
        finally:
            end_session(process.pid, grace_seconds=_GRACE_SECONDS)
    reported = _printed(err, log)
    if reported is not None:
        raise reported
    plan = next((line for line in reversed(out.splitlines()) if line.startswith(_PLAN_MARKER)), None)
    if process.returncode != 0 or plan is None:
        raise TopologyError(
            f"loading application file {application!r} ended the process with code {process.returncode}",
            fix="see the lines above in this log; try: python -m "
            + f"{_LOADER} {application} {application_id}",
        )
    return msgspec.json.decode(plan.removeprefix(_PLAN_MARKER), type=TopologyPlan)


def _printed(text: str, log: Logger) -> ReportedError | None:
    reported: ReportedError | None = None
    for line in text.splitlines():
        found = reported_in(line)
        if found is not None:
            reported = found
        elif line.strip():
            log.info("%s", line)
    return reported
