"""One dag run with a fault at each step. People read its log, ask ``airflow-kstreams status``, do what it
says, and clear it, until it ends well.

Each failure is made for real, on one broker with users and access control. Those that need no Spark come
first: the others cost a start of Spark each.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from typer.testing import CliRunner

from airflow_kstreams.batch.protocol.needed_permissions import run_permissions
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.cli.app import app
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.naming.permissions import Operation
from airflow_kstreams.streams.printable import LOG_COLUMNS, without_log_lines
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.loader import load_topology
from dev.servers.secured import SecuredBroker
from tests.conftest import Deadline
from tests.integration.airflow.word_totals import WordTotals, totals
from tests.support.airflow.task_log import Entry, TaskLogs, task_logs, unbroken
from tests.support.kafka import super_user
from tests.support.kafka.access_control import Acls
from tests.support.kafka.printed_commands import execute, printed_commands

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.promise("errors-are-logged-once")]

_RECORDS, _LOST = 10_000, 3
_MOST_LINES = 40
_CAPTURE, _RUN = "batch.capture_stop_offsets", "batch.run_topology"
_STORE = 'store="totals", value_serde=serdes.json()'
_STORE_ON_DISK = """store=StoreSpec(
            name="totals", key_serde=serdes.string(), value_serde=serdes.json(), storage="rocksdb"
        )"""
_FAULTS = """
def kills_its_driver(marker):
    import contextlib, os, pathlib, signal
    if not pathlib.Path(marker).exists():
        pathlib.Path(marker).touch()
        parents = {}
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                parents[int(status.parent.name)] = int(status.read_text().partition("PPid:")[2].split()[0])
        pid = own = os.getpid()
        while pathlib.Path(f"/proc/{pid}/comm").read_text().strip() != "java":
            own, pid = pid, parents[pid]
        for dies in [*(each for each in parents if parents[each] == pid and each != own), pid, os.getpid()]:
            os.kill(dies, signal.SIGKILL)

def waits(until):
    import pathlib, time
    pathlib.Path(f"{until}.waits").touch()
    while not pathlib.Path(until).exists():
        time.sleep(0.05)
"""


kafka, kafka_admin, acls = super_user.kafka, super_user.kafka_admin, super_user.acls


class Person:
    """Reads the log of a failed task, asks for the status, and clears the dag run when the fault is gone."""

    def __init__(self, run_dag: Callable[..., Any], logs: TaskLogs, words: WordTotals, kafka: str) -> None:
        self._run_dag = run_dag
        self._logs = logs
        self._words = words
        self._kafka = kafka
        self._outcome: Any = None
        self.settings: dict[str, Any] = {
            "processing.guarantee": "exactly_once",
            "client.timeout.ms": 2_000,
            "lease.ms": 3_000,
        }

    @property
    def run_id(self) -> str:
        """Id of the dag run."""
        return str(self._outcome.run_id)

    def fails(self, task_id: str, *, cause: str, remedy: str, shown: str = "") -> str:
        """Run, judge what stands in the log of the task that failed and what ``status`` prints, and return
        what is to be done.

        :param shown: what ``status`` prints in place of the cause.
        """
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
        status = self._status()
        assert _packed(shown or first.partition(": ")[2]) in _packed(status), status
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

    def _status(self) -> str:
        id_ = self._words.application_id
        command = ["status", "--application-id", id_, "--bootstrap-server", self._kafka]
        return CliRunner().invoke(app, command).output


def _packed(text: str) -> str:
    """Return a text without what tables fold it at."""
    return "".join(text.split())


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


def _python(script: Path, start: str) -> str:
    """Write a script that executors start as their Python, and return its path."""
    script.write_text(f'#!/bin/sh\n{start} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return str(script)


# Of those left out, dev/test has executors that lack a package in spark/test_packages.py, a failing function
# and a driver whose run is claimed in spark/test_run.py.
@pytest.mark.parametrize("failures", ["some", pytest.param("all", marks=pytest.mark.prove)])
@pytest.mark.timeout(900)  # some thirty starts of Airflow tasks, a third of them with Spark
def test_every_failure_is_read_at_a_glance_and_its_remedy_leads_on(
    words: WordTotals,
    run_dag: Callable[..., Any],
    logs: TaskLogs,
    connections: Callable[..., None],
    kafka: str,
    kafka_admin: Any,
    secured_broker: SecuredBroker,
    acls: Acls,
    free_port: int,
    consume_all: Callable[..., Any],
    produce: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: str,
) -> None:
    person = Person(run_dag, logs, words, kafka)
    good = words.file.read_text(encoding="utf-8").replace(_STORE, _STORE_ON_DISK)
    good = good.replace("KStreamBuilder, serdes", "KStreamBuilder, StoreSpec, serdes")
    assert "rocksdb" in good
    words.file.unlink()
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_DEFAULT")
    spark = os.environ["AIRFLOW_CONN_SPARK_DEFAULT"]
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    person.settings["commit.intervall.ms"] = 1_000

    # As long as no run has reached the broker, it knows nothing of the application.
    unknown = partial(person.fails, _CAPTURE, shown="there is no application")
    unknown(cause="'commit.intervall.ms'", remedy="'commit.interval.ms'")
    del person.settings["commit.intervall.ms"]
    unknown(cause="'kafka_default' is not defined", remedy="airflow connections add kafka_default")
    connections(**{"bootstrap.servers": f"127.0.0.1:{free_port}"})
    unknown(cause="does not exist", remedy="every Airflow worker")
    words.file.write_text("import nothing_of_this_name\n" + good, encoding="utf-8")
    unknown(cause="nothing_of_this_name", remedy="")
    words.file.write_text(good, encoding="utf-8")
    unknown(cause=f"unreachable at 127.0.0.1:{free_port}", remedy="bootstrap.servers")
    carol = secured_broker.scram_config("carol")
    connections(**{**carol, "sasl.password": "not-hers"})
    unknown(cause="refused the credentials", remedy="sasl.password")
    connections()
    # From here on the broker answers, however slowly.
    person.settings["client.timeout.ms"] = 20_000
    missing = f"{words.source}-missing"
    words.file.write_text(good.replace(words.source, missing), encoding="utf-8")
    person.fails(_CAPTURE, cause=missing, remedy="create")
    words.file.write_text(good, encoding="utf-8")
    settings = ApplicationSettings.parse(words.application_id, person.settings)
    plan = load_topology(words.file).plan(words.application_id)
    make = partial(Coordinator, KafkaCluster({"bootstrap.servers": kafka}, settings=settings), settings)
    with closing(make()) as other:
        other.begin("other", plan, order=(0, 1), owner="another driver", hold_lease=True)
        with other.lease.keep():
            person.fails(_CAPTURE, cause="another driver", remedy="", shown="running: another driver")
        other.finish("other")

    lost = {"key": "key", "value": {"word": "lost", "count": 1}, "partition": 0}
    produce(words.source, [lost] * _LOST)
    words.publish(_RECORDS)
    for bad in (b"\xff not json", {"word": "without a count"}):
        produce(words.source, [{"key": "key", "value": bad, "partition": 0}])
    acls.allow(
        each
        for each in run_permissions(plan, settings)
        if (each.operation, each.name) != (Operation.READ, words.application_id)
    )
    connections(**carol)
    grant = person.fails(
        _CAPTURE, cause=f"the permission Read on group {words.application_id}", remedy="kafka-acls.sh"
    )
    command, *_ = printed_commands(grant)
    execute([kafka if word == secured_broker.scram_bootstrap else word for word in command], kafka)
    acls.given_elsewhere(1)
    person.fails(
        _RUN,
        cause="'spark_default' is not defined",
        remedy="airflow connections add spark_default",
    )
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark)
    connections()
    words.file.write_text(good.replace('"totals"', '"sums"'), encoding="utf-8")
    person.fails(_CAPTURE, cause="the application file now builds", remedy="deploy the old application file")

    bug = good.replace("total + count,", "total + count['no such'],")
    assert bug != good
    killed, go_on = tmp_path / "killed", tmp_path / "go-on"
    faults = f"kills_its_driver({str(killed)!r}) or waits({str(go_on)!r}) or total + count['no"
    words.file.write_text(_FAULTS + bug.replace("total + count['no", faults), encoding="utf-8")
    for done in kafka_admin.delete_records([TopicPartition(words.source, 0, _LOST)]).values():
        done.result(10)
    accept = person.fails(_RUN, cause=f"records from offset 0 to {_LOST} are gone", remedy="accept the loss")
    for command in printed_commands(accept):
        execute(command, kafka)
    with monkeypatch.context() as no_java:
        no_java.setenv("PATH", _without_java(tmp_path / "bin"))
        no_java.delenv("JAVA_HOME", raising=False)
        person.fails(_RUN, cause="found no Java", remedy="install Java 17")
    if failures == "all":
        with monkeypatch.context() as python:
            python.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
            bare = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
            python.setenv("PYSPARK_PYTHON", _python(tmp_path / "bare", f"exec {bare} -S"))
            person.fails(_RUN, cause="No module named", remedy="install it in the executors' Python")
    person.fails(_RUN, cause=f"cannot decode {words.source}-0@", remedy='"deserialization.exception.handler"')
    person.settings["deserialization.exception.handler"] = "skip"
    if failures == "all":
        person.fails(_RUN, cause="KeyError", remedy='"processing.exception.handler"')
    person.settings["processing.exception.handler"] = "dead-letter"
    with monkeypatch.context() as python:
        python.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        full = f"export PYTHONDONTWRITEBYTECODE=1; ulimit -f 2; exec {shlex.quote(sys.executable)}"
        python.setenv("PYSPARK_PYTHON", _python(tmp_path / "full", full))
        person.fails(_RUN, cause="File too large", remedy="check that the disk is sound and has space")
    person.fails(_RUN, cause="killed by SIGKILL", remedy="then clear the task")

    def supersede(run_id: str) -> Coordinator:
        waiting = Path(f"{go_on}.waits")
        Deadline(seconds=60).until(waiting.exists, "the driver is at work")
        later = make()
        try:
            with without_log_lines():  # they are of another process
                later.begin(run_id, plan, order=(0, 99), owner="a later driver", hold_lease=True)
        finally:
            go_on.touch()
        return later

    if failures == "all":
        Path(f"{go_on}.waits").unlink(missing_ok=True)  # of a worker that outlived the dead driver
        person.settings["lease.ms"] = 15_000  # it renews less often than the later one takes to claim
        with ThreadPoolExecutor(1) as beside:
            later = beside.submit(supersede, person.run_id)
            # Its word would fence the later one, of which the status tells.
            person.fails(_RUN, cause="claimed by another driver", remedy="nothing", shown="a later driver")
            later.result().close()
        person.settings["processing.exception.handler"] = "fail"
        person.fails(_RUN, cause="TypeError", remedy='"processing.exception.handler"')
        person.settings["processing.exception.handler"] = "dead-letter"
    go_on.touch()
    words.file.write_text(good, encoding="utf-8")

    _, run, finish = person.succeeds()
    last = [entry.event for entry in run if entry.is_ours][-1]
    assert last.startswith(f"{_RECORDS + 2:,} in, 7 out, 1 dead-lettered, 1 skipped, "), last
    assert [entry.event for entry in finish if entry.is_ours][-1].startswith(last.rpartition(",")[0])
    lines = [line for entry in run for line in entry.lines]
    assert len(lines) <= _MOST_LINES, "\n".join(lines)
    assert totals(consume_all(words.sink)) == words.expected
    (letter,) = consume_all(f"{words.application_id}-dead-letter")
    assert letter.json() == {"word": "without a count"}
    (nothing,) = {entry.event for entry in person.succeeds()[1] if "already finished" in entry.event}
    assert "nothing was processed now" in unbroken(nothing)
