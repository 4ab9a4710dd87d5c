"""Runs a program in this engine, and compares results.

What is compared: each record of each output topic, with the input record it came after, key and value in
bytes, timestamp and headers, in order; and what ``peek`` and ``foreach`` saw. What is not, and why:

- what closers lead to (``functions.py``): the last rounds end in the middle;
- headers where time or a commit brought the result: ``headers`` in ``docs/explanation/kafka-streams.md``,
  and cached emission;
- which of the closers bring the windows of what joins give (``suppress-by-any-record``);
- order, and the record they came after, of results behind a left or outer join and of suppressed sessions:
  see ``drawing.py``; order across keys behind a topic of several partitions, since there each is a task here;
- deletions of keys that readers do not have (``vain-deletion``);
- key and value of dead letters that Kafka Streams has forgotten (``letters-as-written``), and what each
  engine has its own words for;
- all but the last result of each key where a change comes to a join of tables by both sides
  (``tables-of-one-table``), and in an inner join of keys that are deleted that one, too;
- the same where several come to a join by foreign key at once.

Which of these holds for a step is written in ``facts.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from airflow_kstreams.streams import Topology, serdes
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.programs.drawing import GLOBALS, PATTERNS
from tests.support.programs.facts import BY_KEY, IN_ANY_ORDER, Facts, facts_of
from tests.support.programs.functions import CLOSER
from tests.support.programs.operators import build
from tests.support.programs.program import SINKS, UNDECODABLE, Input, Program
from tests.support.programs.refusing import refusing_topics

APPLICATION = "peer"
BYTES = serdes.bytes()
DEAD_LETTERS = "dead-letters"
#: Headers of dead letters that differ: classes, traces and nodes have names of their own language, and only
#: this engine says where a record was first, its time and what its repartition topic is made of.
OF_ITS_OWN = {
    f"__streams.errors.{name}"
    for name in (
        *("exception", "stacktrace", "node", "purpose"),
        *("first.place", "topic.id", "timestamp", "fed.by"),
    )
}
_MATCHED = {topic for topics in PATTERNS.values() for topic in topics}


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


def in_python(program: Program) -> list[Result]:
    """Return what this engine makes of a program, record by record."""
    return Running(program).results


def settings_of(program: Program) -> dict[str, str]:
    """Return what a program's application is set to."""
    if not program.handler:
        return {}
    kinds = ("processing", "deserialization", "production")
    handled = {f"{what}.exception.handler": program.handler for what in kinds}
    return {**handled, "errors.dead.letter.queue.topic.name": DEAD_LETTERS}


def plan_of(program: Program, topology: Topology) -> TopologyPlan:
    """Return the plan of a topology that a program makes, its patterns matched."""
    return topology.matched(program.matched()).plan(APPLICATION)


@contextmanager
def driver_of(program: Program, topology: Topology) -> Iterator[TopologyTestDriver]:
    """Make the test driver of a program.

    :param topology: that the program makes.
    """
    with (
        refusing_topics(),
        TopologyTestDriver(
            topology,
            application_id=APPLICATION,
            settings=settings_of(program),
            partitions=dict.fromkeys(program.matched(), 1),
        ) as driver,
    ):
        yield driver


def data(part: str | int | None) -> bytes | None:
    """Return an input's key or value as it lies in Kafka."""
    if part is None:
        return None
    return serdes.int64().serialize(part) if isinstance(part, int) else serdes.string().serialize(part)


def letters_of(program: Program) -> list[str]:
    """Return the topic of a program's dead letters, if it has one."""
    return [DEAD_LETTERS] if program.handler == "dead-letter" else []


class Running:
    """A program in the test driver, record by record.

    :param restart_after: indices of input records after which the run ends and the next one begins.
    """

    def __init__(self, program: Program, *, restart_after: frozenset[int] = frozenset()) -> None:
        self._topology, self._seen = build(program)
        self._sinks = [*program.sinks(), *letters_of(program)]
        #: What it wrote.
        self.results: list[Result] = []
        with driver_of(program, self._topology) as driver:
            for number, record in enumerate(program.records):
                self._pipe(driver, number, record)
                if number in restart_after:
                    driver.restart()
        #: What its changelogs come to, by topic.
        self.state = {topic: _live(driver, topic) for topic in plan_of(program, self._topology).changelogs}

    def _pipe(self, driver: TopologyTestDriver, number: int, record: Input) -> None:
        source, key, value, timestamp_ms = record
        headers: list[tuple[str, bytes | None]] = [("n", str(number).encode())]
        driver.pipe_bytes(
            source, key=data(key), value=data(value), timestamp_ms=timestamp_ms, headers=headers
        )
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
    joins = topic.endswith(("-left-changelog", "-right-changelog"))
    return key[:-8] if joins else key


def differences(
    program: Program, java: Sequence[Result], python: Sequence[Result]
) -> Iterator[tuple[str, list[Result], list[Result]]]:
    """Return what is compared of both engines' results of a program, of each topic in which it differs."""
    outputs = outputs_of(program)
    theirs, ours = (_compared(results, program, outputs) for results in (java, python))
    for topic, output in outputs.items():
        if topic == DEAD_LETTERS:
            ours[topic] = _without_forgotten(ours[topic], theirs[topic])
        if output.stale:
            theirs[topic], ours[topic] = _without_stale(theirs[topic], ours[topic])
        if theirs[topic] != ours[topic]:
            yield topic, theirs[topic], ours[topic]


def _compared(
    results: Sequence[Result], program: Program, outputs: dict[str, Facts]
) -> dict[str, list[Result]]:
    keys = [key for topic, key, _, _ in program.records if topic not in GLOBALS]
    # Records of global tables come first.
    closing = len(program.records) - len(keys) + (keys.index(CLOSER) if CLOSER in keys else len(keys))
    found: dict[str, list[Result]] = {topic: [] for topic in outputs}
    for result in results:
        if not (result.key or b"").startswith(CLOSER.encode()):
            output = outputs[result.topic]
            row = result if output.headers else result._replace(headers=())
            row = row._replace(after=min(row.after, closing)) if output.at_end else row
            found[result.topic].append(row)
    return {topic: _comparable(rows, outputs[topic]) for topic, rows in found.items()}


def _comparable(rows: list[Result], output: Facts) -> list[Result]:
    if rows and rows[0].topic == DEAD_LETTERS:
        return sorted(map(_letter, rows), key=lambda row: (row.after, row.headers))
    if output.final:
        last = {row.key: row._replace(after=0, headers=()) for row in rows}
        rows = [row for row in last.values() if row.value is not None or output.stale]
        return sorted(rows, key=repr)
    if output.vain:
        rows = without_vain_deletions(rows)
    if output.order == IN_ANY_ORDER:
        return sorted((row._replace(after=0) for row in rows), key=repr)
    if output.order == BY_KEY:
        return sorted(rows, key=lambda row: (row.after, repr(row.key)))
    return rows


def _letter(row: Result) -> Result:
    """Return what is the same of a dead letter: each serde has words of its own, and so have the topics that
    an engine makes, into which records that lead to nothing may come or not; Java's test driver counts the
    offsets of all topics of a pattern together.
    """
    own = {*OF_ITS_OWN}
    if row.value == data(UNDECODABLE):
        own.add("__streams.errors.message")
    topic = dict(row.headers)["__streams.errors.topic"]
    if topic in _MATCHED or topic.startswith(APPLICATION):
        own.add("__streams.errors.offset")
    kept = [
        (name, "made" if name == "__streams.errors.topic" and text.startswith(APPLICATION) else text)
        for name, text in row.headers
        if name not in own
    ]
    return row._replace(headers=tuple(kept))


def _without_forgotten(letters: list[Result], java: list[Result]) -> list[Result]:
    """Return dead letters, without key and value where Kafka Streams has forgotten them, once the record has
    led to one that was written (``letters-as-written``).
    """
    if len(letters) != len(java):
        return letters
    return [
        mine._replace(key=None, value=None) if (their.key, their.value) == (None, None) else mine
        for mine, their in zip(letters, java, strict=True)
    ]


def _without_stale(java: list[Result], python: list[Result]) -> tuple[list[Result], list[Result]]:
    """Return the last results of all keys but those that were deleted in this engine."""
    deleted = {row.key for row in python if row.value is None}
    theirs, ours = ([row for row in rows if row.key not in deleted] for rows in (java, python))
    return [row for row in theirs if row.value is not None], ours


def without_vain_deletions(results: Sequence[Result]) -> list[Result]:
    """Return the results without those that delete a key which readers do not have."""
    present: set[tuple[str, bytes | None]] = set()
    kept = []
    for result in results:
        reader_key = (result.topic, result.key)
        if result.value is not None:
            present.add(reader_key)
        elif reader_key in present:
            present.discard(reader_key)
        else:
            continue
        kept.append(result)
    return kept


def outputs_of(program: Program) -> dict[str, Facts]:
    """Return what is compared of each topic that a program writes, and of what its actions see.

    Follows from the steps, so that a program that was shrunk or kept needs nothing beside it.
    """
    outputs: dict[str, Facts] = {}
    facts = facts_of(program.steps, cached=program.cached)
    for number, (step, known) in enumerate(zip(program.steps, facts, strict=True)):
        if step.operator in SINKS:
            outputs[step.arguments["topic"]] = known
        elif step.arguments.get("call", step.operator) in ("peek", "foreach"):
            outputs[f"seen-{number}"] = dataclasses.replace(known, headers=False)
    return outputs | {topic: Facts() for topic in letters_of(program)}
