"""One Kafka broker of its own, from Apache Kafka's jars: for the demo, the tests and ``dev/kafka``.

It is the broker of ``airflow-kstreams broker``, with a SASL/PLAIN listener on ``port + 2``. With a
``proxy_port`` it also listens on ``proxy_port + 1``, plain, and sends its clients to ``proxy_port``, where
:mod:`dev.proxy.kafka_proxy` may stand. With an ``astray_port`` it listens there, too, and sends its clients
to a host that no name server knows.
"""

from __future__ import annotations

import os
import random
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from airflow_kstreams.first_steps.broker.kafka_jars import VERSION, working_java
from airflow_kstreams.first_steps.broker.local_broker import (
    HOST,
    BrokerError,
    JavaCommand,
    LocalBroker,
    children,
)
from airflow_kstreams.launch.jvm_options import taking
from dev.servers.quick_java import KAFKA_CLASSES

__all__ = ["HOST", "BrokerError"]  # of the package's broker, for those that start this one

SASL_USER = "alice"
SASL_PASSWORD = "alice-secret"  # noqa: S105 - of the embedded broker's SASL listener, which exists for tests

#: An address that no client finds: the name is reserved for that.
NOWHERE = "broker.invalid:9092"
_KILL_SECONDS = 30.0

#: The listeners of the package's broker, and more.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port},\
SASL_PLAINTEXT://{host}:{sasl_port}{proxied}{astray}
advertised.listeners=PLAINTEXT://{host}:{port},SASL_PLAINTEXT://{host}:{sasl_port}{proxy}{nowhere}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,ASTRAY:PLAINTEXT,\
SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker(LocalBroker):
    """An embedded broker; as a context manager it runs for the duration of the block.

    :param port: of the plain listener; the two ports above it are taken too.
    :param proxy_port: where a proxy may stand; the listener behind it takes the port above.
    :param astray_port: of a listener whose clients are sent to :data:`NOWHERE`.
    :param java_options: further ones for Java.
    :param session_ms: how long its controller takes a dead broker for alive, and lets the next one wait; nine
        seconds by default. Short ones are for brokers that are killed.
    """

    #: How many ports it takes, from ``port`` on: plain, controller, SASL.
    PORTS: ClassVar[int] = 3

    proxy_port: int | None = None
    astray_port: int | None = None
    java_options: tuple[str, ...] = ()
    session_ms: int | None = None

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

    def __enter__(self) -> Self:
        self.start(die_with_parent=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        """End the broker by SIGKILL, as a power cut would, and wait for its end; its folder stays."""
        process = self._process()
        if process is not None:
            process.kill()
            process.wait(timeout=_KILL_SECONDS)
        if (child := children.pop(self.folder, None)) is not None:
            child.wait()

    def java_command(self) -> JavaCommand:
        """Return what its Java is started with: the jars that ``dev/setup`` has fetched, for quick starts."""
        return _java_command(*self.java_options)

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
                astray="" if self.astray_port is None else f",ASTRAY://{HOST}:{self.astray_port}",
                nowhere="" if self.astray_port is None else f",ASTRAY://{NOWHERE}",
            )
            + self._session()
            + self._common_properties()
        )

    def _session(self) -> str:
        if self.session_ms is None:
            return ""
        often = self.session_ms // 6
        return f"broker.session.timeout.ms={self.session_ms}\nbroker.heartbeat.interval.ms={often}\n"

    def _listener(self, name: str, above: int) -> str:
        return "" if self.proxy_port is None else f",{name}://{HOST}:{self.proxy_port + above}"

    def _ports(self) -> list[int]:
        own = [*range(self.port, self.port + self.PORTS)]
        proxied = [] if self.proxy_port is None else [self.proxy_port + 1]
        return [*own, *proxied, *([] if self.astray_port is None else [self.astray_port])]


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
    """Return the folder of the jars of Kafka's broker and tools: the pinned version's, unless the environment
    names another; ``dev/matrix`` leaves older ones behind.

    :raises BrokerError: ``dev/setup`` has not fetched them.
    """
    return _libraries("KSTREAMS_DEV_KAFKA_LIBS", f"libs-{VERSION}")


def kafka_streams_libraries() -> Path:
    """Return the folder of the jars of Java's Kafka Streams, clients and tools.

    :raises BrokerError: ``dev/setup`` has not fetched them.
    """
    return _libraries("KSTREAMS_DEV_STREAMS_LIBS", "streams-*")


def rocksdb_libraries() -> Path:
    """Return the folder of the jar of Kafka Streams' store.

    :raises BrokerError: ``dev/setup --rocksdb`` has not fetched it.
    """
    return _libraries("KSTREAMS_DEV_ROCKSDB_LIBS", "rocksdb-*", setup="dev/setup --rocksdb")


def parallel_consumer_libraries() -> Path:
    """Return the folder of the jars of Confluent's Parallel Consumer and its Kafka client.

    :raises BrokerError: ``dev/setup --parallel-consumer`` has not fetched them.
    """
    return _libraries(
        "KSTREAMS_DEV_PARALLEL_CONSUMER_LIBS", "parallel-consumer-*", setup="dev/setup --parallel-consumer"
    )


def libraries_version(folder: Path) -> str:
    """Return the version that the name of a folder of jars ends with."""
    return folder.name.rpartition("-")[2]


def knows_one_time_limit() -> bool:
    """Tell whether the broker is older than Kafka 3.6, which has two settings for the times of records."""
    numbers = libraries_version(kafka_libraries()).split(".")[:2]
    return tuple(map(int, numbers)) < (3, 6)


def _libraries(variable: str, pattern: str, setup: str = "dev/setup") -> Path:
    named = os.environ.get(variable)
    found = sorted((Path(__file__).parents[2] / ".kafka").glob(pattern))
    folder = Path(named) if named else next(iter(found), None)
    if folder is None or not folder.is_dir():
        raise BrokerError(f"Kafka's jars are not here: run {setup}")
    return folder


def tool_command(java_class: str, arguments: list[str]) -> list[str]:
    """Return the command that runs one of Kafka's own command line tools."""
    with _java_command().running(java_class, *arguments, heap="256m") as command:
        return command


def _java_command(*options: str) -> JavaCommand:
    archive = taking(KAFKA_CLASSES) if KAFKA_CLASSES.exists() else ()
    return JavaCommand(java=working_java(os.environ), jars=kafka_libraries(), options=(*archive, *options))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return port < 65_536
