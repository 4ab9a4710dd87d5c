"""One dag run with a fault at each step. People read its log, do what it says, and clear it, until it ends
well.

Each failure is made for real. Those that need no Spark come first: the others cost a start of Spark each.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.printable import LOG_COLUMNS
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.loader import load_topology
from tests.integration.airflow.word_totals import WordTotals, totals
from tests.support.airflow.task_log import Entry, TaskLogs, task_logs, unbroken
from tests.support.kafka.printed_commands import execute, printed_commands

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.promise("errors-are-logged-once")]

_RECORDS, _LOST = 10_000, 3
_MOST_LINES = 40
_CAPTURE, _RUN = "batch.capture_stop_offsets", "batch.run_topology"
_KILLS_ITS_DRIVER = """
def kill_driver(marker):
    import os, pathlib, signal
    if not pathlib.Path(marker).exists():
        pathlib.Path(marker).touch()
        pid = os.getpid()
        while pathlib.Path(f"/proc/{pid}/comm").read_text().strip() != "java":
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            pid = int(status.partition("PPid:")[2].split()[0])
        os.kill(pid, signal.SIGKILL)
"""


class Person:
    """Reads the log of a failed task, and clears the dag run when the fault is gone."""

    def __init__(self, run_dag: Callable[..., Any], logs: TaskLogs, words: WordTotals) -> None:
        self._run_dag = run_dag
        self._logs = logs
        self._words = words
        self._outcome: Any = None
        self.settings: dict[str, Any] = {
            "processing.guarantee": "exactly_once",
            "client.timeout.ms": 2_000,
            "lease.ms": 3_000,
        }

    def fails(self, task_id: str, *, cause: str, remedy: str) -> str:
        """Run, judge what stands in the log of the task that failed, and return what is to be done."""
        tasks = self._run()
        assert self._outcome.tasks[task_id] == "failed", (self._outcome.tasks, self._outcome.error_text())
        (error,) = (entry for entry in tasks[-1] if entry.level == "error")
        (_, raised), *_ = self._outcome.errors
        assert error.event == str(raised)
        assert not error.exceptions, "the viewer shows an exception in one line without an end"
        assert raised.__cause__ is None
        self._judge(tasks)
        said = unbroken(error.event)
        first, *_, last = said.split("\n")
        assert cause in first, said
        assert last.startswith("What to do: "), said
        assert remedy in last, said
        everything = unbroken("\n".join(entry.event for task in tasks for entry in task))
        for text in (first.partition(": ")[2], last):
            assert everything.count(text) == 1, f"it stands twice: {text}"
        return last

    def succeeds(self) -> list[list[Entry]]:
        """Run, and return the log of each task."""
        tasks = self._run()
        assert self._outcome.state == "success", self._outcome.error_text()
        self._judge(tasks)
        return tasks

    def _run(self) -> list[list[Entry]]:
        conf = {**self._words.conf, "settings": self.settings}
        self._outcome = self._run_dag("increments_mended", conf, again=self._outcome)
        return self._logs.of_last_tasks()

    def _judge(self, tasks: list[list[Entry]]) -> None:
        ours = [entry for task in tasks for entry in task if entry.is_ours]
        assert [line for entry in ours for line in entry.lines if len(line) > LOG_COLUMNS] == []


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[TaskLogs]:
    with task_logs(tmp_path / "logs.jsonl") as logs:
        yield logs


def _without_java(folder: Path) -> str:
    """Return a PATH with all that starts spark-submit, but Java."""
    folder.mkdir()
    for program in ("bash", "env", "dirname", "ps", "uname", "cat", "sed", "tr", "expr"):
        if found := shutil.which(program):
            (folder / program).symlink_to(found)
    return f"{folder}:{Path(sys.executable).parent}"


def test_every_failure_is_read_at_a_glance_and_its_remedy_leads_on(
    words: WordTotals,
    run_dag: Callable[..., Any],
    logs: TaskLogs,
    connections: Callable[..., None],
    kafka: str,
    kafka_admin: Any,
    sasl_bootstrap: str,
    free_port: int,
    create_topic: Callable[..., str],
    consume_all: Callable[..., Any],
    produce: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person = Person(run_dag, logs, words)
    good = words.file.read_text(encoding="utf-8")
    words.file.unlink()
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_DEFAULT")
    spark = os.environ["AIRFLOW_CONN_SPARK_DEFAULT"]
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    person.settings["commit.intervall.ms"] = 1_000

    person.fails(_CAPTURE, cause="'commit.intervall.ms'", remedy="'commit.interval.ms'")
    del person.settings["commit.intervall.ms"]
    person.fails(
        _CAPTURE, cause="'kafka_default' is not defined", remedy="airflow connections add kafka_default"
    )
    connections(**{"bootstrap.servers": f"127.0.0.1:{free_port}"})
    person.fails(_CAPTURE, cause="does not exist", remedy="every Airflow worker")
    words.file.write_text("import nothing_of_this_name\n" + good, encoding="utf-8")
    person.fails(_CAPTURE, cause="nothing_of_this_name", remedy="")
    missing = f"{words.source}-missing"
    words.file.write_text(good.replace(words.source, missing), encoding="utf-8")
    person.fails(_CAPTURE, cause=f"unreachable at 127.0.0.1:{free_port}", remedy="bootstrap.servers")
    connections(**{"bootstrap.servers": sasl_bootstrap, **login, "sasl.password": "not-hers"})
    person.fails(_CAPTURE, cause="refused the credentials", remedy="sasl.password")
    connections(**{"bootstrap.servers": sasl_bootstrap, **login, "sasl.password": "alice-secret"})
    person.fails(_CAPTURE, cause=missing, remedy="create")
    words.file.write_text(good, encoding="utf-8")

    settings = ApplicationSettings.parse(words.application_id, person.settings)
    other = Coordinator(KafkaCluster({"bootstrap.servers": kafka}, settings=settings), settings)
    try:
        plan = load_topology(words.file).plan(words.application_id)
        other.begin("other", plan, order=(0, 1), owner="another driver", hold_lease=True)
        with other.lease.keep():
            person.fails(_CAPTURE, cause="another driver", remedy="")
        other.finish("other")
    finally:
        other.close()

    lost = {"key": "key", "value": {"word": "lost", "count": 1}, "partition": 0}
    produce(words.source, [lost] * _LOST)
    words.publish(_RECORDS)
    bug = good.replace("total + count,", "total + count['no such'],")
    assert bug != good
    marker = tmp_path / "killed"
    kills = _KILLS_ITS_DRIVER + bug.replace(
        "total + count['no", f"kill_driver({str(marker)!r}) or total + count['no"
    )
    words.file.write_text(kills, encoding="utf-8")
    produce(words.source, [{"key": "key", "value": b"\xff not json", "partition": 0}])
    person.fails(_RUN, cause="'spark_default' is not defined", remedy="airflow connections add spark_default")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark)
    for done in kafka_admin.delete_records([TopicPartition(words.source, 0, _LOST)]).values():
        done.result(10)
    accept = person.fails(_RUN, cause=f"records from offset 0 to {_LOST} are gone", remedy="accept the loss")
    for command in printed_commands(accept):
        execute(command, kafka)
    with monkeypatch.context() as no_java:
        no_java.setenv("PATH", _without_java(tmp_path / "bin"))
        no_java.delenv("JAVA_HOME", raising=False)
        person.fails(_RUN, cause="found no Java", remedy="install Java 17")
    with monkeypatch.context() as no_python:
        no_python.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        no_python.setenv("PYSPARK_PYTHON", "/no/such/python")
        person.fails(_RUN, cause="executors cannot run Python tasks", remedy="PYSPARK_PYTHON")
    person.fails(_RUN, cause=f"cannot decode {words.source}-0@", remedy='"deserialization.exception.handler"')
    person.settings["deserialization.exception.handler"] = "skip"
    person.fails(_RUN, cause="killed by SIGKILL", remedy="then clear the task")
    person.fails(_RUN, cause="TypeError", remedy='"processing.exception.handler"')
    words.file.write_text(good, encoding="utf-8")

    _, run, finish = person.succeeds()
    last = [entry.event for entry in run if entry.is_ours][-1]
    assert last.startswith(f"{_RECORDS + 1:,} in, 7 out, 1 skipped, ")
    assert [entry.event for entry in finish if entry.is_ours][-1].startswith(last.rpartition(",")[0])
    lines = [line for entry in run for line in entry.lines]
    assert len(lines) <= _MOST_LINES, "\n".join(lines)
    assert totals(consume_all(words.sink)) == words.expected
    (nothing,) = {entry.event for entry in person.succeeds()[1] if "already finished" in entry.event}
    assert "nothing was processed now" in unbroken(nothing)
