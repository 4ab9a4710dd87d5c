"""Runs workloads: every system in turn, round after round, on one broker and the same input topics."""

from __future__ import annotations

import dataclasses
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from airflow_kstreams.streams.errors import KStreamsError
from dev.benchmarks import outputs, results
from dev.benchmarks.hosts import Answer, Host, HostError
from dev.benchmarks.inputs import Inputs
from dev.benchmarks.outputs import Digest
from dev.benchmarks.publish import create_topics
from dev.benchmarks.results import Figure, Result
from dev.benchmarks.systems import LOOPS, OURS, System
from dev.benchmarks.tables import rounds as table_rounds
from dev.benchmarks.tables import table_rows
from dev.benchmarks.workloads import Kind, Workload

#: What starts workers.
_LITTLE = 50_000
#: Folder of a table, below that of its application, where it is no catalogue that knows it.
_TABLE = "table"


class WrongOutputError(Exception):
    """A system's output is not equal to ours: its figure does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One application of one system: what stays from run to run.

    :param inputs: topics by the names they have in topologies.
    :param output: topic, or what topologies call the table.
    :param folder: for its state.
    """

    application_id: str
    inputs: Mapping[str, str]
    output: str
    folder: Path


@dataclass(kw_only=True)
class Suite:
    """Measures workloads.

    :param folder: for all that systems write.
    :param say: prints a line.
    :param machine: noted with every result.
    """

    bootstrap: str
    folder: Path
    inputs: Inputs
    say: Callable[[str], None]
    machine: str
    #: What went wrong; such a system has no result.
    failures: list[str] = field(default_factory=list)
    _hosts: dict[str, Host] = field(default_factory=dict)
    _applications: int = 0
    #: Of the workload that is measured: our output, and whatever has failed.
    _expected: Digest | None = None
    _failed: set[System] = field(default_factory=set)

    def close(self) -> None:
        """End all hosts."""
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()

    def measure(self, workload: Workload) -> list[Result]:
        """Run all rounds of a workload."""
        self.say(f"{workload.name}: {workload.shows}")
        rounds = _ROUNDS.get(workload.kind, Suite._at_once)
        figures: dict[System, list[Figure]] = {system: [] for system in workload.systems}
        records = workload.records
        for number, (system, figure, count) in rounds(self, workload):
            figures[system].append(figure)
            records = count
            self.say(
                f"  round {number + 1}: {system.label:<56} {count / figure.seconds:>11,.0f}/s "
                f"{figure.seconds:>8.2f} s {figure.peak_memory_mb:>7,.0f} MB "
                f"{figure.processor_seconds:>8.2f} s of CPU"
            )
        if OURS in self._failed or not figures[OURS]:
            return []
        return [
            results.result_of(
                (workload.name, system.name, system.guarantee),
                figures[system],
                figures[OURS],
                records=records,
                machine=self.machine,
                measured=datetime.now(tz=UTC).date().isoformat(),
            )
            for system in workload.systems
            if figures[system] and system not in self._failed
        ]

    # == much input at once

    def _at_once(self, workload: Workload) -> Iterator[tuple[int, tuple[System, Figure, int]]]:
        inputs, records = self.inputs.of(workload, workload.records)
        self._begin()
        if workload.kind == "throughput":
            self._start_hosts(workload)
            self._warm_up(workload)
        for number, system in _turns(workload):
            if system in self._failed:
                continue
            with self._failing(workload, system), self._application(workload, system, inputs) as application:
                answer = self._run_once(workload, system, application, records)
                self._check(workload, system, application, records)
                yield number, (system, _figure(answer), records)

    def _run_once(self, workload: Workload, system: System, application: Application, records: int) -> Answer:
        if workload.kind == "throughput":
            return self._run(system.host, workload, system, application, records)
        kind = "engine-fresh-workers" if workload.kind == "memory" else system.host
        Host.prepare(kind)
        started = time.monotonic()
        with Host(kind, self.folder) as host:
            host.wait_until_ready()
            seconds, processor_seconds = time.monotonic() - started, host.processor_seconds()
            answer = host.run(self._request(workload, system, application, records))
        if workload.kind != "cold":
            return answer
        # From the start of the processes to the end of the run.
        return dataclasses.replace(
            answer,
            seconds=seconds + answer.seconds,
            processor_seconds=processor_seconds + answer.processor_seconds,
        )

    def _warm_up(self, workload: Workload) -> None:
        """Let every system run once, as much as it needs for what comes after to be like itself."""
        for system in workload.systems:
            if system.warmed == "not" or system in self._failed:
                continue
            wanted = workload.records if system.warmed == "all" else min(_LITTLE, workload.records)
            inputs, records = self.inputs.of(workload, wanted)
            with self._failing(workload, system), self._application(workload, system, inputs) as application:
                answer = self._run(system.host, workload, system, application, records)
                self.say(f"  warm-up: {system.label:<56} {answer.seconds:>21.2f} s")

    # == a little more, or nothing more, than in the run before

    def _again(self, workload: Workload) -> Iterator[tuple[int, tuple[System, Figure, int]]]:
        self._begin()
        self._start_hosts(workload)
        topic = f"bench-{workload.name}-{uuid.uuid4().hex[:6]}"
        inputs = self.inputs.fresh(workload, topic)
        self.inputs.append(workload, topic, 0, workload.before)
        applications: dict[System, Application] = {}
        for system in workload.systems:
            if system in self._failed:
                continue
            with self._failing(workload, system):
                applications[system] = self._new_application(workload, system, inputs)
                self._run(system.host, workload, system, applications[system], workload.before)
        published = workload.before
        for number in range(workload.rounds):
            self.inputs.append(workload, topic, published, workload.records)
            published += workload.records
            self._expected = None
            for system in workload.systems:
                if system in self._failed:
                    continue
                with self._failing(workload, system):
                    host = (workload.kind == "empty" and system.empty_host) or system.host
                    answer = self._run(host, workload, system, applications[system], workload.records)
                    self._check(workload, system, applications[system], workload.records)
                    yield number, (system, _figure(answer), workload.records)
        for application in applications.values():
            self._delete(application)

    # == without Spark

    def _without_spark(self, workload: Workload) -> Iterator[tuple[int, tuple[System, Figure, int]]]:
        """Run what has no input of the suite's own; what it has to come to, it checks itself."""
        self._begin()
        with table_rounds.measuring(workload, self.bootstrap, self.folder) as measure:
            for number, system in _turns(workload):
                if system in self._failed:
                    continue
                with self._failing(workload, system):
                    yield number, (system, _figure(measure(system)), 0)

    # == one run

    def _run(
        self, kind: str, workload: Workload, system: System, application: Application, records: int
    ) -> Answer:
        host = self._host(kind)
        try:
            return host.run(self._request(workload, system, application, records))
        except HostError:
            self._hosts.pop(kind, host).close()
            raise

    def _start_hosts(self, workload: Workload) -> None:
        """Start what is not up yet, all at once."""
        for system in workload.systems:
            with self._failing(workload, system):
                self._host(system.host)

    def _host(self, kind: str) -> Host:
        if kind not in self._hosts:
            self._hosts[kind] = Host(kind, self.folder)
        return self._hosts[kind]

    def _request(
        self, workload: Workload, system: System, application: Application, records: int
    ) -> dict[str, Any]:
        return {
            "system": system.name,
            "guarantee": system.guarantee,
            "topology": workload.topology,
            "records": records,
            "bootstrap": self.bootstrap,
            "application_id": application.application_id,
            "run_id": uuid.uuid4().hex[:8],
            "inputs": dict(application.inputs),
            "output": application.output,
            "target": system.target,
            "changelog": f"{application.application_id}-changelog",
            "partitions": workload.partitions,
            "codec": workload.codec or "lz4",
            "folder": str(application.folder),
        }

    def _new_application(self, workload: Workload, system: System, inputs: Mapping[str, str]) -> Application:
        self._applications += 1
        name = f"bench-{workload.name}-{system.name}-{self._applications}-{uuid.uuid4().hex[:6]}"
        folder = self.folder / name
        application = Application(
            application_id=name, inputs=inputs, output=_output(system, name, folder), folder=folder
        )
        application.folder.mkdir()
        topics = {application.output: workload.partitions} if system.target == "topic" else {}
        if system in LOOPS and workload.topology == "sum_by_key":
            topics[f"{name}-changelog"] = workload.partitions
        create_topics(self.bootstrap, topics)
        return application

    @contextmanager
    def _application(
        self, workload: Workload, system: System, inputs: Mapping[str, str]
    ) -> Iterator[Application]:
        application = self._new_application(workload, system, inputs)
        try:
            yield application
        finally:
            self._delete(application)

    def _delete(self, application: Application) -> None:
        """Delete an application's topics, and its tables: what was written need not be kept."""
        for table in (application.folder / "lake", application.folder / _TABLE):
            shutil.rmtree(table, ignore_errors=True)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        names = [name for name in admin.list_topics(timeout=30).topics if application.application_id in name]
        if names:
            for deleted in admin.delete_topics(names).values():
                deleted.result(30)

    # == outputs

    def _begin(self) -> None:
        self._expected = None
        self._failed = set()

    def _check(self, workload: Workload, system: System, application: Application, records: int) -> None:
        """Compare what a system wrote with what ours did.

        :raises WrongOutputError: it is not equal.
        """
        if system.output == "none":
            return
        found = outputs.digest(
            self._written(workload, system, application),
            table=workload.table and system.output == "compared",
        )
        if system.output == "counted":
            if found.records != records:
                raise WrongOutputError(f"{found.records:,} records, not {records:,}")
            return
        if self._expected is None:
            if system != OURS:
                raise WrongOutputError("there is no output of ours to compare with")
            if not found.records:
                raise WrongOutputError("ours is empty")
            self._expected = found
        if difference := outputs.differences(self._expected, found):
            raise WrongOutputError(difference)

    def _written(
        self, workload: Workload, system: System, application: Application
    ) -> Iterator[list[outputs.Record]]:
        if system.target == "topic":
            return outputs.read(self.bootstrap, application.output)
        return table_rows.read(system.target, application.output, application.folder, workload.topology)

    @contextmanager
    def _failing(self, workload: Workload, system: System) -> Iterator[None]:
        """Note a failure: the system has no result, the others go on."""
        try:
            yield
        except (HostError, WrongOutputError, KafkaException, KStreamsError, ValueError) as error:
            self._failed.add(system)
            self.failures.append(f"{workload.name}, {system.label}: {error}")
            self.say(f"  FAILED {self.failures[-1]}")


_ROUNDS: Mapping[Kind, Callable[[Suite, Workload], Iterator[tuple[int, tuple[System, Figure, int]]]]] = {
    "hourly": Suite._again,
    "empty": Suite._again,
    "files": Suite._without_spark,
    "snapshots": Suite._without_spark,
    "days": Suite._without_spark,
}


def _output(system: System, name: str, folder: Path) -> str:
    """Return where an application's results go, as its topology has it."""
    match system.target:
        case "topic":
            return f"{name}-output"
        case "iceberg":
            return f"bench.{name}"
        case _:
            return str(folder / _TABLE)


def _turns(workload: Workload) -> Iterator[tuple[int, System]]:
    """Every system in turn, and the other way round in every second round (A B, B A).

    Whatever a round's place gives or takes, such as what the run before has left to do, falls on all.
    """
    for number in range(workload.rounds):
        for system in reversed(workload.systems) if number % 2 else workload.systems:
            if number < workload.rounds_of(system):
                yield number, system


def _figure(answer: Answer) -> Figure:
    return Figure(
        seconds=answer.seconds,
        peak_memory_mb=answer.peak_memory_mb,
        processor_seconds=answer.processor_seconds,
        details=answer.details,
    )
