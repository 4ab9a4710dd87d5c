"""The processes of a round: drivers as users start them, what they start, and a standalone Spark cluster."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

import psutil
import pyspark

from dev.servers.quick_java import QUICK_SPARK

_ROOT = Path(__file__).parents[2]
_READY_SECONDS = 60.0
_END_SECONDS = 20.0
_DAEMON = "pyspark.daemon"
_EXECUTOR = "CoarseGrainedExecutorBackend"
#: How a driver says why it failed.
_ERROR = re.compile(r'^KSTREAMS-ERROR .*?"type": *"(\w+)"', re.MULTILINE)


class Driver:
    """One driver process: the application file, started by hand with its command line.

    :param arguments: the application's file, and what follows it.
    :param environment: what it and its executors have in theirs besides.
    :param master: Spark's master URL.
    :param executor_cores: on a cluster, which offers two: one executor that hosts all, or one of two.
    :param log: file for its output.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        environment: Mapping[str, str],
        master: str,
        executor_cores: int,
        log: Path,
    ) -> None:
        self.log = log
        quick = shlex.quote(QUICK_SPARK)
        submit = "--conf spark.driver.memory=512m --conf spark.ui.enabled=false"
        submit += f" --conf spark.driver.extraJavaOptions={quick}"
        if master.startswith("spark://"):
            submit += f" --conf spark.executor.memory=512m --conf spark.executor.cores={executor_cores}"
            submit += f" --conf spark.executor.extraJavaOptions={quick}"
            for name, text in environment.items():
                submit += f" --conf spark.executorEnv.{name}={text}"
        environment = {
            **os.environ,
            **environment,
            "PYTHONPATH": str(_ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "MASTER": master,
            "PYSPARK_SUBMIT_ARGS": f"--master {master} {submit} pyspark-shell",
        }
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    @property
    def error(self) -> str:
        """The type of the error that it ended with, empty when it told none."""
        found = _ERROR.findall(self.log.read_text(errors="replace"))
        return found[-1] if found else ""

    def members(self) -> list[psutil.Process]:
        """Return what is alive of the driver and all that it started, wherever it hangs by now."""
        return [process for process in psutil.process_iter() if _session_of(process) == self._process.pid]

    def workers(self, ports: Collection[int]) -> list[psutil.Process]:
        """Return its Python workers that talk to the broker at this moment."""
        return connected_workers(self.members(), ports)

    def jvm(self) -> psutil.Process | None:
        """Return Spark's JVM, None before it has started."""
        return next((process for process in self.members() if _name_of(process) == "java"), None)

    def kill(self) -> None:
        """Kill the driver's own process, nothing else."""
        self._process.kill()
        self._process.wait(_END_SECONDS)

    def end(self) -> list[str]:
        """End all there is of it; return the names of what should have been gone without.

        What has lost its driver gets some time to notice.
        """
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(_END_SECONDS)
        deadline = time.monotonic() + _END_SECONDS
        while (left := self.members()) and time.monotonic() < deadline:
            time.sleep(0.1)
        names = [f"{_name_of(process)} ({process.pid})" for process in left]
        for process in left:
            send(process, signal.SIGKILL)
        return names


class StandaloneCluster:
    """A Spark master and one worker of two slots, as Spark's own launch scripts start them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> Self:
        """Start both and wait until they know each other."""
        home = Path(pyspark.__file__).parent
        run = [str(home / "bin" / "spark-class")]
        quiet = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = self._start("master", [*run, "org.apache.spark.deploy.master.Master", *quiet])
        self.master = _waited_for(log, r"Starting Spark master at (spark://\S+)")
        work = ["--cores", "2", "--memory", "2g", "--work-dir", str(self._folder / "work")]
        log = self._start(
            "worker", [*run, "org.apache.spark.deploy.worker.Worker", *quiet, *work, self.master]
        )
        _waited_for(log, r"(Successfully registered with master)")
        return self

    def executors(self) -> list[psutil.Process]:
        """Return the executors' JVMs."""
        return [process for process in self._descendants() if _EXECUTOR in _command_of(process)]

    def workers(self, ports: Collection[int]) -> list[psutil.Process]:
        """Return the Python workers that talk to the broker at this moment."""
        return connected_workers(self._descendants(), ports)

    def stop(self) -> None:
        """End the cluster and whatever it has started."""
        descendants = self._descendants()
        for process in reversed(self._processes):
            process.kill()
            process.wait(_END_SECONDS)
        for descendant in descendants:
            send(descendant, signal.SIGKILL)

    def _descendants(self) -> list[psutil.Process]:
        found = []
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(process.pid).children(recursive=True)
        return found

    def _start(self, name: str, command: list[str]) -> Path:
        log = self._folder / f"{name}.log"
        environment = {
            **os.environ,
            "PYTHONPATH": str(_ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
        }
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [*_dying_with_us(), *command],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return log


class Helper:
    """A program of this package that runs beside the rounds and ends with its standard input.

    :param module: its name.
    :param arguments: its command line.
    """

    def __init__(self, module: str, arguments: list[str], *, log: Path) -> None:
        self._module = module
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*_dying_with_us(), sys.executable, "-m", f"dev.chaos_rounds.{module}", *arguments],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def ask(self, line: str) -> str:
        """Write a line and return the line that answers it.

        :raises RuntimeError: the program has ended.
        """
        _pipe(self._process.stdin).write(f"{line}\n".encode())
        _pipe(self._process.stdin).flush()
        answer = _pipe(self._process.stdout).readline().decode()
        if not answer:
            self.refuse_dead()
        return answer

    def refuse_dead(self) -> None:
        """Raise when the program has ended.

        :raises RuntimeError: it has; the text has its last words.
        """
        if self._process.poll() is not None:
            raise RuntimeError(f"the {self._module} ended: {self._log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self.stop()

    def stop(self) -> None:
        """Let it end."""
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_SECONDS)
        _pipe(self._process.stdout).close()


def _dying_with_us() -> list[str]:
    """Return what lets the kernel end a command when this process dies, however it dies."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []


def connected_workers(processes: list[psutil.Process], ports: Collection[int]) -> list[psutil.Process]:
    """Return the Python workers among processes that have a connection to one of the ports."""
    return [
        process
        for process in processes
        if _DAEMON in _command_of(process) and set(_peers(process)) & set(ports)
    ]


def send(process: psutil.Process, number: signal.Signals) -> bool:
    """Send a signal; return whether the process was there."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def _peers(process: psutil.Process) -> Iterator[int]:
    with suppress(psutil.Error):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_ESTABLISHED and connection.raddr:
                yield connection.raddr.port


def _session_of(process: psutil.Process) -> int:
    try:
        return -1 if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return -1


def _name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _waited_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.1)
    raise TimeoutError(f"Spark's cluster did not come up: {log.read_text(errors='replace')[-2000:]}")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("the process has no such pipe")
    return stream
