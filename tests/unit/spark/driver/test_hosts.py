"""Spark's own words for workers that end before they host a task, as pyspark 4.2 says them."""

from __future__ import annotations

import pytest

from airflow_kstreams.spark.driver.hosts import failure_of
from airflow_kstreams.streams.errors import ExecutorSetupError, RunError

pytestmark = pytest.mark.promise("unfit-executors-end-the-run")

_NO_ARROW = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2530, in read_udfs
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'
"""
_NO_PYTHON = """An error occurred while calling o43.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, \
most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (h executor 0): java.io.IOException: Cannot run \
program "/nowhere/python3": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""
_OTHER_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker_util.py", line 80, in check_python_version
    raise PySparkRuntimeError(
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different \
version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.
"""
_ENDED = """An error occurred while calling o95.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 2.0 failed 4 times, \
most recent failure: Lost task 1.3 in stage 2.0 (TID 12) (localhost executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting \
'spark.sql.execution.pyspark.udf.faulthandler.enabled' or'spark.python.worker.faulthandler.enabled' \
configuration to 'true' for the better Python traceback.
\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("words", "cause", "fix"),
    [
        pytest.param(
            _NO_ARROW,
            "ModuleNotFoundError: No module named 'pyarrow'",
            "install it in the executors' Python",
            marks=pytest.mark.error_example("KS-SPARK-002"),
        ),
        (
            _NO_PYTHON,
            'Cannot run program "/nowhere/python3": error=2, No such file or directory',
            "PYSPARK_PYTHON",
        ),
        (_OTHER_PYTHON, "worker has different version: 3.12 than that in driver: 3.11", "PYSPARK_PYTHON"),
    ],
)
def test_setup_is_told_in_one_line_when_executors_cannot_run_python(words: str, cause: str, fix: str) -> None:
    error = failure_of(RuntimeError(words), "r")

    assert isinstance(error, ExecutorSetupError)
    assert not error.is_retriable
    assert cause in error.cause
    assert "\n" not in error.cause
    assert fix in error.fix


@pytest.mark.parametrize(
    "words",
    ["java.lang.OutOfMemoryError", 'java.io.IOException: Cannot run program "python3": error=12, no memory'],
)
def test_other_failures_may_be_retried_when_the_setup_is_not_the_cause(words: str) -> None:
    error = failure_of(RuntimeError(words), "r")

    assert isinstance(error, RunError)
    assert error.is_retriable


@pytest.mark.promise("failed-calls-have-an-outcome")
def test_tasks_are_named_when_their_process_ends_without_an_error() -> None:
    error = failure_of(RuntimeError(_ENDED), "r", [["0_0"], ["0_1", "0_2"]])

    assert isinstance(error, RunError)
    assert error.is_retriable
    assert error.cause.startswith("the Python process that ran tasks 0_1, 0_2 of run 'r' ended 4 times")
    assert "os._exit" in error.fix


@pytest.mark.parametrize("hosted", [(), [["0_0"]]])
def test_sparks_words_are_told_when_nothing_else_is_known(hosted: list[list[str]]) -> None:
    error = failure_of(RuntimeError(_ENDED), "r", hosted)

    assert "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1" in error.cause
    assert "calling o95" not in error.cause
