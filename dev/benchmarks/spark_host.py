"""A Spark session that runs what it is asked: this engine, the hand-written loops, or Spark's own queries.

Each line of standard input is a request, each line of standard output its answer, both JSON. This engine and
Spark's own queries each have a process of their own, so that the memory of one is not counted with the other.

usage: python -m dev.benchmarks.spark_host engine|engine-prepared|engine-fresh-workers|connector FOLDER
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kstreams.launch.jvm_options import ARCHIVE_VARIABLE
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from dev.benchmarks import spark_peers, suite_topologies
from dev.benchmarks.hand_written import Loop, hand_written
from dev.benchmarks.raw import raw
from dev.benchmarks.runs import run_topology, stops_of
from dev.benchmarks.tables.places import settings_of
from dev.benchmarks.tables.table_rows import rewritten_bytes
from dev.benchmarks.tables.table_topologies import TABLE_TOPOLOGIES
from dev.servers.quick_java import SPARK_CLASSES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Request = Mapping[str, Any]


def main() -> int:
    """Open the session, then answer requests until standard input ends."""
    kind, folder = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever Spark prints is no answer
    session = _session(kind, folder)
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _answer(answers, _SYSTEMS[request["system"]](session, request))
    session.stop()
    return 0


def _answer(answers: Any, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _session(kind: str, folder: str) -> SparkSession:
    if kind == "connector":
        return _connector_session(folder)
    from airflow_kstreams.spark.driver.spark_session import open_session

    submit = [
        *("--conf", f"spark.local.dir={folder}"),
        *("--conf", f"spark.python.worker.reuse={'false' if kind == 'engine-fresh-workers' else 'true'}"),
        "pyspark-shell",
    ]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(submit)
    # Whatever this Python's environment has, only what is measured as prepared is.
    classes = SPARK_CLASSES if kind == "engine-prepared" else Path(folder, "no-classes.jsa")
    os.environ[ARCHIVE_VARIABLE] = str(classes)
    session = open_session("bench")
    session.sparkContext.setLogLevel("ERROR")
    return session


def _connector_session(folder: str) -> SparkSession:
    """Open a session as Spark's users have it: whole-stage code generation, a heap of 4 GB."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    jars = sorted(Path(os.environ["KSTREAMS_DEV_SPARK_KAFKA_LIBS"]).glob("*.jar"))
    session = (
        SparkSession.builder.master(f"local[{os.cpu_count() or 2}]")
        .appName("bench")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", folder)
        .config("spark.sql.warehouse.dir", str(Path(folder) / "warehouse"))
        .config("spark.sql.shuffle.partitions", str(spark_peers.SHUFFLE_PARTITIONS))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _engine(session: SparkSession, request: Request) -> Mapping[str, Any]:
    timing = run_topology(
        session,
        request["bootstrap"],
        application_of(request),
        application_id=request["application_id"],
        run_id=request["run_id"],
        guarantee=request["guarantee"],
        config={
            # lz4 is this engine's own default.
            **({} if request["codec"] == "lz4" else {"compression.type": request["codec"]}),
            **({} if request["target"] == "topic" else settings_of(request["folder"])),
        },
    )
    return {
        "seconds": timing.run_seconds,
        "finish_seconds": timing.finish_seconds,
        "processing_seconds": timing.seconds,
        "worker_peak_memory_mb": timing.peak_memory_mb,
    }


def _engine_by_batches(session: SparkSession, request: Request) -> Mapping[str, Any]:
    return _engine(session, {**request, "topology": f"{request['topology']}_batches"})


def _engine_to_table(session: SparkSession, request: Request) -> Mapping[str, Any]:
    topology = f"{request['topology']}_{request['target']}"
    timed = _engine(session, {**request, "topology": topology})
    rewritten = rewritten_bytes(request["target"], request["output"], Path(request["folder"]))
    return {**timed, "rewritten_mb": rewritten / 1e6}


def application_of(request: Request) -> ApplicationFile:
    """Return the application file with the topics of this run in it."""
    known = {**suite_topologies.TOPOLOGIES, **TABLE_TOPOLOGIES}
    source = ApplicationFile.of(known[request["topology"]])
    text = source.text
    for name, topic in {**request["inputs"], "output": request["output"]}.items():
        line = f'{name.upper()} = "bench-{name}"\n'
        if text.count(line) != 1:
            raise ValueError(f"{source.filename} does not have exactly one line {line!r}")
        text = text.replace(line, f'{name.upper()} = "{topic}"\n')
    return ApplicationFile(filename=source.filename, text=text, function=source.function)


def _hand_written(*, by_columns: bool) -> Callable[[SparkSession, Request], Mapping[str, Any]]:
    def run(session: SparkSession, request: Request) -> Mapping[str, Any]:
        started = time.monotonic()
        loop = _loop(request, by_columns=by_columns)
        _launch(session, len(loop.stops), hand_written(loop, request["topology"]))
        return {"seconds": time.monotonic() - started}

    return run


def _raw(kind: str, *, by_columns: bool) -> Callable[[SparkSession, Request], Mapping[str, Any]]:
    def run(session: SparkSession, request: Request) -> Mapping[str, Any]:
        loop = _loop(request, by_columns=by_columns)
        rows = _launch(session, len(loop.stops), raw(kind, loop))
        return {"seconds": max(float(row.report) for row in rows)}

    return run


def _launch(session: SparkSession, partitions: int, function: Any) -> list[Any]:
    spread = session.range(0, partitions, 1, partitions)
    return list(spread.mapInArrow(function, "report string").collect())


def _loop(request: Request, *, by_columns: bool) -> Loop:
    source = request["inputs"]["events"]
    return Loop(
        bootstrap=request["bootstrap"],
        group=request["application_id"],
        source=source,
        sink=request["output"],
        stops=stops_of(request["bootstrap"], source, request["partitions"]),
        changelog=request["changelog"],
        codec=request["codec"],
        by_columns=by_columns,
    )


_SYSTEMS: Mapping[str, Callable[[SparkSession, Request], Mapping[str, Any]]] = {
    "airflow-kstreams": _engine,
    "airflow-kstreams-prepared": _engine,
    "airflow-kstreams-batches": _engine_by_batches,
    "airflow-kstreams-iceberg": _engine_to_table,
    "airflow-kstreams-delta": _engine_to_table,
    # Their first run; the empty ones behind it are Airflow's.
    "airflow-kstreams-three": _engine,
    "airflow-kstreams-three-started": _engine,
    "hand-written": _hand_written(by_columns=False),
    "hand-written-columns": _hand_written(by_columns=True),
    "raw-consume": _raw("consume", by_columns=False),
    "raw-produce": _raw("produce", by_columns=False),
    "raw-consume-columns": _raw("consume", by_columns=True),
    "raw-produce-columns": _raw("produce", by_columns=True),
    "spark-available-now": lambda session, request: {"seconds": spark_peers.available_now(session, request)},
    "spark-available-now-parquet": lambda session, request: {
        "seconds": spark_peers.available_now_to_parquet(session, request)
    },
    "spark-batch": lambda session, request: {"seconds": spark_peers.batch(session, request)},
}


if __name__ == "__main__":
    sys.exit(main())
