"""Runs one Kafka broker on this machine, for trying things out.

A broker is a folder and a port. It listens on 127.0.0.1 only: plain on ``port``, its KRaft controller on
``port + 1``. The folder holds its configuration, pid file, log and data, so that a later process can find,
stop or delete what an earlier one started.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import ClassVar

import psutil

from airflow_kstreams.first_steps.broker.kafka_jars import kafka_jars, working_java
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.settings import ApplicationSettings

HOST = "127.0.0.1"

_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_READY_SECONDS = 60.0
_STOP_SECONDS = 30.0
#: Processes that this one started, by folder: kept so that they are waited for as children.
children: dict[Path, subprocess.Popen[bytes]] = {}

_LISTENERS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
"""
_COMMON_PROPERTIES = """\
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=2
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
"""


class BrokerError(KStreamsError):
    """A broker on this machine could not be started or stopped."""

    own_code: ClassVar[str] = "KS-FIRST-002"


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaCommand:
    """What a broker's Java is started with.

    :param java: path of Java's command.
    :param jars: folder of the jars of Kafka's broker.
    :param options: further ones for Java.
    """

    java: str
    jars: Path
    options: tuple[str, ...] = ()

    @contextmanager
    def running(self, java_class: str, *arguments: str, heap: str) -> Iterator[list[str]]:
        """Yield the command that runs one of Kafka's programs; start it inside the block."""
        with as_file(files(__package__) / "log4j2.properties") as log_config:
            yield [
                *(self.java, f"-Xmx{heap}", f"-Dlog4j2.configurationFile={log_config}", "-XX:+UseG1GC"),
                *(*self.options, "-cp", f"{self.jars}/*", java_class, *arguments),
            ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBroker:
    """A broker of this machine.

    :param port: of the plain listener; the port above it is taken too.
    :param folder: holds all that the broker writes.
    :param heap: Java's ``-Xmx``.
    """

    #: How many ports it takes, from ``port`` on.
    PORTS: ClassVar[int] = 2

    port: int
    folder: Path
    heap: str = "512m"

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` of the plain listener."""
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        """Where the broker's own output goes."""
        return self.folder / "broker.log"

    @property
    def _properties_file(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    @property
    def pid(self) -> int | None:
        """Process id of the running broker of this folder, None when there is none."""
        process = self._process()
        return process.pid if process else None

    @property
    def running_port(self) -> int | None:
        """The port that this folder's broker was last started with."""
        if not self._properties_file.exists():
            return None
        listeners = next(
            line for line in self._properties_file.read_text().splitlines() if line.startswith("listeners=")
        )
        return int(listeners.split(",")[0].rsplit(":", 1)[1])

    def java_command(self) -> JavaCommand:
        """Return what its Java is started with; fetch Kafka's jars if they are not here.

        :raises ConfigError: there is no Java, or the jars cannot be fetched.
        """
        java = working_java(os.environ)
        return JavaCommand(java=java, jars=kafka_jars(os.environ, java))

    def is_running(self) -> bool:
        """Whether the folder's broker runs on this port.

        :raises BrokerError: it runs on another.
        """
        if self.pid is None:
            return False
        if self.running_port != self.port:
            raise BrokerError(
                f"the broker in {self.folder} already runs on port {self.running_port}, not {self.port}",
                fix=f"use it there, or stop it first: airflow-kstreams broker stop --folder {self.folder}",
            )
        return True

    def start(self, *, die_with_parent: bool = False) -> bool:
        """Start the broker and wait until it answers; return False when it was running already.

        :param die_with_parent: let the kernel end the broker when the calling thread dies, however it dies.
        :raises BrokerError: a port is taken, the folder's broker runs on another port, or it did not come up.
        :raises ConfigError: there is no Java, or Kafka's jars cannot be fetched.
        """
        if self.is_running():
            self._wait_until_ready(self.pid or 0)
            return False
        self._refuse_taken_ports()
        self._make_folder()
        command = self.java_command()
        self._prepare()
        self._properties_file.write_text(self._properties())
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(command)
        with (
            command.running("kafka.Kafka", str(self._properties_file), heap=self.heap) as line,
            self.log_file.open("wb") as log,
        ):
            if die_with_parent and (setpriv := shutil.which("setpriv")):
                line = [setpriv, "--pdeathsig", "TERM", *line]
            # A session of its own keeps the terminal's Ctrl-C from it: its users end first.
            process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            children[self.folder] = process
            self._pid_file.write_text(str(process.pid))
            try:
                self._wait_until_ready(process.pid)
            except BaseException:
                self.stop()
                raise
        return True

    def stop(self) -> bool:
        """Stop the broker and wait for its end; return False when none was running."""
        process = self._process()
        if process is None:
            self._pid_file.unlink(missing_ok=True)
            return False
        try:
            process.terminate()
            try:
                process.wait(timeout=_STOP_SECONDS)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(timeout=_STOP_SECONDS)
        except psutil.NoSuchProcess:
            pass  # it ended by itself between the look and the signal, which is what was asked for
        except psutil.TimeoutExpired:
            raise BrokerError(
                f"the broker with pid {process.pid} does not end, not even by SIGKILL"
            ) from None
        if (child := children.pop(self.folder, None)) is not None:
            child.wait()
        self._pid_file.unlink(missing_ok=True)
        return True

    def wipe(self) -> bool:
        """Stop the broker and delete its folder with all topics; return False when there is no folder.

        :raises BrokerError: the folder holds something, but no broker.
        """
        if not self.folder.exists():
            return False
        if any(self.folder.iterdir()) and not self._properties_file.exists():
            raise BrokerError(
                f"{self.folder} is no broker's folder (it has no {self._properties_file.name}): not deleted",
                fix="name the folder that the broker was started with",
            )
        self.stop()
        shutil.rmtree(self.folder)
        return True

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(int(self._pid_file.read_text()))
            # A pid is reused sooner or later; only a process that was started on our file is ours.
            ours = str(self._properties_file) in process.cmdline()
            return process if ours and process.status() != psutil.STATUS_ZOMBIE else None
        except (
            FileNotFoundError,
            NotADirectoryError,
            ValueError,
            psutil.NoSuchProcess,
            psutil.ZombieProcess,
        ):
            return None

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            strangers = any(self.folder.iterdir()) and not self._properties_file.exists()
        except OSError as error:
            raise BrokerError(
                f"cannot keep a broker in {self.folder}: {error.strerror}",
                fix="name a folder that you may write to with --folder",
            ) from None
        if strangers:
            raise BrokerError(
                f"{self.folder} holds files that are no broker's",
                fix="name a folder of its own with --folder",
            )

    def _prepare(self) -> None:
        """Put into the folder what the configuration refers to."""

    def _properties(self) -> str:
        listeners = _LISTENERS.format(host=HOST, port=self.port, controller_port=self.port + 1)
        return listeners + self._common_properties()

    def _common_properties(self) -> str:
        return _COMMON_PROPERTIES.format(folder=self.folder)

    def _format_arguments(self) -> list[str]:
        """Return what formatting takes besides the configuration."""
        return []

    def _format(self, command: JavaCommand) -> None:
        arguments = (
            *("format", "--cluster-id", _CLUSTER_ID),
            *("--config", str(self._properties_file), *self._format_arguments()),
        )
        with command.running("kafka.tools.StorageTool", *arguments, heap="256m") as line:
            result = subprocess.run(line, capture_output=True, text=True, check=False)
        if result.returncode:
            lines = (result.stderr or result.stdout).strip().splitlines()
            raise BrokerError(f"cannot format {self.folder}: {lines[-1] if lines else 'no output'}")

    def _ports(self) -> list[int]:
        return [*range(self.port, self.port + self.PORTS)]

    def _refuse_taken_ports(self) -> None:
        for port in self._ports():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except (OSError, OverflowError) as error:
                    raise BrokerError(
                        f"cannot use port {port} of {HOST}: {getattr(error, 'strerror', None) or error}",
                        fix=f"choose another with --port (the broker takes {self.PORTS} in a row, "
                        f"{self.port} to {self.port + self.PORTS - 1})",
                    ) from None

    def _wait_until_ready(self, pid: int) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        settings = ApplicationSettings.parse("broker", {"client.timeout.ms": 5_000})
        while time.monotonic() < deadline:
            if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                raise BrokerError(f"the broker ended while starting: {_last_line(self.log_file)}")
            if not _accepts(self.port):
                time.sleep(0.1)
                continue
            admin = KafkaCluster({"bootstrap.servers": self.bootstrap}, settings=settings).admin()
            try:
                admin.topic_names()
            except KStreamsError:
                time.sleep(0.1)
            else:
                return
            finally:
                admin.close()
        raise BrokerError(
            f"the broker did not answer within {_READY_SECONDS:.0f} s: {_last_line(self.log_file)} "
            f"({self.log_file})"
        )


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it wrote nothing"
