"""Runs one tiny job on Spark, and prints what its workers have installed as a line of JSON, for doctor:
``python -m airflow_kstreams.spark.driver.print_executors``.

The session is the one that a run would open (``MASTER``, ``SPARK_REMOTE``, else this machine), and the job
is Spark's kind of job for tasks. The function that it ships needs no part of this package on an executor: it
is defined in the program that is run, so Spark pickles it whole.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from airflow_kstreams.spark.driver.hosts import failure_of, started
from airflow_kstreams.streams.errors import ERROR_MARKER, KStreamsError

_PARTITIONS = 8


def look(batches: Iterator[Any]) -> Iterator[Any]:
    """Tell what is installed where this runs, for each batch of Spark's ``mapInArrow``."""
    import json
    import platform
    import socket
    import sys
    from importlib import metadata

    import pyarrow

    found = {}
    for name in ("airflow-kstreams", "confluent-kafka", "msgspec", "pandas", "pyarrow", "pyspark"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    if not found["pyspark"]:
        pyspark = sys.modules.get("pyspark")
        found["pyspark"] = getattr(pyspark, "__version__", "")
    seen = {"host": socket.gethostname(), "python": platform.python_version(), "packages": found}
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"seen": [json.dumps(seen, sort_keys=True)]})


def main() -> int:
    """Print the workers, each once, or the error; return the exit code."""
    try:
        sys.stdout.write(f"\n{json.dumps(_workers())}\n")
    except KStreamsError as error:
        sys.stderr.write(f"{ERROR_MARKER}{json.dumps(error.to_dict())}\n")
        return 1
    return 0


def _workers() -> dict[str, Any]:
    session = started("airflow-kstreams doctor")
    try:
        frame = session.range(0, _PARTITIONS, 1, _PARTITIONS)
        rows = frame.mapInArrow(look, "seen string").collect()
    except Exception as error:  # any error of Spark or py4j
        raise failure_of(error, "doctor") from None
    here = next(look(iter([None]))).to_pydict()["seen"][0]
    return {
        "master": str(session.conf.get("spark.master", "")),
        "here": json.loads(here),
        "workers": [json.loads(text) for text in sorted({row.seen for row in rows})],
    }


if __name__ == "__main__":
    sys.exit(main())
