"""Where runs are cut, and tasks restored, changes nothing of what time brings: records in the order of their
times, with quiet times between them, give the same in one run and in one for each stretch of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.examples import examples

pytestmark = pytest.mark.promise("windows-close-in-their-run")

TEXT = serdes.string()
#: (topic, key, time).
Row = tuple[str, str, int]
LAST_MS = 300
#: Longer than an element waits for its partner.
GRACE_MS = 30

GAPS = st.sampled_from([0, 0, 1, 2, 5, 20, 70])
ROWS = st.lists(
    st.tuples(st.sampled_from(["in", "in", "other"]), st.sampled_from(["a", "b"]), GAPS),
    min_size=2,
    max_size=25,
)
ENDS = st.sets(st.integers(5, LAST_MS), max_size=5).map(sorted)


def timed(rows: Sequence[Row]) -> list[Row]:
    """Make times of gaps."""
    now_ms, dated = 1, []
    for topic, key, gap_ms in rows:
        now_ms += gap_ms
        dated.append((topic, key, now_ms))
    return dated


def paired(kind: str, between: Callable[[Any], Any] = lambda stream: stream) -> tuple[KStreamBuilder, Any]:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    left = builder.stream("in").with_window(SlidingWindow(size_ms=8, grace_ms=3))
    right = builder.stream("other").with_window(SlidingWindow(size_ms=12, grace_ms=5))
    return builder, between(getattr(left, kind)(right, lambda one, other: f"{one}+{other}"))


def folded(window: Any, kind: str = "outer_join", between: Callable[[Any], Any] = lambda s: s) -> Topology:
    builder, results = paired(kind, between)
    table = results.group_by_key().windowed_by(window).reduce("{},{}".format, store="folded")
    table.suppress().to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}-{w.end_ms}", v)).send_to("out")
    results.send_to("paired")
    return builder.build()


def joined_again() -> Topology:
    builder, results = paired("outer_join")
    wide = SlidingWindow(size_ms=10, grace_ms=GRACE_MS)
    other = builder.stream("other").with_window(wide)
    again = results.with_window(wide).outer_join(other, lambda one, other: f"({one})+{other}")
    again.send_to("paired")
    window = TumblingWindow(size_ms=25, grace_ms=3 * GRACE_MS)
    table = again.group_by_key().windowed_by(window).reduce("{},{}".format, store="folded")
    table.suppress().to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}", v)).send_to("out")
    return builder.build()


def newest() -> Topology:
    """Tables keep what came last: the order counts."""
    builder, results = paired("left_join")
    spec = StoreSpec(name="newest", key_serde=TEXT, value_serde=TEXT, cached=False)
    results.to_table(store=spec).to_stream().send_to("out")
    results.send_to("paired")
    return builder.build()


def answered(stream: Any) -> Any:
    async def answer(value: str) -> str:
        await asyncio.sleep(0)
        return value.upper()

    return stream.map_values_async(answer, max_in_flight=3)


TOPOLOGIES: dict[str, Callable[[], Topology]] = {
    "tumbling": lambda: folded(TumblingWindow(size_ms=20, grace_ms=GRACE_MS)),
    "hopping": lambda: folded(HoppingWindow(size_ms=20, advance_ms=7, grace_ms=GRACE_MS), "left_join"),
    "sliding": lambda: folded(SlidingWindow(size_ms=9, grace_ms=GRACE_MS)),
    "sessions": lambda: folded(SessionWindow(gap_ms=6, grace_ms=GRACE_MS)),
    "tumbling, behind calls": lambda: folded(TumblingWindow(size_ms=20, grace_ms=GRACE_MS), between=answered),
    "sessions, behind calls": lambda: folded(SessionWindow(gap_ms=6, grace_ms=GRACE_MS), between=answered),
    "joined again": joined_again,
    "newest": newest,
}


def results(topology: Topology, rows: Sequence[Row], ends_ms: Sequence[int]) -> dict[str, Any]:
    """Process records in runs that bring stream time to a moment at their end, and restore their tasks.

    :param ends_ms: the last one is behind all records.
    """
    with TopologyTestDriver(topology, application_id="app") as driver:
        number = 0
        for end_ms in ends_ms:
            while number < len(rows) and rows[number][2] < end_ms:
                topic, key, time_ms = rows[number]
                driver.pipe_input(topic, key=key, value=f"n{number}.", timestamp_ms=time_ms)
                number += 1
            driver.restart(stream_time_ms=end_ms)
        return {
            topic: [(row.key, row.value, row.timestamp_ms) for row in driver.read_output(topic)]
            for topic in ("paired", "out")
        }


@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, ends=ENDS)
def test_results_and_their_order_are_the_same_when_runs_end_anywhere(
    name: str, rows: list[Row], ends: list[int]
) -> None:
    dated = timed(rows)
    last_ms = max([dated[-1][2], *ends]) + 1_000
    whole = results(TOPOLOGIES[name](), dated, [last_ms])
    assert results(TOPOLOGIES[name](), dated, [*ends, last_ms]) == whole
    given = " ".join(value for _, value, _ in whole["out"])
    if name != "newest":
        for number, (topic, _, _) in enumerate(dated):
            if topic == "in":
                assert f"n{number}." in given.lower(), "nothing is late"
