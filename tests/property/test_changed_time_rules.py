"""Windows and joins whose time rules change from run to run.

Of grace: what was given as final is given once, and each record is in one window or counted as late; each
pair is given once or has a member that was counted as late. Of when windows are given, of their retention and
of ``at_run_end``: readers end with what one version would have given them, or the change is refused, and the
former version goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.run.run_finish import finished_run
from airflow_kstreams.streams import (
    KStreamBuilder,
    SessionStoreSpec,
    SessionWindow,
    SlidingWindow,
    Topology,
    TumblingWindow,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.windows import FoldWindow, RunEnd
from airflow_kstreams.testing import InMemoryKafka
from tests.support.crash import Crash
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import CrashingAt

pytestmark = pytest.mark.promise("closed-windows-stay-closed")

#: Beyond what all drawn times and grace can keep open.
_AFTER_ALL_MS = 100_000


#: Windows by their grace.
KINDS: dict[str, Callable[[int], FoldWindow]] = {
    "tumbling": lambda grace_ms: TumblingWindow(size_ms=10, grace_ms=grace_ms),
    "session": lambda grace_ms: SessionWindow(gap_ms=3, grace_ms=grace_ms),
    "sliding": lambda grace_ms: SlidingWindow(size_ms=4, grace_ms=grace_ms),
}


def topology(window: FoldWindow) -> Topology:
    """``in`` -> counted by key and window, given when it closes -> ``out``."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    counts = builder.stream("in").group_by_key().windowed_by(window).count(store="counts").suppress()
    named = counts.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start_ms}-{windowed.end_ms}")
    named.send_to("out", value_serde=serdes.json())
    return builder.build()


def _finished(app: Application, run_id: str) -> RunSummary:
    """Run to the end, once more if the process dies."""
    try:
        return app.run(run_id)
    except Crash:
        app.interceptor = None
    with closing(app.coordinator()) as coordinator:
        finished = finished_run(coordinator.session.read_ledger(wait_ms=0), run_id)
    return finished or app.run(run_id)


#: Of each run: the grace, the records as key and time, and where its process dies first: at which commit,
#: before the broker has it or after.
_RUNS = st.lists(
    st.tuples(
        st.sampled_from([0, 5, 20, 60]),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 80)), max_size=6),
        st.tuples(st.integers(0, 8), st.booleans()) | st.none(),
    ),
    min_size=2,
    max_size=5,
)
_Run = tuple[int, Sequence[tuple[str, int]], tuple[int, bool] | None]


def _late_in_all_runs(
    kafka: InMemoryKafka,
    runs: Sequence[_Run],
    built: Callable[[int], Topology],
    topic_of: Callable[[str], tuple[str, str]],
) -> int:
    """Run once per grace and once more behind all windows, and return how many records were late.

    :param topic_of: gives the topic that a record goes to and its key there.
    """
    late = 0
    last: _Run = (runs[-1][0], [("z", _AFTER_ALL_MS)], None)
    for number, (grace_ms, records, death) in enumerate([*runs, last]):
        for place, (key, time_ms) in enumerate(records):
            topic, written = topic_of(key)
            kafka.append(topic, f"{number}.{place}".encode(), written.encode(), timestamp_ms=time_ms)
        app = Application(
            application_id="app",
            topology=built(grace_ms),
            on=kafka,
            clock=kafka.clock,
            settings={"commit.every.records": 1},
        )
        if death is not None:
            app.interceptor = CrashingAt(death[0], after=death[1], name="writer.commit")
        late += sum(task.records_dropped for task in _finished(app, f"run-{number}").tasks)
    return late


#: What came first is closed by the record at 50, and late from then on, though two runs give more grace.
_MORE_GRACE: list[_Run] = [
    (0, [("b", 1), ("a", 1), ("a", 50)], None),
    (60, [("a", 2)], (1, False)),
    (80, [("a", 3)], None),
]


@pytest.mark.parametrize("kind", KINDS)
@example(runs=_MORE_GRACE)
@given(runs=_RUNS)
def test_each_window_is_final_once_whatever_grace_the_runs_give(kind: str, runs: Sequence[_Run]) -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    late = _late_in_all_runs(
        kafka, runs, lambda grace_ms: topology(KINDS[kind](grace_ms)), lambda key: ("in", key)
    )
    finals = [((record.key() or b"").decode(), int(record.value() or b"")) for record in kafka.records("out")]
    windows = [name for name, _ in finals]
    assert len(windows) == len(set(windows)), finals
    if kind != "sliding":  # there a record is in several windows
        assert sum(count for _, count in finals) + late == sum(len(records) for _, records, _ in runs), finals


def joined(grace_ms: int) -> Topology:
    """``in`` joined with ``other``, each with None where it has no partner -> ``out``."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    left = builder.stream("in").with_window(SlidingWindow(size_ms=4, grace_ms=grace_ms))
    right = builder.stream("other").with_window(SlidingWindow(size_ms=6, grace_ms=5))
    pairs = left.outer_join(right, lambda ours, theirs: f"{ours}+{theirs}")
    pairs.send_to("out")
    return builder.build()


@example(runs=[(0, [("b", 1), ("a", 50)], None), (60, [("a", 2)], (1, False)), (80, [("a", 3)], None)])
@given(runs=_RUNS)
def test_each_pair_is_given_once_whatever_grace_the_runs_give(runs: Sequence[_Run]) -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "other", "out"):
        kafka.create_topic(topic)
    late = _late_in_all_runs(kafka, runs, joined, lambda key: ("other" if key == "b" else "in", "k"))
    given_results = [(record.value() or b"").decode() for record in kafka.records("out")]
    assert len(given_results) == len(set(given_results)), given_results
    times: dict[str, dict[str, int]] = {"a": {}, "b": {}}
    for number, (_, records, _) in enumerate(runs):
        for place, (key, time_ms) in enumerate(records):
            times[key][f"{number}.{place}"] = time_ms
    matching = {
        (left, right)
        for left, left_ms in times["a"].items()
        for right, right_ms in times["b"].items()
        if -4 <= left_ms - right_ms <= 6
    }
    pairs = {tuple(result.split("+")) for result in given_results if "None" not in result}
    assert pairs <= matching
    alone = {part for result in given_results if "None" in result for part in result.split("+")}
    assert not alone & {part for pair in pairs for part in pair}, given_results
    missing = matching - pairs
    members = sorted({part for pair in missing for part in pair})
    explained = any(
        all(set(pair) & set(dropped) for pair in missing)
        for count in range(late + 1)
        for dropped in combinations(members, count)
    )
    assert explained, (missing, late)


# == when windows are given, and how long they are kept


class Version(NamedTuple):
    """What may change between two versions of an application.

    :param given: as windows change, when they close (``hold``), or also at the ends of runs (``flush``).
    :param longer: whether closed windows are kept for longer, where nothing waits for them.
    :param deletes: whether a record may delete its window.
    """

    given: str
    longer: bool = False
    deletes: bool = False


def _joined_values(key: str, value: str, so_far: str) -> str:
    return f"{so_far}{value}"


def _deleting(key: str, value: str, so_far: str) -> str | None:
    return None if value.endswith("0") else f"{so_far}{value}"


def _merged(key: str, left: str, right: str) -> str:
    return f"{left}{right}"


def collected(kind: str, version: Version) -> Topology:
    """``in`` -> values by key and window -> ``out``; each window takes records until all runs are over."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    at_run_end = cast("RunEnd", version.given if version.given in ("hold", "flush") else "hold")
    window = cast("Any", replace(KINDS[kind](1_000), at_run_end=at_run_end))
    store: Any = "values"
    if version.longer and version.given == "change":
        spec: Any = SessionStoreSpec if kind == "session" else WindowStoreSpec
        text = serdes.string()
        store = spec(name=store, key_serde=text, value_serde=text, retention_ms=5_000)
    adder: Any = _deleting if version.deletes else _joined_values
    merger = (_merged,) if kind == "session" else ()
    values = (
        builder.stream("in").group_by_key().windowed_by(window).aggregate(str, adder, *merger, store=store)
    )
    if version.given != "change":
        values = values.suppress()
    named = values.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start_ms}-{windowed.end_ms}")
    named.send_to("out")
    return builder.build()


#: Of each run: its version, the records as key and time, and where its process dies first.
_VERSIONED = st.lists(
    st.tuples(
        st.builds(Version, given=st.sampled_from(["change", "hold", "flush"]), longer=st.booleans()),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 40)), max_size=4),
        st.tuples(st.integers(0, 8), st.booleans()) | st.none(),
    ),
    min_size=2,
    max_size=4,
)
_VersionedRun = tuple[Version, Sequence[tuple[str, int]], tuple[int, bool] | None]


class Rig:
    """An application that is deployed and run, on a Kafka of its own."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.kafka = InMemoryKafka()
        for topic in ("in", "out"):
            self.kafka.create_topic(topic)
        self._appended = 0

    def append(self, records: Sequence[tuple[str, int]]) -> None:
        for key, time_ms in records:
            self.kafka.append("in", f"{self._appended},".encode(), key.encode(), timestamp_ms=time_ms)
            self._appended += 1

    def run(self, version: Version, run_id: str, death: tuple[int, bool] | None = None) -> None:
        app = Application(
            application_id="app",
            topology=collected(self.kind, version),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"commit.every.records": 1},
        )
        if death is not None:
            app.interceptor = CrashingAt(death[0], after=death[1], name="writer.commit")
        _finished(app, run_id)

    def readers(self) -> dict[str, str]:
        """Return what readers of the results know in the end, but of the record that closes all windows."""
        known: dict[str, str] = {}
        for record in self.kafka.records("out"):
            name, value = (record.key() or b"").decode(), record.value()
            known.pop(name, None)
            if value is not None and not name.startswith("z"):
                known[name] = value.decode()
        return known


def _by_one_version(kind: str, records: Sequence[tuple[str, int]], *, deletes: bool) -> dict[str, str]:
    rig = Rig(kind)
    rig.append([*records, ("z", _AFTER_ALL_MS)])
    rig.run(Version("change", deletes=deletes), "run")
    return rig.readers()


@pytest.mark.promise("given-windows-stay-known")
@pytest.mark.parametrize("kind", KINDS)
@example(
    runs=[(Version("hold"), [("a", 1)], None), (Version("change"), [("b", 2)], None)],
    deletes=False,
)
@example(
    runs=[(Version("change"), [("a", 5)], None), (Version("hold"), [("a", 4)], None)],
    deletes=True,
)
@given(runs=_VERSIONED, deletes=st.booleans())
def test_readers_end_with_what_one_version_gives_or_the_change_is_refused(
    kind: str, runs: Sequence[_VersionedRun], deletes: bool
) -> None:
    rig = Rig(kind)
    now = runs[0][0]._replace(deletes=deletes)
    for number, (version, records, death) in enumerate(runs):
        rig.append(records)
        try:
            rig.run(version._replace(deletes=deletes), f"run-{number}", death)
            now = version._replace(deletes=deletes)
        except TopologyError:
            event("refused")
            rig.run(now, f"run-{number}")
    rig.append([("z", _AFTER_ALL_MS)])
    rig.run(now, "last")
    wanted = _by_one_version(kind, [row for _, records, _ in runs for row in records], deletes=deletes)
    assert rig.readers() == wanted


@pytest.mark.promise("given-windows-stay-known")
@pytest.mark.parametrize(
    ("kind", "before", "after", "refused"),
    [
        ("tumbling", "hold", "flush", False),
        ("tumbling", "hold", "change", True),
        ("tumbling", "flush", "change", True),
        ("tumbling", "flush", "hold", True),
        ("tumbling", "change", "hold", True),
        ("session", "hold", "flush", False),
        ("session", "change", "flush", True),
    ],
)
def test_change_of_when_windows_are_given_is_refused_where_readers_would_miss_or_keep_one(
    kind: str, before: str, after: str, refused: bool
) -> None:
    rig = Rig(kind)
    rig.append([("a", 5)])
    rig.run(Version(before), "run-0")
    rig.append([("a", 4)])
    if not refused:
        rig.run(Version(after), "run-1")
        return
    with pytest.raises(TopologyError, match="app-values-changelog that was made for windows that are given"):
        rig.run(Version(after), "run-1")
    rig.run(Version(before), "run-1")


def counted(*, suppressed: bool, besides: bool) -> Topology:
    """Counts by window, which no record deletes."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    window = TumblingWindow(size_ms=10, grace_ms=0)
    counts = builder.stream("in").group_by_key().windowed_by(window).count(store="values")
    if besides:
        counts.to_stream(lambda windowed, _: windowed.key).send_to("besides", value_serde=serdes.json())
    given = counts.suppress() if suppressed else counts
    given.to_stream(lambda windowed, _: windowed.key).send_to("out", value_serde=serdes.json())
    return builder.build()


@pytest.mark.promise("given-windows-stay-known")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"suppressed": False, "besides": False}, {"suppressed": True, "besides": False}),
        ({"suppressed": False, "besides": True}, {"suppressed": True, "besides": True}),
        ({"suppressed": True, "besides": True}, {"suppressed": False, "besides": True}),
    ],
)
def test_suppress_comes_where_no_window_goes_and_comes_and_goes_beside_others(
    before: dict[str, bool], after: dict[str, bool]
) -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "out", "besides"):
        kafka.create_topic(topic)
    for number, version in enumerate((before, after)):
        kafka.append("in", b"x", b"a", timestamp_ms=1 + number)
        app = Application(application_id="app", topology=counted(**version), on=kafka, clock=kafka.clock)
        app.run(f"run-{number}")


@pytest.mark.promise("flushed-windows-are-replaced")
@given(
    runs=st.lists(
        st.tuples(
            st.sampled_from(["hold", "flush"]),
            st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 40)), max_size=4),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_each_element_is_given_once_alone_and_each_pair_once_whatever_ends_of_runs_do(
    runs: Sequence[tuple[RunEnd, Sequence[tuple[str, int]]]],
) -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "other", "out"):
        kafka.create_topic(topic)
    times: dict[str, dict[str, int]] = {"in": {}, "other": {}}
    for number, (at_run_end, records) in enumerate([*runs, (runs[-1][0], [("a", _AFTER_ALL_MS)])]):
        for place, (side, time_ms) in enumerate(records):
            topic = "in" if side == "a" else "other"
            kafka.append(topic, f"{number}.{place}".encode(), b"k", timestamp_ms=time_ms)
            times[topic][f"{number}.{place}"] = time_ms
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        left, right = (
            builder.stream(topic).with_window(SlidingWindow(size_ms=4, grace_ms=1_000, at_run_end=at_run_end))
            for topic in ("in", "other")
        )
        left.outer_join(right, lambda ours, theirs: f"{ours}+{theirs}").send_to("out")
        app = Application(application_id="app", topology=builder.build(), on=kafka, clock=kafka.clock)
        app.run(f"run-{number}")
    results = [(record.value() or b"").decode() for record in kafka.records("out")]
    assert len(results) == len(set(results)), results
    pairs = {
        f"{ours}+{theirs}"
        for ours, ours_ms in times["in"].items()
        for theirs, theirs_ms in times["other"].items()
        if abs(ours_ms - theirs_ms) <= 4
    }
    assert {result for result in results if "None" not in result} == pairs
    with_partner = {part for pair in pairs for part in pair.split("+")}
    last = f"{len(runs)}.0"
    expected = {name for side in times.values() for name in side if name != last and name not in with_partner}
    assert expected <= {part for result in results if "None" in result for part in result.split("+")}
