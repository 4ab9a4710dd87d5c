"""What a run says became of its records is what a person counts by hand: over filters, branches, joins with a
table, null keys, undecodable and failing records, late ones, crashes between commits, and several slices.

The oracle goes through the input with a few lines of its own, and looks at how many records lie in each
topic.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.figures.record_counts import Counters, LeftOut, RecordCounts
from airflow_kstreams.streams.runtime.stream_task import StreamTask
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.crash import Crash
from tests.support.examples import examples
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once

pytestmark = pytest.mark.promise("counts-are-exact")

SIZE_MS = 10
#: A record with this number makes the user's function fail.
FAILS = 13
IN_TABLE = "ab"
OUTPUTS = ("kept", "even", "fives", "joined", "windows")
REPARTITION = "app-w-repartition"


class Row(NamedTuple):
    """A record of the input.

    :param number: in its value; None for a value that is no JSON, -1 for a null value.
    :param key: of the record, and its group; None for none.
    """

    number: int | None
    key: str | None
    time_ms: int


ROWS: st.SearchStrategy[Sequence[Row]] = st.lists(
    st.builds(Row, st.none() | st.integers(-1, 20), st.none() | st.sampled_from("abc"), st.integers(2, 60)),
    min_size=1,
    max_size=20,
)
HANDLERS = st.sampled_from(["skip", "dead-letter"])
#: What a person says of a record that a handler took.
TAKEN = {"skip": "skipped", "dead-letter": "dead-lettered"}
#: Which call of which name the process dies at, if at all.
CRASHES = st.none() | st.tuples(st.sampled_from(["writer.commit", "reader.poll"]), st.integers(1, 6))


def _number(key: Any, value: Any) -> int:
    number: int = value["n"]
    return number


def _failing(value: Any) -> Any:
    if value["n"] == FAILS:
        raise ValueError("no number of mine")
    return value


def _topology(grace_ms: int) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    names = builder.table("names", store="names")
    mapped = builder.stream("in").filter(lambda k, v: _number(k, v) % 3 != 0).map_values(_failing)
    mapped.send_to("kept")
    even, fives = mapped.branch(lambda k, v: _number(k, v) % 2 == 0, lambda k, v: _number(k, v) % 5 == 0)
    even.send_to("even")
    fives.flat_map_values(lambda value: [value] * (value["n"] % 4)).send_to("fives")
    mapped.join(names, lambda left, right: left).send_to("joined")
    windows = mapped.group_by(lambda k, v: v["k"]).windowed_by(
        TumblingWindow(size_ms=SIZE_MS, grace_ms=grace_ms)
    )
    windows.count(store="w").to_stream().map(lambda key, count: (key.key, count)).send_to("windows")
    return builder.build()


@dataclass
class Expected:
    """What a person counts in one run."""

    read: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    #: Rule -> how many, once for each node.
    left_out: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class Oracle:
    """Counts by hand; stream time goes on from run to run."""

    grace_ms: int
    undecodable: str
    failing: str
    newest_ms: int = -1

    def count(self, rows: Sequence[Row]) -> Expected:
        expected = Expected(read=Counter({"in": len(rows)}))
        left: Counter[tuple[str, str]] = Counter()
        for row in rows:
            self._one(row, expected.written, left)
        expected.left_out = sorted((rule, count) for (_, rule), count in left.items())
        expected.read[REPARTITION] = expected.written[REPARTITION]
        return expected

    def _one(self, row: Row, written: Counter[str], left: Counter[tuple[str, str]]) -> None:
        if row.number is None:
            left["source", self.undecodable] += 1
            return
        if row.number == -1:
            left["filter", self.failing] += 1
            return
        if row.number % 3 == 0:
            left["filter", "filtered"] += 1
            return
        if row.number == FAILS:
            left["map", self.failing] += 1
            return
        written["kept"] += 1
        if row.number % 2 == 0:
            written["even"] += 1
        elif row.number % 5 == 0:
            written["fives"] += row.number % 4
        else:
            left["branch", "filtered"] += 1
        if row.key is None:
            left["join", "null"] += 1
            left["grouping", "null"] += 1
            return
        if row.key in IN_TABLE:
            written["joined"] += 1
        else:
            left["join", "unmatched"] += 1
        written[REPARTITION] += 1
        self.newest_ms = max(self.newest_ms, row.time_ms)
        if row.time_ms // SIZE_MS * SIZE_MS + SIZE_MS + self.grace_ms <= self.newest_ms:
            left["window", "late"] += 1


@dataclass
class Scene:
    """An application on topics in memory, and the oracle beside it."""

    grace_ms: int = 0
    undecodable: str = "skip"
    failing: str = "skip"
    every: int = 3
    kafka: InMemoryKafka = field(default_factory=lambda: InMemoryKafka(clock=ManualClock(now_ms=1_000)))

    def __post_init__(self) -> None:
        for topic in ("in", "names", *OUTPUTS):
            self.kafka.create_topic(topic)
        for name in IN_TABLE:
            self.kafka.append("names", b'"x"', name.encode(), timestamp_ms=1)
        self.oracle = Oracle(self.grace_ms, TAKEN[self.undecodable], TAKEN[self.failing])
        self.application = Application(
            application_id="app",
            topology=_topology(self.grace_ms),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={
                "autostop.at": "eol",
                "buffered.records.per.partition": 1,
                "commit.every.records": self.every,
                "deserialization.exception.handler": self.undecodable,
                "processing.exception.handler": self.failing,
            },
        )
        self.runs = 0

    def run(self, rows: Sequence[Row], crash: tuple[str, int] | None = None) -> None:
        """Process records in a run, and compare what it says."""
        for row in rows:
            value = None if row.number == -1 else json.dumps({"n": row.number, "k": row.key}).encode()
            self.kafka.append(
                "in",
                b"{" if row.number is None else value,
                None if row.key is None else row.key.encode(),
                timestamp_ms=row.time_ms,
            )
        before = self._there()
        self.runs += 1
        summary = self._processed(f"run-{self.runs}", crash)
        expected = self.oracle.count(rows)
        expected.read["names"] = len(IN_TABLE) if self.runs == 1 else 0
        written = self._there() - before
        expected.written["windows"] = written["windows"]
        self._compare(summary, expected, written)

    def _processed(self, run_id: str, crash: tuple[str, int] | None) -> RunSummary:
        slice_ = self.application.begin(run_id)
        if crash is not None:
            self.application.interceptor = Once(*crash, _die)
            with suppress(Crash):
                self.application.tasks(slice_)
            self.application.interceptor = None
        self.application.tasks(slice_)
        return self.application.finish(run_id)

    def _there(self) -> Counter[str]:
        letters = ["app-dead-letter"] if "app-dead-letter" in self.kafka.topics() else []
        return Counter({topic: len(self.kafka.values(topic)) for topic in (*OUTPUTS, *letters)})

    def _compare(self, summary: RunSummary, expected: Expected, there: Counter[str]) -> None:
        counts = summary.counts
        assert counts is not None
        assert {topic: count for topic, count in counts.read.items() if count} == +expected.read
        assert {topic: count for topic, count in counts.output.items() if count} == +expected.written
        assert sorted((entry.rule, entry.records) for entry in counts.left_out) == expected.left_out
        assert {topic: counts.output.get(topic, 0) for topic in OUTPUTS} == {
            topic: there[topic] for topic in OUTPUTS
        }
        assert counts.by("dead-lettered") == there["app-dead-letter"]
        assert summary.records_in == expected.read["in"] + expected.read["names"]
        assert summary.records_out == sum(there[topic] for topic in OUTPUTS)
        assert summary.warnings == (), "the audit finds nothing"


def _die() -> None:
    raise Crash


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(ROWS, CRASHES), min_size=1, max_size=3),
    st.sampled_from([0, 5, 30]),
    HANDLERS,
    HANDLERS,
    st.integers(1, 7),
)
def test_counts_are_those_of_a_person_when_runs_crash_anywhere(
    slices: Sequence[tuple[Sequence[Row], tuple[str, int] | None]],
    grace_ms: int,
    undecodable: str,
    failing: str,
    every: int,
) -> None:
    scene = Scene(grace_ms=grace_ms, undecodable=undecodable, failing=failing, every=every)
    for rows, crash in slices:
        scene.run(rows, crash)


#: Records of every fate, in an order in which the window of the last has closed.
ALL_FATES = [
    *(Row(number, key, 40) for number in range(21) for key in ("a", "c")),
    Row(None, "a", 41),
    Row(-1, "a", 42),
    Row(8, None, 43),
    Row(5, None, 43),
    Row(7, "a", 3),
]
#: Every count of a run over them, by what holds it.
READ = ("in", "names", REPARTITION)
WRITTEN = (*OUTPUTS, REPARTITION)
RULES = ("filtered", "unmatched", "null", "late", "skipped", "dead-lettered")


def _run_all_fates() -> tuple[Scene, Callable[[], None]]:
    scene = Scene(undecodable="dead-letter")
    return scene, lambda: scene.run(ALL_FATES, ("writer.commit", 3))


def test_nothing_is_wrong_when_no_count_is_lost() -> None:
    _, run = _run_all_fates()
    run()


@pytest.mark.parametrize("lost", [("read", t) for t in READ] + [("written", t) for t in WRITTEN])
def test_lost_count_of_a_topic_is_found_when_it_is_planted(
    monkeypatch: pytest.MonkeyPatch, lost: tuple[str, str]
) -> None:
    where, topic = lost
    _lose(monkeypatch, lambda counts: _less(counts, where, topic))
    scene, run = _run_all_fates()
    with pytest.raises(AssertionError):
        run()
    assert _audited(scene), "the audit finds it, too, without knowing the input"


@pytest.mark.parametrize("rule", RULES)
def test_lost_count_of_a_rule_is_found_when_it_is_planted(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    _lose(monkeypatch, lambda counts: _without(counts, rule))
    scene, run = _run_all_fates()
    with pytest.raises(AssertionError):
        run()
    assert _audited(scene), "the audit finds it, too, without knowing the input"


@pytest.mark.parametrize("rule", RULES)
def test_rule_that_never_counts_is_found_when_it_is_planted(
    monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """No total knows of it either."""
    counting = Counters.left_out
    monkeypatch.setattr(
        Counters,
        "left_out",
        lambda self, node, by: [0] if by == rule else counting(self, node, by),
    )
    scene, run = _run_all_fates()
    with pytest.raises(AssertionError):
        run()
    # Below a fold nothing says how many records must come out of it.
    assert _audited(scene) is (rule != "late")


def test_topic_that_is_never_counted_is_found_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No total knows of it either."""
    counting = Counters.written
    monkeypatch.setattr(
        Counters, "written", lambda self, topic: [0] if topic == "joined" else counting(self, topic)
    )
    scene, run = _run_all_fates()
    with pytest.raises(AssertionError):
        run()
    assert _audited(scene)


def test_counts_forgotten_at_a_crash_are_found_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OffsetMetadata, "counts_so_far", lambda self, plan: RecordCounts())
    scene, run = _run_all_fates()
    with pytest.raises(AssertionError):
        run()
    assert _audited(scene)


def _audited(scene: Scene) -> bool:
    """Say whether the ledger's entry of the run has a warning of the audit."""
    summary = scene.application.finish(f"run-{scene.runs}")
    return any("do not add up" in warning for warning in summary.warnings)


def _lose(monkeypatch: pytest.MonkeyPatch, lose: Callable[[RecordCounts], RecordCounts]) -> None:
    counted = StreamTask._counts

    def losing(self: StreamTask) -> RecordCounts | None:
        counts = counted(self)
        return None if counts is None else lose(counts)

    monkeypatch.setattr(StreamTask, "_counts", losing)


def _less(counts: RecordCounts, where: str, topic: str) -> RecordCounts:
    held: Mapping[str, int] = getattr(counts, where)
    lost = {name: count - 1 if name == topic and count else count for name, count in held.items()}
    changed: dict[str, Any] = {where: lost}
    return _changed(counts, changed)


def _without(counts: RecordCounts, rule: str) -> RecordCounts:
    left_out = list(counts.left_out)
    for at, entry in enumerate(left_out):
        if entry.rule == rule:
            left_out[at] = LeftOut(entry.node, entry.rule, entry.records - 1)
            break
    return _changed(counts, {"left_out": tuple(left_out)})


def _changed(counts: RecordCounts, changes: Mapping[str, Any]) -> RecordCounts:
    kept = {name: getattr(counts, name) for name in ("read", "outside", "written", "sent", "left_out")}
    return RecordCounts(**{**kept, **changes})
