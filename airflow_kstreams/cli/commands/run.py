"""Defines ``airflow-kstreams run``: runs an application file by hand, without Airflow."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from typing import Annotated, Literal

import typer

from airflow_kstreams.cli.shared_options import (
    ApplicationId,
    ApplicationPath,
    ApplicationSetting,
    Connection,
    TablesConfig,
    connecting,
    tables_settings,
)


@connecting
def run(
    application: ApplicationPath,
    application_id: ApplicationId,
    connection: Connection,
    setting: ApplicationSetting = None,
    tables_config: TablesConfig = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Names the run; a new name by default.")
    ] = None,
    guarantee: Annotated[
        Literal["exactly_once", "at_least_once"],
        typer.Option(help="The setting processing.guarantee."),
    ] = "exactly_once",
) -> None:
    """Run an application until where its input topics end now, on a Spark of this machine.

    It logs its progress. Ctrl-C stops it and keeps what is committed: the next run finishes this one first.
    Exit codes are those of the application file: 0 done, 1 a retry may help, 2 a retry cannot help, 130
    interrupted.
    """
    from airflow_kstreams.launch.client_config_file import client_config_file
    from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE, CLIENT_CONFIG_IS_TEMPORARY
    from airflow_kstreams.streams.errors import ConfigError, require

    require("spark", "pyspark", "pandas", "pyarrow", what="a run")
    if "__main__" not in application.read_text(encoding="utf-8", errors="replace"):
        raise ConfigError(
            f"{application} starts no run when it is run as a program",
            fix='end it with `if __name__ == "__main__":`, `from airflow_kstreams.spark import run` and '
            "`run(topology)`",
        )
    options = ["--application-id", application_id, "--autostop-at", "eol"]
    if run_id is not None:
        options += ["--run-id", run_id]
    for pair in (f"processing.guarantee={guarantee}", *(setting or ())):
        options += ["--setting", pair]
    # A wrong setting, address or login is said at once, before Spark is started.
    with closing(connection.cluster().admin()) as admin:
        admin.broker_addresses()
    config = {name: str(value) for name, value in connection.client_config().items()}
    config |= tables_settings(tables_config)
    with client_config_file(config) as made:
        # The driver takes the place of this process, with its terminal and its signals, and removes the file.
        os.set_inheritable(made.lock, True)
        environment = {**os.environ, CLIENT_CONFIG_FILE: made.path, CLIENT_CONFIG_IS_TEMPORARY: "1"}
        os.execve(sys.executable, [sys.executable, str(application), *options], environment)  # noqa: S606
