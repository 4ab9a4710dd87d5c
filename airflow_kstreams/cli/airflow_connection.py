"""Reads a Kafka connection of Airflow for a command: in a process of its own, because commands import no
Airflow.

The process is ``python -m airflow_kstreams.hooks.print_connection``. Settings and secrets come through its
pipe, and nowhere else.
"""

from __future__ import annotations

import json
import subprocess
import sys

from airflow_kstreams.kafka.configuration.secrets import sealed
from airflow_kstreams.streams.errors import ConfigError, reported_in, require

#: Airflow itself needs seconds for its import, more on a slow machine.
_TIMEOUT_SECONDS = 60.0


def read_airflow_connection(conn_id: str) -> dict[str, str]:
    """Return the client settings that a connection of Airflow holds.

    :raises MissingExtraError: Airflow is not installed here.
    :raises ConfigError: Airflow has no such connection, cannot look, or the connection's settings are wrong.
    """
    require("airflow", "airflow", what="--airflow-conn")
    command = [sys.executable, "-m", "airflow_kstreams.hooks.print_connection", conn_id]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise _unanswered(conn_id, f"no answer within {_TIMEOUT_SECONDS:g} s") from None
    # Airflow's plugins may print lines of their own before it.
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        return sealed(json.loads(lines[-1]))
    for line in done.stderr.splitlines():
        reported = reported_in(line)
        if reported is not None:
            raise ConfigError(reported.cause, fix=reported.fix)
    last = done.stderr.strip().rpartition("\n")[2]
    raise _unanswered(conn_id, last or f"its process ended with code {done.returncode} and printed nothing")


def _unanswered(conn_id: str, reason: str) -> ConfigError:
    return ConfigError(
        f"Airflow could not be asked for connection {conn_id!r}: {reason}",
        fix=f"see that this works here: airflow connections get {conn_id}",
    )
