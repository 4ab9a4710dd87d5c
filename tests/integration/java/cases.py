"""One topology over one input, in both engines, with results in one form."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.streams import serdes
from airflow_kstreams.testing import TopologyTestDriver
from tests.integration.java.peer import KafkaStreamsPeer
from tests.integration.java.topologies import Topologies
from tests.support.programs.comparing import Result

#: (topic, key, value, timestamp_ms).
Input = tuple[str, str | None, str | None, int]

_OUTPUTS = {"branch": ("out-1", "out-2"), "split": ("out-1", "out-2"), "dead_letter": ("dead-letters", "out")}
_OUTPUTS |= {f"{how}_dead_letter": ("dead-letters", "out") for how in ("changed", "written")}
#: As in the peer.
_SETTINGS = {
    "processing.exception.handler": "dead-letter",
    "errors.dead.letter.queue.topic.name": "dead-letters",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A topology and what it reads.

    :param parameters: sizes of windows and the like, milliseconds.
    """

    topology: str
    records: Sequence[Input]
    parameters: dict[str, Any] = field(default_factory=dict)

    def in_java(self, kafka_streams: KafkaStreamsPeer) -> list[Result]:
        """Return what Kafka Streams makes of it."""
        return results_of(kafka_streams.run(self.topology, self.parameters, self.records))

    def in_python(self) -> list[Result]:
        """Return what this engine makes of it."""
        topology = Topologies(parameters=self.parameters).build(self.topology)
        outputs = _OUTPUTS.get(self.topology, ("out",))
        results: list[Result] = []
        with TopologyTestDriver(topology, application_id="peer", settings=_SETTINGS) as driver:
            for number, (source, key, value, time_ms) in enumerate(self.records):
                headers: list[tuple[str, bytes | None]] = [("n", str(number).encode())]
                driver.pipe_input(source, key=key, value=value, timestamp_ms=time_ms, headers=headers)
                for topic in outputs:
                    for record in driver.read_output(
                        topic, key_serde=serdes.bytes(), value_serde=serdes.bytes()
                    ):
                        names = tuple((name, (text or b"").decode()) for name, text in record.headers)
                        results.append(
                            Result(number, topic, record.key, record.value, record.timestamp_ms, names)
                        )
        return results


def results_of(rows: Sequence[Sequence[Any]]) -> list[Result]:
    """Return what the peer answered."""
    return [
        Result(after, topic, _bytes(key), _bytes(value), time_ms, tuple(map(tuple, headers)))
        for after, topic, key, value, time_ms, headers in rows
    ]


def _bytes(data: str | None) -> bytes | None:
    return None if data is None else bytes.fromhex(data)


def without_headers(results: Sequence[Result]) -> list[Result]:
    """Return the same results, of which headers do not matter."""
    return [result._replace(headers=()) for result in results]


def without_passing_deletions(results: Sequence[Result]) -> list[Result]:
    """Return the results without those that delete a key which the same record gives again."""
    given = {result[:3] for result in results if result.value is not None}
    return [result for result in results if result.value is not None or result[:3] not in given]


def written(key: str | tuple[str, int] | tuple[str, int, int] | None) -> bytes | None:
    """Return a key as both engines write it: text, (text, start of its window) or (text, start, end of its
    session).
    """
    if key is None or isinstance(key, str):
        return None if key is None else key.encode()
    text, *bounds = key
    return text.encode() + struct.pack(f">{len(bounds)}q", *reversed(bounds))
