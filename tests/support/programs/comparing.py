"""Runs a program in this engine, and compares results.

What is compared: each record of each output topic, with the input record it came after, key and value in
bytes, timestamp and headers, in order; and what ``peek`` and ``foreach`` saw. What is not, and why:

- what closers lead to (``functions.py``): the last rounds end in the middle;
- headers where time or a commit brought the result: ``headers`` in ``docs/kafka-streams.md``, and cached
  emission;
- order, and the record they came after, of results behind a left or outer join and of suppressed sessions:
  see ``drawing.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from airflow_kstreams.streams import serdes
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.programs.functions import CLOSER
from tests.support.programs.operators import build
from tests.support.programs.program import Input, Program

APPLICATION = "peer"
BYTES = serdes.bytes()


class Result(NamedTuple):
    """A record that a program wrote.

    :param after: index of the input record that it came after.
    :param key: as it lies in Kafka; so is the value. Of what an action saw, texts.
    """

    after: int
    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, str], ...] = ()


class Output(NamedTuple):
    """What of a topic's results is compared.

    :param ordered: whether in order, one input record after the other.
    :param headers: whether with headers.
    """

    ordered: bool
    headers: bool


def in_python(program: Program) -> list[Result]:
    """Return what this engine makes of a program, record by record."""
    return Running(program).results


class Running:
    """A program in the test driver, record by record.

    :param restart_after: indices of input records after which the run ends and the next one begins.
    """

    def __init__(self, program: Program, *, restart_after: frozenset[int] = frozenset()) -> None:
        self._topology, self._seen = build(program)
        self._sinks = program.sinks()
        #: What it wrote.
        self.results: list[Result] = []
        with TopologyTestDriver(self._topology, application_id=APPLICATION) as driver:
            for number, record in enumerate(program.records):
                self._pipe(driver, number, record)
                if number in restart_after:
                    driver.restart()
        #: What its changelogs come to, by topic.
        self.state = {topic: _live(driver, topic) for topic in self._topology.plan(APPLICATION).changelogs}

    def _pipe(self, driver: TopologyTestDriver, number: int, record: Input) -> None:
        source, key, value, timestamp_ms = record
        headers: list[tuple[str, bytes | None]] = [("n", str(number).encode())]
        driver.pipe_input(source, key=key, value=value, timestamp_ms=timestamp_ms, headers=headers)
        for topic in self._sinks:
            for written in driver.read_output(topic, key_serde=BYTES, value_serde=BYTES):
                names = tuple((name, (text or b"").decode()) for name, text in written.headers)
                facts = (written.key, written.value, written.timestamp_ms, names)
                self.results.append(Result(number, topic, *facts))
        for step, seen_key, seen_value in self._seen:
            self.results.append(Result(number, f"seen-{step}", seen_key.encode(), seen_value.encode(), 0))
        self._seen.clear()


def _live(driver: TopologyTestDriver, topic: str) -> list[tuple[bytes, bytes]]:
    """Return what a changelog comes to, in the order of its keys."""
    entries = {
        record.key: record.value for record in driver.read_output(topic, key_serde=BYTES, value_serde=BYTES)
    }
    return [
        (without_arrival(topic, key), value) for key, value in sorted(entries.items()) if value is not None
    ]


def without_arrival(topic: str, key: bytes) -> bytes:
    """Return a changelog's key without the number at the end of a join's keys.

    It only puts arrivals in order, and goes on from what a restore finds.
    """
    return key[:-8] if "KSTREAM-JOIN" in topic else key


def compared(results: Sequence[Result], outputs: dict[str, Output]) -> dict[str, list[Any]]:
    """Return what is compared, by topic."""
    found: dict[str, list[Any]] = {topic: [] for topic in outputs}
    for result in results:
        if (result.key or b"").startswith(CLOSER.encode()):
            continue
        output = outputs[result.topic]
        kept = result if output.headers else result._replace(headers=())
        found[result.topic].append(kept if output.ordered else kept._replace(after=0))
    return {
        topic: rows if outputs[topic].ordered else sorted(rows, key=repr) for topic, rows in found.items()
    }


def outputs_of(program: Program) -> dict[str, Output]:
    """Return what is compared of each topic that a program writes, and of what its actions see.

    Follows from the steps, so that a program that was shrunk or kept needs nothing beside it.
    """
    ordered: list[bool] = []
    headers: list[bool] = []
    kinds: list[str] = []
    outputs: dict[str, Output] = {}
    for number, step in enumerate(program.steps):
        parents = [parent for parent, _ in step.of]
        in_order = all(ordered[parent] for parent in parents)
        with_headers = all(headers[parent] for parent in parents)
        sessions = step.operator == "session_window" or any(kinds[parent] == "sessions" for parent in parents)
        kind = "sessions" if sessions and step.operator != "to_stream" else ""
        match step.operator:
            case "stream_left_join" | "stream_outer_join":
                in_order = with_headers = False
            case "suppress":
                in_order, with_headers = in_order and not sessions, False
            case "table" | "count" | "reduce" | "aggregate":
                with_headers = with_headers and not program.cached
            case "table_join" | "table_left_join":
                with_headers = headers[parents[0]]
            case "send_to":
                outputs[step.arguments["topic"]] = Output(in_order, with_headers)
            case "peek" | "foreach":
                outputs[f"seen-{number}"] = Output(in_order, False)
        ordered.append(in_order)
        headers.append(with_headers)
        kinds.append(kind)
    return outputs
