"""The processes that run systems: one request, one answer a line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from airflow_kstreams.spark.driver.class_archive import keep_classes
from dev.benchmarks import processor
from dev.benchmarks.memory import PeakMemory
from dev.servers import embedded
from dev.servers.quick_java import SPARK_CLASSES

_FOLDER = Path(__file__).parent
_ROOT = _FOLDER.parents[1]
_QUIX_REQUIREMENTS = _FOLDER / "quix-requirements.txt"
_PYRALLEL_REQUIREMENTS = _FOLDER / "calls" / "pyrallel-requirements.txt"
#: What this repository's own tests set for Spark's JVMs is not what users have.
_OWN_OPTIONS = frozenset({"SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"})
_STREAMS_HOST = _FOLDER / "KafkaStreamsHost.java"
_PARALLEL_HOST = _FOLDER / "calls" / "ParallelConsumerHost.java"
#: Names the checkout of an earlier revision, see :mod:`dev.benchmarks.against`.
EARLIER_VARIABLE = "KSTREAMS_BENCH_EARLIER"
_JAVA_OPTIONS = ("-Xmx4g", "-XX:+UseG1GC", "-Dlog4j2.level=ERROR")


class HostError(Exception):
    """A host did not start or gave no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a host says about one run.

    :param seconds: wall time of the run.
    :param peak_memory_mb: of the host's processes meanwhile.
    :param processor_seconds: that these had, user and system, from the request to its answer, or to the end
        of the run where the host says that itself.
    :param details: whatever else it measured.
    """

    seconds: float
    peak_memory_mb: float
    processor_seconds: float
    details: Mapping[str, float]


class Host:
    """A process that runs requests one after the other.

    :param kind: a key of :data:`HOSTS`.
    :param folder: for all that it writes; its standard error goes to ``KIND.log``.
    :raises HostError: what it needs is not here.

    It comes up while others do; whether it did is seen when it runs something.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._log = folder / f"{kind}.log"
        work = folder / kind
        work.mkdir(exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                _parent_bound(HOSTS[kind](work)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                cwd=work,
                env={name: value for name, value in os.environ.items() if name not in _OWN_OPTIONS},
                start_new_session=True,
            )
        self._is_ready = False

    @staticmethod
    def prepare(kind: str) -> None:
        """Make what a kind of host needs, unless it is there.

        :raises HostError: it cannot be made.
        """
        if kind in _PREPARATIONS:
            _PREPARATIONS[kind]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, request: Mapping[str, Any]) -> Answer:
        """Run what is asked, and wait for its end.

        :raises HostError: the process ended instead.
        """
        stdin = self._process.stdin
        if stdin is None:
            raise HostError(f"{self.kind} has no standard input")
        self.wait_until_ready()
        before = self.processor_seconds()
        with PeakMemory(self._process.pid) as memory:
            with contextlib.suppress(BrokenPipeError):  # the answer that does not come tells
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()
            details = self._read()
            processor_seconds = self.processor_seconds() - before
        return Answer(
            seconds=details.pop("seconds"),
            peak_memory_mb=memory.megabytes,
            processor_seconds=details.pop("processor_seconds", processor_seconds),
            details=details,
        )

    def processor_seconds(self) -> float:
        """Return how much processor time the process and its descendants have had since it was started."""
        return processor.seconds_of(self._process.pid)

    def wait_until_ready(self) -> None:
        """Wait until it takes requests.

        :raises HostError: the process ended instead.
        """
        if not self._is_ready:
            self._read()
            self._is_ready = True

    def close(self) -> None:
        """End the process; never raises."""
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.communicate(timeout=60)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _read(self) -> dict[str, Any]:
        stdout = self._process.stdout
        line = stdout.readline() if stdout is not None else ""
        if not line:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            self.close()
            raise HostError(
                f"{self.kind} ended with {self._process.returncode}: "
                + "\n".join(lines[-15:] or ["no output"])
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


def _parent_bound(command: Sequence[str]) -> list[str]:
    """Let the kernel end the process with this one."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", *command] if setpriv else list(command)


def _spark(kind: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "dev.benchmarks.spark_host", kind, str(folder)]


def _airflow(folder: Path) -> list[str]:
    return [sys.executable, "-m", "dev.benchmarks.empty_host", str(folder)]


def _airflow_tasks(folder: Path) -> list[str]:
    return [sys.executable, "-m", "dev.benchmarks.empty_tasks_host", str(folder)]


def _calls(folder: Path) -> list[str]:
    return [sys.executable, "-m", "dev.benchmarks.calls.task_host", str(folder)]


def _calls_memory(folder: Path) -> list[str]:
    return [sys.executable, "-m", "dev.benchmarks.calls.memory_host", str(folder)]


def _tables(folder: Path) -> list[str]:
    return [sys.executable, "-m", "dev.benchmarks.tables.table_host", str(folder)]


def _earlier(command: Sequence[str]) -> list[str]:
    """Let a host of ours run another checkout's code."""
    return ["env", f"PYTHONPATH={os.environ[EARLIER_VARIABLE]}", *command]


def _kafka_streams(_folder: Path) -> list[str]:
    return _java_host(_STREAMS_HOST, kafka_streams_classes(), _kafka_streams_libraries())


def _parallel_consumer(_folder: Path) -> list[str]:
    return _java_host(_PARALLEL_HOST, parallel_consumer_classes(), _parallel_consumer_libraries())


def _pyrallel(_folder: Path) -> list[str]:
    return [str(pyrallel_python()), str(_FOLDER / "calls" / "pyrallel_host.py")]


def _java_host(source: Path, classes: Path, libraries: str) -> list[str]:
    return [str(_java()), *_JAVA_OPTIONS, "-cp", f"{classes}:{libraries}", source.stem]


def _quix(_folder: Path) -> list[str]:
    return [str(quix_python()), str(_FOLDER / "quix_host.py")]


def _spark_classes() -> None:
    """Keep Spark's classes, where ``dev/setup`` could not."""
    if not SPARK_CLASSES.exists():
        keep_classes(SPARK_CLASSES)


def _kafka_streams_libraries() -> str:
    return f"{embedded.kafka_streams_libraries()}/*:{embedded.rocksdb_libraries()}/*"


def _parallel_consumer_libraries() -> str:
    return f"{embedded.parallel_consumer_libraries()}/*"


def kafka_streams_classes() -> Path:
    """Return the folder with the compiled host of Kafka Streams, which is made at its first use.

    :raises HostError: it cannot be made.
    """
    return _compiled(_STREAMS_HOST, _kafka_streams_libraries(), "bench-kafka-streams")


def parallel_consumer_classes() -> Path:
    """Return the folder with the compiled host of Parallel Consumer, which is made at its first use.

    :raises HostError: it cannot be made.
    """
    return _compiled(_PARALLEL_HOST, _parallel_consumer_libraries(), "bench-parallel-consumer")


def _compiled(source: Path, libraries: str, name: str) -> Path:
    folder = _ROOT / ".setup" / name
    ready = folder / "ready"
    wanted = f"{_java()} {libraries}\n{source.read_text(encoding='utf-8')}"
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    compiler = str(_java().with_name("javac"))
    command = [compiler, "-d", str(folder), "-cp", libraries, str(source)]
    if failure := _failure(command):
        raise HostError(f"{source.name} cannot be compiled: {failure}")
    ready.write_text(wanted, encoding="utf-8")
    return folder


def quix_python() -> Path:
    """Return the Python of Quix Streams' own environment, which is made at its first use: its requirements
    clash with ours.

    :raises HostError: it cannot be made.
    """
    return _environment("bench-quix", _QUIX_REQUIREMENTS)


def pyrallel_python() -> Path:
    """Return the Python of pyrallel-consumer's own environment, which is made at its first use. It asks for
    Python 3.12, and works in 3.11 when that is not looked at, which only pip can be told.

    :raises HostError: it cannot be made.
    """
    return _environment("bench-pyrallel", _PYRALLEL_REQUIREMENTS, "--ignore-requires-python", "--no-deps")


def _environment(name: str, requirements: Path, *only_pip: str) -> Path:
    """Return the Python of an environment with some requirements.

    :param only_pip: options that only pip has.
    """
    folder = _ROOT / ".setup" / name
    python, ready = folder / "bin" / "python", folder / "ready"
    wanted = requirements.read_text()
    if ready.exists() and ready.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    uv = str(Path(sys.executable).with_name("uv"))
    by_uv = [uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(requirements)]
    by_pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *only_pip]
    # uv only makes it faster; where it does not know the machine's pip configuration, pip does the same.
    if _failure([sys.executable, "-m", "venv", str(folder)]) or only_pip or _failure(by_uv):
        failure = _failure([*by_pip, "-r", str(requirements)])
        if failure:
            raise HostError(f"what {requirements.name} names cannot be installed: {failure}")
    ready.write_text(wanted)
    return python


def _failure(command: Sequence[str]) -> str:
    """Run a command; return the end of what it says when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return (done.stderr.strip()[-500:] or "no output") if done.returncode else ""


def _java() -> Path:
    for home in _java_homes():
        if (home / "bin" / "javac").exists():
            return home / "bin" / "java"
    raise HostError(
        "A peer in Java needs its compiler: install openjdk-17-jdk-headless (Debian, Ubuntu) or "
        "java-17-openjdk-devel (Fedora, RHEL), or set JAVA_HOME to a JDK of 17 or newer"
    )


def _java_homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if compiler := shutil.which("javac"):
        yield Path(compiler).resolve().parent.parent


#: Commands by kind.
HOSTS = {
    "engine": lambda folder: _spark("engine", folder),
    "engine-prepared": lambda folder: _spark("engine-prepared", folder),
    "engine-fresh-workers": lambda folder: _spark("engine-fresh-workers", folder),
    "engine-earlier": lambda folder: _earlier(_spark("engine", folder)),
    "connector": lambda folder: _spark("connector", folder),
    "airflow": _airflow,
    "airflow-tasks": _airflow_tasks,
    "calls": _calls,
    "calls-memory": _calls_memory,
    "tables": _tables,
    "airflow-earlier": lambda folder: _earlier(_airflow(folder)),
    "kafka-streams": _kafka_streams,
    "kafka-streams-plain": _kafka_streams,
    "parallel-consumer": _parallel_consumer,
    "pyrallel-consumer": _pyrallel,
    "quix-streams": _quix,
}
#: What a host needs once, by kind: no run is to pay for making it.
_PREPARATIONS: Mapping[str, Callable[[], object]] = {
    "engine-prepared": _spark_classes,
    "kafka-streams": kafka_streams_classes,
    "kafka-streams-plain": kafka_streams_classes,
    "parallel-consumer": parallel_consumer_classes,
    "pyrallel-consumer": pyrallel_python,
    "quix-streams": quix_python,
}
