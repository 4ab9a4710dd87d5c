"""What a person sees of spark-submit's output in the log of an Airflow task."""

from __future__ import annotations

import json

import pytest

from airflow_kstreams.hooks.spark_output import SparkOutput, ending_signal
from airflow_kstreams.streams.errors import ERROR_MARKER, RunError

_OURS = "2026-11-29 11:47:42,460 {level} {name}: {text}"
_SPARKS = "26/11/29 11:47:36 {level} {name}: {text}"
_RUN = f"""\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
{_SPARKS.format(level="WARN", name="Utils", text="Set SPARK_LOCAL_IP")}
{_SPARKS.format(level="INFO", name="SparkContext", text="Running Spark version 4.2.0")}
{_OURS.format(level="INFO", name="airflow_kstreams.spark.driver.driver", text="subtopology 0: 3 tasks")}
{_OURS.format(level="INFO", name="airflow_kstreams.batch.task.runner", text="task 0_1 done: 6 records")}
{_OURS.format(level="WARNING", name="airflow_kstreams.batch.task.runner", text="left out")}
{_OURS.format(level="INFO", name="orders.rates", text="rates of today")}
printed by a function
{_SPARKS.format(level="ERROR", name="Executor", text="Exception in task 0.0: PythonException: Traceback")}
  File "/opt/spark/worker.py", line 1, in main
airflow_kstreams.streams.errors.TaskFencedError: fenced

printed afterwards
"""


def _shown(caplog: pytest.LogCaptureFixture, text: str, level: str = "WARN") -> SparkOutput:
    output = SparkOutput(level)
    caplog.set_level("INFO")
    caplog.clear()
    for line in text.splitlines(keepends=True):
        output.show(line)
    return output


def test_a_line_has_one_time_its_own_level_and_spark_only_warns(caplog: pytest.LogCaptureFixture) -> None:
    _shown(caplog, _RUN)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "Utils: Set SPARK_LOCAL_IP"),
        ("INFO", "subtopology 0: 3 tasks"),
        ("WARNING", "left out"),
        ("INFO", "orders.rates: rates of today"),
        ("INFO", "printed by a function"),
        ("WARNING", "Executor: Exception in task 0.0: PythonException: Traceback"),
        ("INFO", "printed afterwards"),
    ]


_WORKERS_ERROR = f"""\
{_SPARKS.format(level="ERROR", name="Executor", text="Exception in task 0.0 in stage 1.0 (TID 1)")}
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] thrown: Traceback (most recent call last):
  File "/opt/spark/worker.py", line 1, in main
airflow_kstreams.streams.errors.StateStoreError: store 'totals' cannot be opened
What to do: check that the disk has space
and a third line
{ERROR_MARKER}{json.dumps(RunError("store 'totals' cannot be opened", run_id="r").to_dict())}
 SQLSTATE: 38000
"""
_JAVA = """\
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:665)
\tat scala.collection.Iterator$$anon$10.hasNext(Iterator.scala:611)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.EOFException
\t... 20 more
"""
_OF_DRIVER = _OURS.format(level="INFO", name="airflow_kstreams.spark.driver.driver", text="1 of 2 records")


@pytest.mark.promise("errors-are-logged-once")
@pytest.mark.parametrize(
    ("lines", "more"),
    [
        (f"{_WORKERS_ERROR}{_JAVA}", []),
        (f"{_WORKERS_ERROR}{_OF_DRIVER}\n{_JAVA}", ["1 of 2 records"]),
        (f"{_WORKERS_ERROR}printed\n{_JAVA}", ["printed"]),
        (f"{_WORKERS_ERROR}{_JAVA}printed\n", ["printed"]),
    ],
)
def test_no_line_of_a_workers_error_is_shown_when_spark_repeats_it(
    lines: str, more: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    _shown(caplog, lines)
    assert caplog.messages == ["Executor: Exception in task 0.0 in stage 1.0 (TID 1)", *more]


@pytest.mark.parametrize(
    ("level", "more"), [("INFO", 1), ("info ", 1), ("ALL", 1), ("ERROR", -1), ("OFF", -2)]
)
def test_more_of_sparks_log_is_shown_when_it_is_asked_for(
    level: str, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    _shown(caplog, _RUN, level)
    assert len(caplog.messages) == 7 + more


@pytest.mark.promise("errors-are-logged-once")
def test_error_that_the_driver_reports_is_in_no_other_line(caplog: pytest.LogCaptureFixture) -> None:
    error = RunError("run 'r' failed", fix="mend it", trace="Traceback\n  File 'a'", run_id="r")
    output = _shown(caplog, f"before\n{ERROR_MARKER}{json.dumps(error.to_dict())}\n{error}\nafter\n")
    assert caplog.messages == ["before", "after"]
    assert (
        str(output.reported)
        == "Traceback\n  File 'a'\nRunError: run 'r' failed [KS-RUN-001]\nWhat to do: mend it"
    )


def test_workers_error_is_not_the_drivers_when_that_went_on(caplog: pytest.LogCaptureFixture) -> None:
    report = ERROR_MARKER + json.dumps(RunError("a worker's", run_id="r").to_dict())
    lost = _SPARKS.format(level="WARN", name="TaskSetManager", text="Lost task 0.0: PythonException")
    again = _OURS.format(level="WARNING", name="airflow_kstreams.spark.driver.driver", text="launching again")
    output = _shown(caplog, f"{lost}\nTraceback (most recent call last):\n{report}\n{again}\n")
    assert output.reported is None
    assert caplog.messages == ["TaskSetManager: Lost task 0.0: PythonException", "launching again"]


@pytest.mark.parametrize(
    ("code", "output", "cause"),
    [
        (
            1,
            "JAVA_HOME is not set",
            "spark-submit found no Java on this Airflow worker: JAVA_HOME is not set",
        ),
        (-9, "some words", "Spark's driver ended without a report, killed by SIGKILL"),
        (137, "some words", "Spark's driver ended without a report, killed by SIGKILL"),
        (
            1,
            "Traceback (most recent call last):\nValueError: surprise\nbye",
            "Spark's driver ended without a report, exit code 1: ValueError: surprise",
        ),
        (1, "", "Spark's driver ended without a report, exit code 1"),
    ],
)
def test_end_without_a_report_says_what_is_known(
    code: int, output: str, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = _SPARKS.format(level="INFO", name="SparkContext", text="the last that Spark said")
    failure = _shown(caplog, f"{hidden}\n{output}").failure(code)
    assert failure.cause == cause
    assert failure.is_retriable
    assert "SparkContext: the last that Spark said" in caplog.messages


@pytest.mark.parametrize(
    ("code", "name"), [(0, None), (1, None), (-15, "SIGTERM"), (139, "SIGSEGV"), (255, None)]
)
def test_signal_is_known_by_the_exit_code(code: int, name: str | None) -> None:
    found = ending_signal(code)
    assert (found.name if found else None) == name
