"""Java's Kafka Streams and Java's clients in processes of their own, ``KafkaStreamsPeer.java`` and
``KafkaClients.java``: one request, one answer a line.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dev.servers import embedded
from tests.support.programs.program import Program

_FOLDER = Path(__file__).parent

#: For a process that lives some seconds.
_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-Dlog4j2.level=OFF")


class PeerError(Exception):
    """Java's part cannot run."""


class JavaProcess:
    """Asks a peer, which compiles itself as it starts.

    :param source: name of its file.
    :param classes: folder of more classes.
    :raises PeerError: there is no compiler, a jar is missing, or the process ended.
    """

    def __init__(self, source: str, *, classes: Path | None = None) -> None:
        # Kafka Streams keeps the stores of an application in the folder for temporary files, by its name.
        self._folder = tempfile.TemporaryDirectory(prefix="kstreams-peer-")
        path = os.pathsep.join((f"{embedded.kafka_streams_libraries()}/*", *_rocksdb()))
        self._source = source
        self._process = subprocess.Popen(
            [
                str(java()),
                *_OPTIONS,
                f"-Djava.io.tmpdir={self._folder.name}",
                "-cp",
                path if classes is None else f"{classes}{os.pathsep}{path}",
                str(_FOLDER / source),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def close(self) -> None:
        """End the process."""
        with self._folder, contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=30)

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Send a request and wait for its answer.

        :raises PeerError: the process ended instead, or the answer is an error.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the answer that does not come tells
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise PeerError(
                f"{self._source} ended with {self._process.wait()}; stderr says why it gave no answer to "
                f"{str(request)[:1000]}"
            )
        told = json.loads(answer)
        if isinstance(told, dict) and "error" in told:
            raise PeerError(f"{self._source} could not answer {str(request)[:1000]}: {told['error']}")
        return told


def _rocksdb() -> list[str]:
    """Return the jar that Kafka Streams' versioned stores need; Spark brings one."""
    package = importlib.util.find_spec("pyspark")
    folders = [] if package is None else package.submodule_search_locations or []
    return [str(jar) for folder in folders for jar in Path(folder).glob("jars/rocksdbjni-*.jar")]


class KafkaStreamsPeer(JavaProcess):
    """Kafka Streams, without a broker."""

    def __init__(self) -> None:
        super().__init__("KafkaStreamsPeer.java")

    def run(
        self, topology: str, parameters: Mapping[str, Any], records: Sequence[Sequence[Any]]
    ) -> list[list[Any]]:
        """Return [index of the record, topic, key, value, timestamp, headers] of each result; bytes as hex.

        :param records: (topic, key, value, timestamp_ms) of each.
        """
        answer: list[list[Any]] = self.ask(
            {"topology": topology, "parameters": parameters, "records": records}
        )
        return answer

    def run_program(self, program: Program) -> list[list[Any]]:
        """Return the same of a program, caches included."""
        answer: list[list[Any]] = self.ask(msgspec.to_builtins(program))
        return answer

    def description(self, topology: str, parameters: Mapping[str, Any]) -> str:
        """Return what ``Topology.describe`` says."""
        text: str = self.ask({"description": topology, "parameters": parameters})[0]
        return text

    def serialized(self, requests: Sequence[Sequence[Any]]) -> list[bytes]:
        """Return what Java's serializers write.

        :param requests: (kind, value), of windowed keys also start and end.
        """
        return [bytes.fromhex(data) for data in self.ask({"bytes": requests})]

    def partitions(self, requests: Sequence[tuple[bytes, int]]) -> list[tuple[int, int]]:
        """Return (murmur2 hash, partition) of each (key, number of partitions)."""
        answers = self.ask({"partitions": [(key.hex(), count) for key, count in requests]})
        return [(hashed, partition) for hashed, partition in answers]

    def partitions_by(
        self,
        partitioner: str,
        classes: Path,
        topics: Sequence[tuple[Mapping[str, str], Sequence[int], Sequence[bytes | None]]],
    ) -> list[list[int]]:
        """Return the partitions that a partitioner gives the keys of the topic ``flights``, at each count.

        :param classes: the folder that its class lies in.
        :param topics: (settings, partition counts one after the other, keys) of each partitioner to make.
        """
        rows = [
            {
                "settings": settings,
                "counts": [*counts],
                "keys": [None if key is None else key.hex() for key in keys],
            }
            for settings, counts, keys in topics
        ]
        answer: list[list[int]] = self.ask(
            {"partitioner": partitioner, "classes": str(classes), "topics": rows}
        )
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRecord:
    """A record as Java writes or reads it; keys and values are texts, bytes as hex.

    :param kinds: of key and value: string, int32, int64, double, bytes, json.
    :param place: partition and offset, when it was read.
    """

    topic: str
    key: str | None
    value: str | None
    kinds: tuple[str, str] = ("bytes", "bytes")
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    place: tuple[int, int] = (-1, -1)


class KafkaClients(JavaProcess):
    """Java's producer, consumer and tools.

    :param bootstrap: of the broker that they talk to.
    :param classes: folder of more classes.
    """

    def __init__(self, bootstrap: str, *, classes: Path | None = None) -> None:
        super().__init__("KafkaClients.java", classes=classes)
        self._bootstrap = bootstrap

    def produce(
        self, records: Sequence[JavaRecord], *, ending: str = "plain", **settings: str
    ) -> list[tuple[int, int]]:
        """Write records with a producer of their own; return the partition and offset of each.

        :param ending: plain, commit or abort.
        :param settings: of the producer; underscores stand for dots.
        """
        rows = [
            [
                record.topic,
                record.kinds[0],
                record.key,
                record.kinds[1],
                record.value,
                record.timestamp_ms,
                [(name, data.hex()) for name, data in record.headers],
            ]
            for record in records
        ]
        answer = self.ask({"produce": rows, "ending": ending, "settings": self._settings(settings)})
        return [(partition, offset) for partition, offset in answer]

    def consume(self, topic: str, kinds: tuple[str, str]) -> list[JavaRecord]:
        """Read all committed records of a topic."""
        key, value = kinds
        settings = self._settings({"isolation_level": "read_committed"})
        rows = self.ask({"consume": topic, "key": key, "value": value, "settings": settings})
        return [
            JavaRecord(
                topic=topic,
                key=key,
                value=value,
                kinds=kinds,
                timestamp_ms=timestamp_ms,
                headers=tuple((name, bytes.fromhex(data)) for name, data in headers),
                place=(partition, offset),
            )
            for partition, offset, key, value, timestamp_ms, headers in rows
        ]

    def tool(self, java_class: str, *arguments: str) -> str:
        """Run one of Kafka's command line tools and return what it prints.

        :raises PeerError: it failed.
        """
        told = ("--bootstrap-server", self._bootstrap, *arguments)
        code, printed = self.ask({"tool": java_class, "arguments": told})
        if code:
            raise PeerError(f"{java_class} {' '.join(told)} failed with {code}: {printed}")
        return str(printed)

    def _settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        named = {name.replace("_", "."): text for name, text in settings.items()}
        return {"bootstrap.servers": self._bootstrap, **named}


def compiled(source: Path, folder: Path) -> None:
    """Compile a file into a folder.

    :raises PeerError: it does not compile, or there is no compiler.
    """
    done = subprocess.run(
        [
            str(java().with_name("javac")),
            "-Xlint:all",
            "-Werror",
            *("-cp", f"{embedded.kafka_streams_libraries()}/*", "-d", str(folder), str(source)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise PeerError(f"{source} does not compile: {done.stdout}{done.stderr}")


def java() -> Path:
    """Return the java of a JDK of 17 or newer, whose launcher compiles a source file."""
    for home in _java_homes():
        release = home / "release"
        if (home / "bin" / "javac").exists() and release.exists():
            version = release.read_text().partition('JAVA_VERSION="')[2].partition(".")[0]
            if version.isdigit() and int(version) >= 17:
                return home / "bin" / "java"
    raise PeerError(
        "the comparison with Java needs Java's compiler: install openjdk-17-jdk-headless (Debian, "
        "Ubuntu) or java-17-openjdk-devel (Fedora, RHEL), or set JAVA_HOME to a JDK of 17 or newer"
    )


def _java_homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if compiler := shutil.which("javac"):
        yield Path(compiler).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))
