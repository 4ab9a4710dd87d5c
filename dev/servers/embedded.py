"""One Kafka broker of its own, from Apache Kafka's jars: for the demo, the tests and ``dev/kafka``.

A broker is a folder and a port. It listens on 127.0.0.1 only: plain on ``port``, its KRaft controller on
``port + 1``, SASL/PLAIN on ``port + 2``. With a ``proxy_port`` it also listens on ``proxy_port + 1``, plain,
and sends its clients to ``proxy_port``, where :mod:`dev.proxy.kafka_proxy` may stand. The folder holds its
configuration, pid file, log and data, so that a later process can find, stop or reset what an earlier one
started.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import psutil

from airflow_kstreams.launch.jvm_options import taking
from dev.servers.quick_java import KAFKA_CLASSES

HOST = "127.0.0.1"
SASL_USER = "alice"
SASL_PASSWORD = "alice-secret"  # noqa: S105 - of the embedded broker's SASL listener, which exists for tests

_LIBRARY = Path(__file__).parents[1] / "lib"
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_READY_SECONDS = 60.0
_STOP_SECONDS = 30.0
#: Processes that this one started, by folder: kept so that they are waited for as children.
_children: dict[Path, subprocess.Popen[bytes]] = {}

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port},\
SASL_PLAINTEXT://{host}:{sasl_port}{proxied}
advertised.listeners=PLAINTEXT://{host}:{port},SASL_PLAINTEXT://{host}:{sasl_port}{proxy}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,\
SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
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


class BrokerError(Exception):
    """The embedded broker could not be started or stopped; the text says why in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """An embedded broker; as a context manager it runs for the duration of the block.

    :param port: of the plain listener; the two ports above it are taken too.
    :param folder: holds all that the broker writes.
    :param heap: Java's ``-Xmx``.
    :param proxy_port: where a proxy may stand; the listener behind it takes the port above.
    :param java_options: further ones for Java.
    """

    #: How many ports it takes, from ``port`` on: plain, controller, SASL.
    PORTS: ClassVar[int] = 3

    port: int
    folder: Path
    heap: str = "512m"
    proxy_port: int | None = None
    java_options: tuple[str, ...] = ()

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` of the plain listener."""
        return f"{HOST}:{self.port}"

    @property
    def sasl_bootstrap(self) -> str:
        """``bootstrap.servers`` of the SASL/PLAIN listener."""
        return f"{HOST}:{self.port + 2}"

    @property
    def sasl_config(self) -> dict[str, str | int | float | bool]:
        """Client settings that log in at the SASL/PLAIN listener."""
        return {
            "bootstrap.servers": self.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": SASL_USER,
            "sasl.password": SASL_PASSWORD,
        }

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

    def __enter__(self) -> Self:
        self.start(die_with_parent=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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

    def start(self, *, die_with_parent: bool = False) -> bool:
        """Start the broker and wait until it answers; return False when it was running already.

        :param die_with_parent: let the kernel end the broker when the calling thread dies, however it dies.
        :raises BrokerError: a port is taken, the folder's broker runs on another port, or it did not come up.
        """
        if self.pid is not None:
            if self.running_port != self.port:
                raise BrokerError(
                    f"the broker in {self.folder} already runs on port {self.running_port}, not {self.port}: "
                    "stop it first"
                )
            self._wait_until_ready(self.pid)
            return False
        self._refuse_taken_ports()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._prepare()
        self._properties_file.write_text(self._properties())
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()
        java = [_java(), f"-Xmx{self.heap}", *_java_options(), *self.java_options]
        command = [*java, "kafka.Kafka", str(self._properties_file)]
        if die_with_parent and (setpriv := shutil.which("setpriv")):
            command = [setpriv, "--pdeathsig", "TERM", *command]
        with self.log_file.open("wb") as log:
            # A session of its own keeps the terminal's Ctrl-C from it: whoever uses the broker ends first.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _children[self.folder] = process
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
        if (child := _children.pop(self.folder, None)) is not None:
            child.wait()
        self._pid_file.unlink(missing_ok=True)
        return True

    def kill(self) -> None:
        """End the broker by SIGKILL, as a power cut would, and wait for its end; its folder stays."""
        process = self._process()
        if process is not None:
            process.kill()
            process.wait(timeout=_STOP_SECONDS)
        if (child := _children.pop(self.folder, None)) is not None:
            child.wait()

    def wipe(self) -> None:
        """Stop the broker and delete its folder with all topics.

        :raises BrokerError: the folder holds something, but no broker.
        """
        if self.folder.exists() and any(self.folder.iterdir()) and not self._properties_file.exists():
            raise BrokerError(
                f"{self.folder} is no broker's folder (it has no {self._properties_file.name}): not deleted"
            )
        self.stop()
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(int(self._pid_file.read_text()))
            # A pid is reused sooner or later; only a process that was started on our file is ours.
            ours = str(self._properties_file) in process.cmdline()
            return process if ours and process.status() != psutil.STATUS_ZOMBIE else None
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess, psutil.ZombieProcess):
            return None

    def _prepare(self) -> None:
        """Put into the folder what the configuration refers to."""

    def _properties(self) -> str:
        return (
            _PROPERTIES.format(
                host=HOST,
                port=self.port,
                controller_port=self.port + 1,
                sasl_port=self.port + 2,
                user=SASL_USER,
                password=SASL_PASSWORD,
                proxied=self._listener("PROXIED", 1),
                proxy=self._listener("PROXIED", 0),
            )
            + self._common_properties()
        )

    def _common_properties(self) -> str:
        return _COMMON_PROPERTIES.format(folder=self.folder)

    def _format_arguments(self) -> list[str]:
        """Return what formatting takes besides the configuration."""
        return []

    def _listener(self, name: str, above: int) -> str:
        return "" if self.proxy_port is None else f",{name}://{HOST}:{self.proxy_port + above}"

    def _format(self) -> None:
        result = subprocess.run(
            tool_command(
                "kafka.tools.StorageTool",
                [
                    "format",
                    *("--cluster-id", _CLUSTER_ID),
                    *("--config", str(self._properties_file)),
                    *self._format_arguments(),
                ],
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            lines = (result.stderr or result.stdout).strip().splitlines()
            raise BrokerError(f"cannot format {self.folder}: {lines[-1] if lines else 'no output'}")

    def _refuse_taken_ports(self) -> None:
        ports = [*range(self.port, self.port + self.PORTS)]
        if self.proxy_port is not None:
            ports.append(self.proxy_port + 1)
        for port in ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise BrokerError(
                        f"cannot use port {port} of {HOST}: {error.strerror}; choose another with --port "
                        f"(the broker takes {self.port} to {self.port + self.PORTS - 1})"
                    ) from None

    def _wait_until_ready(self, pid: int) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                raise BrokerError(f"the broker ended while starting: {_last_line(self.log_file)}")
            if not _accepts(self.port):
                time.sleep(0.1)
                continue
            # The client's own chatter about a broker that is not up yet is of no use to anybody.
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            try:
                if admin.list_topics(timeout=5).brokers:
                    return
            except KafkaException:
                time.sleep(0.1)
        raise BrokerError(
            f"the broker did not answer within {_READY_SECONDS:.0f} s: {_last_line(self.log_file)} "
            f"({self.log_file})"
        )


#: Below those that systems give to outgoing connections, which might take one before its listener does.
_PORTS = range(15_000, 32_000)


def free_port(ports: int = Broker.PORTS) -> int:
    """Return a port such that it and those above it are free now, on 127.0.0.1.

    :param ports: how many in a row; a broker takes three, and two more for a proxy before it.
    """
    for _ in range(100):
        port = random.choice(_PORTS)  # noqa: S311
        if all(_is_free(candidate) for candidate in range(port, port + ports)):
            return port
    raise BrokerError(f"found no {ports} free ports in a row on this machine")


def kafka_libraries() -> Path:
    """Return the folder of the jars of Kafka's broker and tools.

    :raises BrokerError: ``dev/setup`` has not fetched them.
    """
    return _libraries("KSTREAMS_DEV_KAFKA_LIBS", "libs")


def kafka_streams_libraries() -> Path:
    """Return the folder of the jars of Java's Kafka Streams, clients and tools.

    :raises BrokerError: ``dev/setup`` has not fetched them.
    """
    return _libraries("KSTREAMS_DEV_STREAMS_LIBS", "streams")


def rocksdb_libraries() -> Path:
    """Return the folder of the jar of Kafka Streams' store.

    :raises BrokerError: ``dev/setup --rocksdb`` has not fetched it.
    """
    return _libraries("KSTREAMS_DEV_ROCKSDB_LIBS", "rocksdb", setup="dev/setup --rocksdb")


def parallel_consumer_libraries() -> Path:
    """Return the folder of the jars of Confluent's Parallel Consumer and its Kafka client.

    :raises BrokerError: ``dev/setup --parallel-consumer`` has not fetched them.
    """
    return _libraries(
        "KSTREAMS_DEV_PARALLEL_CONSUMER_LIBS", "parallel-consumer", setup="dev/setup --parallel-consumer"
    )


def libraries_version(folder: Path) -> str:
    """Return the version that the name of a folder of jars ends with."""
    return folder.name.rpartition("-")[2]


def _libraries(variable: str, prefix: str, setup: str = "dev/setup") -> Path:
    named = os.environ.get(variable)
    found = sorted((_LIBRARY.parent.parent / ".kafka").glob(f"{prefix}-*"))
    folder = Path(named) if named else next(iter(found), None)
    if folder is None or not folder.is_dir():
        raise BrokerError(f"Kafka's jars are not here: run {setup}")
    return folder


def tool_command(java_class: str, arguments: list[str]) -> list[str]:
    """Return the command that runs one of Kafka's own command line tools."""
    return [_java(), "-Xmx256m", *_java_options(), java_class, *arguments]


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else shutil.which("java")
    if java is None:
        raise BrokerError("Java is not here: run dev/setup")
    return str(java)


def _java_options() -> list[str]:
    log_config = f"-Dlog4j2.configurationFile={_LIBRARY / 'log4j2.properties'}"
    archive = taking(KAFKA_CLASSES) if KAFKA_CLASSES.exists() else ()
    return [log_config, "-XX:+UseG1GC", *archive, "-cp", f"{kafka_libraries()}/*"]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return port < 65_536


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it wrote nothing"
