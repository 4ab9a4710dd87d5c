"""Makes the function that Spark ships to executors.

Rule: unpickling it needs no part of this package. Spark pickles a function inside another one by value, so it
arrives whole where this package is missing or of another version, and its argument is text. It checks the
package before it imports it: an executor on which no task can begin reports this in one line, as a row that
the driver raises, instead of failing with Spark's own text once for every retry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from airflow_kstreams import __version__
from airflow_kstreams.streams.errors import ExecutorSetupError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_kstreams.spark.executor.copy_host import CopyHost
    from airflow_kstreams.spark.executor.report_rows import ArrowFunction
    from airflow_kstreams.spark.executor.task_host import TaskHost


def shipped(host: TaskHost | CopyHost) -> ArrowFunction:
    """Return the function for ``mapInArrow``: Spark partition ids in, reports out.

    :param host: the host to run; it travels as JSON.
    """
    version, text = __version__, msgspec.json.encode(host).decode()
    fix, error_type = remedy(), ExecutorSetupError.__name__

    # From here on only the standard library, and no name from outside this function.

    def lacking() -> str:
        """Return in one line why no task can run here, "" if tasks can run."""
        import os
        import sys

        here = f"executor {os.uname().nodename} (Python {sys.version.split()[0]} at {sys.executable})"
        try:
            import airflow_kstreams
        except ImportError:
            return f"{here} has no airflow_kstreams, the driver has {version}"
        found = getattr(airflow_kstreams, "__version__", "without a version")
        if found != version:
            path = next(iter(airflow_kstreams.__path__))
            return f"{here} has airflow_kstreams {found} at {path}, the driver has {version}"
        try:
            import airflow_kstreams.spark.executor.entry  # imports all modules that a task needs
        except ImportError as error:
            missing = error.name or "a module"
            return f"{here} has airflow_kstreams {version}, but {missing} cannot be imported there: {error}"
        return ""

    def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cause = lacking()
        if not cause:
            from airflow_kstreams.spark.executor.entry import run_shipped

            yield from run_shipped(text)(batches)
            return
        import json

        import pyarrow as pa

        error = {"type": error_type, "cause": " ".join(cause.split()), "fix": fix, "retriable": False}
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"report": [json.dumps({"error": error})]})

    return run_tasks


def remedy() -> str:
    """Return the remedy that brings this package to executors, in the driver's version."""
    from airflow_kstreams.spark.driver.package_archive import spark_conf

    settings = " and ".join(f"{name}={value}" for name, value in spark_conf("kstreams.tar.gz").items())
    return (
        "run `airflow-kstreams pack --output kstreams.tar.gz` with the driver's Python on a machine like the "
        f"executors and set {settings} (conf= of the operators), or install airflow-kstreams=={__version__} "
        "in the executors' Python"
    )
