"""An application whose lines change between two runs: each line goes on with its own state, and no other's.

A pair is two versions of an application, drawn, and a run of each on the in-memory Kafka. The oracle of a
line is the line alone: an application of its own that does not change between the runs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.topology.versions import (
    TOPICS,
    Line,
    changed,
    drawn_line,
    renamed,
    tables_of,
    topology,
    with_names_of,
    with_own_name,
)

pytestmark = pytest.mark.promise("lines-keep-their-state")

PARTITIONS = 2
#: What a line gives in one run, by key, in order.
Results = dict[bytes, list[bytes | None]]
#: (topic, partition, key, n, timestamp)
Rows = Sequence[tuple[str, int, str, int, int]]


def drawn_rows(draw: random.Random, begins_ms: int) -> Rows:
    found = []
    for number in range(draw.randrange(6, 16)):
        key, n = draw.choice("abc"), draw.randrange(1, 9)
        partition = "abc".index(key) % PARTITIONS
        found.append((draw.choice(TOPICS), partition, key, n, begins_ms + 7 * number))
    return found


def drawn_slices(draw: random.Random) -> Sequence[Rows]:
    return [drawn_rows(draw, 1_000_000), drawn_rows(draw, 1_000_200)]


def results(versions: Sequence[Sequence[Line]], slices: Sequence[Rows]) -> list[dict[str, Results]]:
    """Run each version on its slice, and return what each line gave in each run.

    :raises TopologyError: a version is refused.
    """
    kafka = InMemoryKafka()
    outputs = {line.out for lines in versions for line in lines}
    for topic in (*TOPICS, *outputs):
        kafka.create_topic(topic, partitions=PARTITIONS)
    found, read = list[dict[str, Results]](), Counter[str]()
    for number, (lines, rows) in enumerate(zip(versions, slices, strict=True)):
        for topic, partition, key, n, time_ms in rows:
            kafka.append(topic, b'{"n": %d}' % n, key.encode(), partition=partition, timestamp_ms=time_ms)
        Application(
            application_id="app",
            topology=topology(lines),
            on=kafka,
            clock=kafka.clock,
            settings={"settle.ms": 0},
        ).run(f"run-{number}")
        given: dict[str, Results] = {}
        for out in outputs:
            records = kafka.records(out)
            given[out] = {}
            for record in records[read[out] :]:
                given[out].setdefault(record.key() or b"", []).append(record.value())
            read[out] = len(records)
        found.append(given)
    return found


def alone(line: Line, before: Sequence[Line], slices: Sequence[Rows]) -> list[Results]:
    """Return what a line gives in two runs in an application of its own, that has only names of the user's.

    :param before: the first version; one without the line has read its topics all the same, if others did.
    """
    if any(each.number == line.number for each in before):
        return [given[line.out] for given in results([[line], [line]], slices)]
    known = {topic for each in before for topic in each.topics}
    unread = [row for row in slices[0] if row[0] not in known]
    tables = sorted(tables_of(line) & {topic for each in before for topic in tables_of(each)})
    if not tables:
        return [{}, *(given[line.out] for given in results([[line]], [[*unread, *slices[1]]]))]
    # A table that others have already is one table, with what it has.
    kept = [Line(line.number + 1 + number, "table", (topic,)) for number, topic in enumerate(tables)]
    of_tables = [row for row in slices[0] if row[0] in tables]
    return [given[line.out] for given in results([kept, [line]], [of_tables, [*unread, *slices[1]]])]


@dataclass
class Pair:
    """A pair that was drawn, and what became of it.

    :param changes: what the second version has that the first has not.
    :param slices: what each of the two runs reads.
    :param refused: why the second version was refused; empty if it was not.
    :param wrong: the lines that gave something else than alone.
    """

    before: list[Line]
    after: list[Line]
    changes: tuple[str, ...]
    slices: Sequence[Rows]
    refused: str = ""
    wrong: tuple[str, ...] = ()


def drawn_version(draw: random.Random) -> list[Line]:
    while True:
        lines = [drawn_line(draw, number) for number in range(draw.randrange(2, 6))]
        try:
            topology(lines)
        except TopologyError:
            continue
        return lines


def named_version(draw: random.Random) -> list[Line]:
    """Draw a version in which most lines have names."""
    lines = drawn_version(draw)
    return [with_own_name(draw, line) if draw.random() < 0.8 else line for line in lines]


def pair(seed: int, *, named: bool = False) -> Pair:
    """Draw a pair, and run it.

    :param named: True for lines that have names, which change.
    """
    draw = random.Random(seed)
    before = named_version(draw) if named else drawn_version(draw)
    after, changes = before, list[str]()
    for _ in range(draw.choice((1, 1, 2))):
        change, after = renamed(draw, after) if named else changed(draw, after)
        changes.append(change)
    return run(Pair(before, after, tuple(changes), drawn_slices(draw)))


def run(found: Pair) -> Pair:
    """Run a pair, and compare what its lines gave with what they give alone."""
    before, after, slices = found.before, found.after, found.slices
    try:
        got = results([before, after], slices)
    except TopologyError as refused:
        found.refused = str(refused)
        return found
    wrong = []
    for line in after:
        was = next((each for each in before if each.number == line.number), line)
        expected = alone(was, before, slices)
        given = [each.get(line.out, {}) for each in got]
        if tables_of(line) and not line.operator.startswith("look"):
            # Tables give what changed once per commit, in an order between them that the lines decide.
            given, expected = _last(given), _last(expected)
        if given != expected:
            wrong.append(line.out)
    found.wrong = tuple(wrong)
    return found


def under_the_names_of_before(found: Pair) -> list[Line]:
    """Return the second version in which each line has the name that it had in the first."""
    was = {line.number: line for line in found.before}
    return [with_names_of(line, was.get(line.number, line)) for line in found.after]


def _last(runs: Sequence[Results]) -> list[Results]:
    return [{key: values[-1:] for key, values in run.items()} for run in runs]


def judged(seeds: Iterable[int]) -> Counter[str]:
    """Draw pairs, and count what became of them; none may be wrong."""
    counted: Counter[str] = Counter()
    for seed in seeds:
        found = pair(seed)
        assert not found.wrong, f"seed {seed}: {found}"
        counted["refused" if found.refused else "right"] += 1
    return counted


def judged_by_names(seeds: Iterable[int]) -> Counter[str]:
    """Draw pairs of versions that have names, and count what became of them: none may be wrong, and what is
    refused because of a name goes on under the name of before.
    """
    counted: Counter[str] = Counter()
    for seed in seeds:
        found = pair(seed, named=True)
        assert not found.wrong, f"seed {seed}: {found}"
        if not found.refused:
            counted["right"] += 1
            continue
        back = run(replace(found, after=under_the_names_of_before(found), refused=""))
        assert not back.wrong, f"seed {seed}, under the names of before: {back}"
        counted["refused" if back.refused else "right under the names of before"] += 1
    return counted


@pytest.mark.parametrize("first", [0, 20])
def test_lines_go_on_with_their_own_state_when_a_version_changes_between_runs(first: int) -> None:
    judged(range(first, first + 20))


def test_lines_go_on_with_their_own_state_when_names_change_between_runs() -> None:
    assert judged_by_names(range(20))["right under the names of before"] > 3


@pytest.mark.prove
def test_of_a_thousand_pairs_that_have_names_none_is_wrong_and_few_are_refused_for_other_reasons() -> None:
    counted = judged_by_names(range(1_000))
    assert counted["refused"] <= 50
    assert counted["right under the names of before"] >= 200


@pytest.mark.prove
def test_of_a_thousand_pairs_none_is_wrong_and_few_are_refused() -> None:
    assert judged(range(1_000))["refused"] <= 50


@pytest.mark.prove
def test_none_of_fresh_pairs_is_wrong() -> None:
    first = random.SystemRandom().randrange(1_000, 1_000_000_000)
    judged(range(first, first + 500))
    judged_by_names(range(first, first + 500))
