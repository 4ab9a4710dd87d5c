"""Runs an application file as a program.

::

    if __name__ == "__main__":
        from airflow_kstreams.spark import run

        run(topology)

Under Airflow, the operator passes ``--run-spec``; by hand, the options below take its place. With
``autostop.at`` set (to ``eol``, by hand) it runs a batch, else continuously until SIGTERM or SIGINT
(``docs/explanation/continuous.md``). Exit codes: 0 done, 1 failed and a retry may help, 2 failed and a retry
cannot help, 130 interrupted by SIGINT in a batch, which the next run resumes.
A failure prints its cause and remedy, and before them, where no terminal shows it, the same as JSON after
``KSTREAMS-ERROR`` for the operator.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from airflow_kstreams.batch.report.counts import finished_text, speed_lines
from airflow_kstreams.batch.run.finished_before import nothing_processed
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.launch.client_config_file import client_config_file
from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE, CLIENT_CONFIG_IS_TEMPORARY, RunSpec
from airflow_kstreams.spark.driver.driver import Driver
from airflow_kstreams.spark.driver.executors import SparkExecutors
from airflow_kstreams.spark.driver.merges import DriverMerges
from airflow_kstreams.spark.driver.rewrites import DriverRewrites
from airflow_kstreams.spark.driver.telemetry import OpenTelemetry, by_hand
from airflow_kstreams.spark.executor.task_host import LINE
from airflow_kstreams.streams.errors import ERROR_MARKER, ConfigError, KStreamsError, require
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.outputs import with_outputs
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.tables.connections import TablesSettings, open_tables, parted

log = package_log(__name__)

#: Exit codes, see the module's docstring.
DONE, RETRY_MAY_HELP, RETRY_CANNOT_HELP, INTERRUPTED = 0, 1, 2, 130


def run(topology: Callable[[], Topology], argv: Sequence[str] | None = None) -> None:
    """Run a topology until its stop offsets, or continuously until SIGTERM, as its settings say; then exit
    the process. An application file calls it in its last lines.

    ::

        if __name__ == "__main__":
            from airflow_kstreams.spark import run

            run(topology)

    Exit codes: 0 done, 1 failed and a retry may help, 2 failed and a retry cannot help.

    :param topology: the top-level function of the application file that returns the topology.
    :param argv: command line; ``sys.argv`` by default.
    """
    faulthandler.enable()  # a process that crashes in a library prints the place
    logging.basicConfig(level=logging.INFO, format=LINE, stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of each connection that it closes
    sys.exit(main(topology, sys.argv[1:] if argv is None else argv))


def main(topology: Callable[[], Topology], argv: Sequence[str]) -> int:
    """Run a topology and return the exit code; errors are printed, not raised."""
    options = _parser().parse_args(argv)
    try:
        spec = _spec(options)
        with _client_config_path(options) as path:
            outcome = _run(spec, ApplicationFile.of(topology), path)
    except KStreamsError as error:
        # The report comes first: the operator knows by it the lines that repeat it.
        report = "" if sys.stderr.isatty() else f"{ERROR_MARKER}{json.dumps(error.to_dict())}\n"
        sys.stderr.write(f"{report}{error}\n")
        return RETRY_MAY_HELP if error.is_retriable else RETRY_CANNOT_HELP
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: what is committed stays, and the next run finishes this one first\n")
        return INTERRUPTED
    if outcome and not options.run_spec:  # the operator says it, with what Kafka has
        sys.stdout.write(f"{outcome}\n")
    return DONE


def _run(spec: RunSpec, source: ApplicationFile, client_config_path: str) -> str:
    """Run a batch, or continuously, by the settings; return the last lines to print."""
    require("spark", "pyspark", "pandas", "pyarrow", what="a run")
    settings = ApplicationSettings.parse(spec.application_id, spec.settings)
    client, tables = parted(read_client_config(client_config_path))
    cluster = KafkaCluster(client, settings=settings)
    topology = with_outputs(source.topology(), settings)
    open_tables(tables).check(topology.plan(spec.application_id).tables)
    executors = SparkExecutors(
        f"{spec.application_id} {spec.run_id}",
        source,
        settings=settings,
        client_config_path=client_config_path,
    )
    opened = open_tables(tables, rewriter=DriverRewrites(executors.hosts).rewrite)
    driver = Driver(
        spec,
        topology,
        settings=settings,
        cluster=cluster,
        executors=executors,
        tables=opened,
        make_merges=DriverMerges(executors.hosts, opened).make,
        telemetry=None if spec.metrics is None else OpenTelemetry(spec.metrics),
    )
    if settings.continuous:
        reports = driver.run_continuously()
        first = f"continuous run {spec.run_id} stopped: {counted(len(reports), 'task')}"
        return "\n".join([first, *(f"  {line}" for line in speed_lines(reports, topology.purposes))])
    summary = driver.run()
    if summary is None:
        return ""
    if driver.finished_before:
        return nothing_processed(summary)
    return finished_text(summary)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Run this topology: continuously, until SIGTERM, or with --autostop-at eol until "
        "the present end of its input topics."
    )
    parser.add_argument("--run-spec", help="run spec as JSON (what the Airflow operator passes)")
    parser.add_argument("--application-id", help="names the consumer group and the internal topics")
    parser.add_argument("--run-id", help="a new one by default; give the old one to resume a run that failed")
    parser.add_argument("--bootstrap-servers", help="Kafka brokers, host:port[,host:port]")
    parser.add_argument("--client-config", help="JSON file with further client settings (librdkafka names)")
    parser.add_argument(
        "--tables-config", help="JSON file that says where tables are (names iceberg.* and delta.*)"
    )
    parser.add_argument(
        "--autostop-at",
        metavar="eol",
        help="stop where the input topics end now; the same as --setting autostop.at=eol",
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="application setting, may be repeated",
    )
    return parser


def _spec(options: argparse.Namespace) -> RunSpec:
    if options.run_spec:
        return RunSpec.from_json(options.run_spec)
    if not options.application_id:
        raise ConfigError(
            "neither --run-spec nor --application-id was given", fix="give --application-id NAME"
        )
    settings: dict[str, str | int | float] = {}
    for pair in options.setting:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--setting {pair!r} has no value", fix="write --setting NAME=VALUE")
        settings[name] = value
    if options.autostop_at is not None:
        settings["autostop.at"] = options.autostop_at
    run_id = options.run_id or f"manual__{datetime.now(tz=UTC).isoformat(timespec='milliseconds')}"
    # By hand, the later start wins: start times order the attempts of a run.
    return RunSpec(
        application_id=options.application_id,
        run_id=run_id,
        order=(0, time.time_ns() // 1_000_000),
        owner=f"process {os.getpid()} of {os.uname().nodename}",
        settings=settings,
        finish=True,
        metrics=by_hand(),
    )


@contextmanager
def _client_config_path(options: argparse.Namespace) -> Iterator[str]:
    """Yield the path of the file with the client's configuration; a file made for this process is removed
    after the block.
    """
    path = options.client_config or os.environ.get(CLIENT_CONFIG_FILE)
    if path and not Path(path).exists():
        raise ConfigError(
            f"the Kafka client configuration {path!r} does not exist", fix="name an existing JSON file"
        )
    if path and not options.bootstrap_servers and not options.tables_config:
        try:
            yield path
        finally:
            # The process that made the file removes it, too, unless it was killed.
            if not options.client_config and os.environ.get(CLIENT_CONFIG_IS_TEMPORARY):
                Path(path).unlink(missing_ok=True)
        return
    if not path and not options.bootstrap_servers:
        raise ConfigError(
            "no Kafka client configuration",
            fix=f"give --bootstrap-servers, --client-config, or name a JSON file in {CLIENT_CONFIG_FILE}",
        )
    config = read_client_config(path) if path else {}
    if options.bootstrap_servers:
        config["bootstrap.servers"] = options.bootstrap_servers
    if options.tables_config:
        config = {**parted(config)[0], **TablesSettings.from_file(options.tables_config)}
    with client_config_file(config) as made:
        yield made.path
