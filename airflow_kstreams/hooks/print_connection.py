"""Prints the client settings of a Kafka connection as a line of JSON, for the commands, which import no
Airflow: ``python -m airflow_kstreams.hooks.print_connection ID``. An error is a marked line on stderr.

The settings hold secrets: stdout is a pipe to the command.
"""

from __future__ import annotations

import json
import sys

from airflow.models.connection import Connection

from airflow_kstreams.hooks.airflow_versions import AirflowNotFoundException
from airflow_kstreams.hooks.kafka import checked_settings, settings_in, undefined_connection
from airflow_kstreams.streams.errors import ERROR_MARKER, ConfigError


def main(conn_id: str) -> int:
    """Print the settings or the error; return the exit code."""
    try:
        sys.stdout.write(f"\n{json.dumps(_settings(conn_id))}\n")
    except ConfigError as error:
        sys.stderr.write(f"{ERROR_MARKER}{json.dumps(error.to_dict())}\n")
        return 1
    return 0


def _settings(conn_id: str) -> dict[str, str]:
    try:
        # What `airflow connections get` asks: the environment, secret backends, and the database.
        found = settings_in(Connection.get_connection_from_secrets(conn_id))
    except AirflowNotFoundException:
        raise undefined_connection(conn_id) from None
    return checked_settings(found, conn_id=conn_id)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
