"""Brings the output of a ``spark-submit`` whose driver runs on this machine into the log of its Airflow task.

The driver, the workers of a ``local`` master, Spark's JVM and users' functions write into one pipe. A line of
the driver or of Spark has a time and a level of its own: Airflow's entry gets that level, and has its own
time. Lines that a reader of the task's log can spare go to DEBUG: those of Spark below ``spark.log.level``,
stack traces under Spark's lines, and what workers say of each task, which is in Spark's logs of executors.

A driver that fails reports its error, which is then raised and logged with the failure of the Airflow task;
the lines in which the driver repeats it are left out. Spark's ERROR is a warning here: Spark tries again.
"""

from __future__ import annotations

import logging
import re
import signal
from collections import deque
from contextlib import suppress

from airflow_kstreams.streams.errors import ERROR_MARKER, ReportedError, SparkSessionError, reported_in
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

#: Setting of Spark by which a user asks for more, or less, of Spark's log.
LEVEL_SETTING = "spark.log.level"
DEFAULT_LEVEL = "WARN"

_OURS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>[A-Z]+) (?P<name>\S+): (?P<text>.*)")
_SPARKS = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<name>\S+): (?P<text>.*)")
#: Lines of Java and Spark without a level, which say nothing of a run.
_NOISE = re.compile(
    r"Using Spark's default log4j profile:|Setting Spark log level to|WARNING: Using incubator "
)
#: Lines below a line of Spark that belong to it.
_OF_STACK_TRACE = re.compile(
    r"\s|$|Caused by: |Traceback \(|Driver stacktrace:|During handling of|The above exception"
    r"|[\w.$]+(Error|Exception|Exit|Interrupt)\b|KSTREAMS-ERROR "
)
#: Begins, in a line of Spark or below it, the error of a worker, whose text may have any lines.
_TRACEBACK = "Traceback (most recent call last):"
#: Ends that error's text.
_SQLSTATE = re.compile(r" ?SQLSTATE: ")
#: Lines of Java, which are below a line of Spark even where another writer's line has come between.
_JAVA = re.compile(r"\s+(at [\w.$/<>-]+\(.*\)|\.\.\. \d+ more)$|Caused by: [\w.$]+")
#: The last line of a traceback: class and text of the exception.
_EXCEPTION = re.compile(r"(Exception in thread \"[^\"]*\" )?[\w.$]*(Error|Exception|Exit|Interrupt)\b.*")
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.ERROR,
    "CRITICAL": logging.ERROR,
    "OFF": logging.CRITICAL,
}
_NO_JAVA = re.compile(r"JAVA_HOME is not set|/java: No such file|java: (command )?not found")
#: Loggers of workers, for what they say of each task.
_OF_TASKS = "airflow_kstreams.batch.task."
_OF_DRIVER = "airflow_kstreams.spark.driver."
_PACKAGE = "airflow_kstreams."
#: Number of hidden lines that are shown when the driver ends without a report.
_LAST_WORDS = 30


class SparkOutput:
    """The output of one ``spark-submit``.

    :param spark_level: the level from which on Spark's own lines are shown.
    """

    def __init__(self, spark_level: str = DEFAULT_LEVEL) -> None:
        self._from = _LEVELS.get(spark_level.strip().upper(), logging.DEBUG)
        #: The error that the driver reported.
        self.reported: ReportedError | None = None
        self._repeated: set[str] = set()
        self._below_spark = False
        self._in_workers_error = False
        self._hidden: deque[str] = deque(maxlen=_LAST_WORDS)
        self._last = ""
        self._exception = ""

    def show(self, line: str) -> None:
        """Log a line of the output."""
        line = line.rstrip()
        if line.startswith(ERROR_MARKER) and (reported := reported_in(line)) is not None:
            self.reported, self._repeated = reported, {*str(reported).splitlines(), *_plain(reported)}
        elif match := _OURS.fullmatch(line):
            self._below_spark = self._in_workers_error = False
            self._show_ours(match["level"], match["name"], match["text"])
        elif match := _SPARKS.fullmatch(line):
            self._below_spark, self._in_workers_error = True, _TRACEBACK in match["text"]
            self._show_sparks(match["level"], f"{match['name']}: {match['text']}")
        elif line in self._repeated:
            pass
        elif _NOISE.match(line):
            log.debug("%s", line)
        else:
            self._last = line or self._last
            if _EXCEPTION.match(line):
                self._exception = line
            if self._is_below_spark(line):
                self._hide(line)
            else:
                log.info("%s", line)

    def failure(self, code: int) -> SparkSessionError:
        """Describe the end of a driver that has not reported why.

        :param code: exit code of spark-submit.
        """
        for line in self._hidden:
            log.info("%s", line)
        ended = f"Spark's driver ended without a report, {_how(code)}"
        last = self._exception or self._last
        if _NO_JAVA.search(self._last):
            return SparkSessionError(
                f"spark-submit found no Java on this Airflow worker: {last}",
                fix="install Java 17 or a later one there, or name its folder by JAVA_HOME, in the worker's "
                "environment or in env_vars of the task; then clear the task",
            )
        if ending_signal(code) is not None:
            return SparkSessionError(
                ended,
                fix="look for what ended the process: often memory, of the machine or of its container "
                "(spark.driver.memory is the driver's); then clear the task: the run goes on where it has "
                "committed",
            )
        return SparkSessionError(
            f"{ended}: {last}" if last else ended,
            fix="mend what the lines of Spark above say, then clear the task: the run's slice is kept",
        )

    def _is_below_spark(self, line: str) -> bool:
        """Return whether a line without a level belongs to the last line of Spark."""
        if _JAVA.match(line):
            self._in_workers_error = False
            return True
        if self._below_spark and _TRACEBACK in line:
            self._in_workers_error = True
        if _SQLSTATE.match(line):
            self._in_workers_error = False
        self._below_spark = self._below_spark and (
            self._in_workers_error or _OF_STACK_TRACE.match(line) is not None
        )
        return self._below_spark

    def _show_ours(self, level_name: str, name: str, text: str) -> None:
        level = _LEVELS.get(level_name, logging.INFO)
        if name.startswith(_OF_TASKS) and level == logging.INFO:
            level = logging.DEBUG
        if name.startswith(_OF_DRIVER):
            self.reported = None  # a worker's, after which the driver goes on
        log.log(level, "%s", text if name.startswith(_PACKAGE) else f"{name}: {text}")

    def _show_sparks(self, level_name: str, text: str) -> None:
        level = _LEVELS.get(level_name, logging.INFO)
        if level < self._from:
            self._hide(text)
        else:
            # What fails the Airflow task is the driver's to say.
            log.log(logging.INFO if level <= logging.INFO else logging.WARNING, "%s", text)

    def _hide(self, text: str) -> None:
        self._hidden.append(text)
        log.debug("%s", text)


def _plain(error: ReportedError) -> set[str]:
    """Return the lines in which the driver printed an error before it was reported."""
    return {error.coded_cause, *error.trace.splitlines()}


def ending_signal(code: int) -> signal.Signals | None:
    """Return the signal that ended a process, by its exit code; a shell and Java add it to 128."""
    with suppress(ValueError):
        return signal.Signals(-code if code < 0 else code - 128)
    return None


def _how(code: int) -> str:
    found = ending_signal(code)
    return f"exit code {code}" if found is None else f"killed by {found.name}"
