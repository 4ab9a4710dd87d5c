"""Opens the Spark session of a run, with the settings under which the task protocol holds."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from packaging.version import Version

from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.launch.client_config_file import client_config_file
from airflow_kstreams.launch.installation import refuse_unfit_pyspark, version_of
from airflow_kstreams.launch.jvm_options import starting_quickly
from airflow_kstreams.spark.executor.machine_files import ClientSettings, masked
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.printable import package_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = package_log(__name__)

#: Fixed before the session starts. Each client brings threads, and with an arena of memory for each of them a
#: worker that has hosted a few tasks holds twice the memory it needs. Functions over a megabyte would go
#: through files, and they hold a half of the client settings (``executor/machine_files.py``).
STATIC_SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    "spark.broadcast.UDFCompressionThreshold": "1g",
}

#: Our jobs are a range and a Python function: compiling and adapting their plans costs more than they gain.
_QUICK_PLANS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def open_session(name: str, master: str | None = None) -> SparkSession:
    """Open the session that spark-submit configured, or a local one when the file was started with plain
    Python.

    :param name: name in Spark's UI.
    :param master: Spark's master; if None, that of spark-submit or ``MASTER``, else a local one with every
        core.
    :raises ConfigError: Spark is configured in a way that breaks the task protocol, it is too old, or two
        versions of it are mixed.
    """
    refuse_unfit_pyspark()
    if "SPARK_REMOTE" in os.environ and is_before_spark_4():
        raise ConfigError(
            "SPARK_REMOTE is set: Spark Connect needs pyspark 4 here, and Spark 3.5 is installed",
            fix="install airflow-kstreams[spark], or leave SPARK_REMOTE out and name Spark's master",
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).config(map=STATIC_SETTINGS)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ or "MASTER" in os.environ
    if not submitted:
        master = master or f"local[{os.cpu_count() or 1},4]"
        builder = builder.config("spark.ui.enabled", "false")
    if master is not None:
        builder = builder.master(master)
    # Spark's mapInArrow needs pandas in the driver; its import takes a second, while the JVM starts.
    preload = threading.Thread(target=importlib.import_module, args=("pandas",), name="preload-pandas")
    preload.start()
    with starting_quickly():  # unless spark-submit has started Java already
        session = builder.getOrCreate()
    preload.join()
    check_session(session)
    plan_quickly(session)
    return session


def is_before_spark_4() -> bool:
    """Tell whether this is Spark 3.5, whose sessions do some things by Spark Connect alone."""
    found = version_of("pyspark")
    return found is not None and Version(found) < Version("4")


def plan_quickly(session: SparkSession) -> None:
    """Set a session's planning for the jobs of this package."""
    for name, value in _QUICK_PLANS.items():
        session.conf.set(name, value)


def check_session(session: SparkSession) -> None:
    """Refuse settings under which Spark starts two attempts of one task at once.

    :raises ConfigError: speculation is on.
    """
    if str(session.conf.get("spark.speculation", "false")).strip().lower() == "true":
        raise ConfigError(
            "spark.speculation=true starts second attempts of live tasks, which would fence each other",
            fix="set spark.speculation=false for this application",
        )


@contextmanager
def shipped_settings(session: SparkSession, path: str) -> Iterator[ClientSettings]:
    """Make client settings readable on executors while the session is open.

    :param path: the driver's file, which local executors read themselves.
    :raises ConfigError: as :func:`read_client_config`.
    """
    if str(session.conf.get("spark.master", "")).startswith("local"):
        yield ClientSettings(path=path)
        return
    half, mask = masked(read_client_config(path))
    with client_config_file(half) as made:
        if is_before_spark_4():
            session.sparkContext.addFile(made.path)
        else:
            session.addArtifacts(made.path, file=True)
        yield ClientSettings(path=made.path, mask=mask)


def cancel_jobs(session: SparkSession) -> None:
    """Cancel every job of the session, on classic Spark and on Spark Connect.

    Best effort: a session whose JVM is gone has no jobs to cancel.
    """
    try:
        if is_before_spark_4():
            session.sparkContext.cancelAllJobs()
        else:
            session.interruptAll()
    except Exception as error:  # py4j raises any error of a lost connection to the JVM
        log.warning("Spark's jobs could not be cancelled: %s", type(error).__name__)
