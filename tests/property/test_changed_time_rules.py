"""Windows and joins whose grace changes from run to run. What was given as final is given once, and each
record is in one window or counted as late; each pair is given once or has a member that was counted as late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams import (
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    Topology,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.windows import FoldWindow
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
        finished = coordinator.finished(run_id)
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
