"""Java's Kafka Streams in a process of its own, ``KafkaStreamsPeer.java``: one request, one answer a line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dev import embedded

_SOURCE = Path(__file__).with_name("KafkaStreamsPeer.java")

#: For a process that lives some seconds.
_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-Dlog4j2.level=OFF")


class PeerError(Exception):
    """Java's part cannot run."""


class KafkaStreamsPeer:
    """Asks the peer, which compiles itself as it starts.

    :raises PeerError: there is no compiler, a jar is missing, or the process ended.
    """

    def __init__(self) -> None:
        libraries = embedded.kafka_libraries()
        if not any(libraries.glob("kafka-streams-test-utils-*.jar")):
            raise PeerError(f"Kafka Streams is not in {libraries}: run dev/setup")
        self._process = subprocess.Popen(
            [str(_java()), *_OPTIONS, "-cp", f"{libraries}/*", str(_SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def run(
        self, topology: str, parameters: Mapping[str, Any], records: Sequence[Sequence[Any]]
    ) -> list[list[Any]]:
        """Return [index of the record, topic, key, value, timestamp, headers] of each result; bytes as hex.

        :param records: (topic, key, value, timestamp_ms) of each.
        """
        answer: list[list[Any]] = self._ask(
            {"topology": topology, "parameters": parameters, "records": records}
        )
        return answer

    def description(self, topology: str, parameters: Mapping[str, Any]) -> str:
        """Return what ``Topology.describe`` says."""
        text: str = self._ask({"description": topology, "parameters": parameters})[0]
        return text

    def serialized(self, requests: Sequence[Sequence[Any]]) -> list[bytes]:
        """Return what Java's serializers write.

        :param requests: (kind, value), of windowed keys also start and end.
        """
        return [bytes.fromhex(data) for data in self._ask({"bytes": requests})]

    def partitions(self, requests: Sequence[tuple[bytes, int]]) -> list[tuple[int, int]]:
        """Return (murmur2 hash, partition) of each (key, number of partitions)."""
        answers = self._ask({"partitions": [(key.hex(), count) for key, count in requests]})
        return [(hashed, partition) for hashed, partition in answers]

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=30)

    def _ask(self, request: Mapping[str, Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the answer that does not come tells
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise PeerError(
                f"Java's Kafka Streams ended with {self._process.wait()}; stderr says why it gave no answer "
                f"to {request}"
            )
        return json.loads(answer)


def _java() -> Path:
    """Return the java of a JDK of 17 or newer, whose launcher compiles a source file."""
    for home in _java_homes():
        release = home / "release"
        if (home / "bin" / "javac").exists() and release.exists():
            version = release.read_text().partition('JAVA_VERSION="')[2].partition(".")[0]
            if version.isdigit() and int(version) >= 17:
                return home / "bin" / "java"
    raise PeerError(
        "the comparison with Kafka Streams needs Java's compiler: install openjdk-17-jdk-headless (Debian, "
        "Ubuntu) or java-17-openjdk-devel (Fedora, RHEL), or set JAVA_HOME to a JDK of 17 or newer"
    )


def _java_homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if compiler := shutil.which("javac"):
        yield Path(compiler).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))
