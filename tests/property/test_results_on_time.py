"""Each run publishes the windows that are over, and no others: those over at the end of its data interval,
whether a partition is quiet or not, or those that its records close, whichever record comes last. So it is
wherever runs are cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    SessionWindow,
    Topology,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.examples import examples
from tests.support.kafka.in_process import Application
from tests.support.oracles.window_oracle import Content, Row, contents_of

Window = TumblingWindow | HoppingWindow | SessionWindow

LAST_MS = 60
#: Which partition the records of a key are in.
PARTITIONS = {"x": 0, "y": 0, "z": 1}
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(st.sampled_from(sorted(PARTITIONS)), st.integers(0, 9), st.integers(1, LAST_MS)), max_size=20
).map(lambda rows: sorted(rows, key=lambda row: row[2]))
ENDS = st.sets(st.integers(2, LAST_MS + 30), min_size=2, max_size=6).map(sorted)
GRACE = st.integers(0, 12)
WINDOWS: st.SearchStrategy[Window] = (
    st.builds(TumblingWindow, size_ms=st.integers(4, 12), grace_ms=GRACE)
    | st.builds(HoppingWindow, size_ms=st.integers(4, 12), advance_ms=st.integers(1, 4), grace_ms=GRACE)
    | st.builds(SessionWindow, gap_ms=st.integers(1, 6), grace_ms=GRACE)
)


async def _same(value: int) -> int:
    return value


def topology(window: Window, *, through: bool, calls: bool = False) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("in")
    if calls:
        stream = stream.map_values_async(_same)
    grouped = (stream.through("between") if through else stream).group_by_key().windowed_by(window)
    merger = (lambda key, left, right: left + right) if isinstance(window, SessionWindow) else None
    table = grouped.aggregate(list, lambda key, value, seen: [*seen, value], merger, store="w")
    named = table.suppress().to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}-{w.end_ms}", sorted(v)))
    named.send_to("out")
    return builder.build()


def over(content: Content, window: Window, moment_ms: int) -> bool:
    """Whether a window is closed at a moment."""
    if isinstance(window, SessionWindow):
        return content.windowed.end_ms + window.gap_ms + window.grace_ms < moment_ms
    return content.windowed.end_ms + window.grace_ms <= moment_ms


def _kafka() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_000_000))
    for topic in ("in", "between"):
        kafka.create_topic(topic, partitions=2)
    kafka.create_topic("out")
    return kafka


#: A window's name, values and time.
Published = list[tuple[str, tuple[list[int], int]]]


def _published(kafka: InMemoryKafka) -> Published:
    return [
        (
            (record.key() or b"").decode(),
            (serdes.json().deserialize(record.value() or b""), record.timestamp()[1]),
        )
        for record in kafka.records("out")
    ]


def _results(contents: Iterable[Content]) -> Published:
    return [
        (f"{c.windowed.key}@{c.windowed.start_ms}-{c.windowed.end_ms}", (c.values, c.newest_ms))
        for c in contents
    ]


#: How far records are out of order, and how long windows wait for them.
_DISORDER_MS = 8


@pytest.mark.promise("slices-give-what-they-close")
@settings(max_examples=examples(60), deadline=None)
@example(
    window=TumblingWindow(size_ms=4, grace_ms=8),
    drawn=[(2, 0), (30, 8), (0, 0)],
    ends=[3],
    through=False,
    calls=False,
)
@given(
    window=WINDOWS.map(lambda window: replace(window, grace_ms=_DISORDER_MS)),
    drawn=st.lists(st.tuples(st.integers(0, 15), st.integers(0, _DISORDER_MS)), max_size=20),
    ends=st.sets(st.integers(0, 20), min_size=1, max_size=4).map(sorted),
    through=st.booleans(),
    calls=st.booleans(),
)
def test_each_run_publishes_the_windows_that_its_records_close_whichever_comes_last(
    window: Window, drawn: list[tuple[int, int]], ends: list[int], through: bool, calls: bool
) -> None:
    """Each record is dated up to the disorder past a moment that only goes on."""
    moments = accumulate(step for step, _ in drawn)
    rows: list[Row] = [
        ("xy"[number % 2], number, 1 + moment_ms + ahead_ms)
        for number, (moment_ms, (_, ahead_ms)) in enumerate(zip(moments, drawn, strict=True))
    ]
    kafka = _kafka()
    app = Application(
        application_id="app",
        topology=topology(window, through=through, calls=calls),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0},
    )
    for number, (start, stop) in enumerate(pairwise([0, *ends, 21])):
        for key, value, time_ms in rows[start:stop]:
            kafka.append("in", b"%d" % value, key.encode(), partition=0, timestamp_ms=time_ms)
        app.run(f"run-{number}")
        contents, _ = contents_of(rows[:stop], window)
        newest_ms = max((row[2] for row in rows[:stop]), default=0)
        closed = sorted((c for c in contents if over(c, window, newest_ms)), key=lambda c: c.order)
        assert _published(kafka) == _results(closed)


@settings(max_examples=examples(60), deadline=None)
@given(window=WINDOWS, rows=ROWS, ends=ENDS, through=st.booleans())
def test_each_run_publishes_the_windows_that_are_over_at_its_end(
    window: Window, rows: list[Row], ends: list[int], through: bool
) -> None:
    kafka = _kafka()
    for key, value, time_ms in rows:
        kafka.append("in", b"%d" % value, key.encode(), partition=PARTITIONS[key], timestamp_ms=time_ms)
    app = Application(
        application_id="app",
        topology=topology(window, through=through),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0, "autostop.at": "interval_end"},
    )
    empty = 0
    for number, (start_ms, end_ms) in enumerate(pairwise([1, *ends])):
        summary = app.run(f"run-{number}", interval_ms=(start_ms, end_ms))
        contents, _ = contents_of([row for row in rows if row[2] < end_ms], window)
        published = _published(kafka)
        assert len(published) == len(dict(published)), "once each"
        assert dict(published) == dict(_results(c for c in contents if over(c, window, end_ms)))
        empty += summary.empty
        assert summary.counts is None or summary.counts.by("late") == 0
    event(f"{empty} of {len(ends)} runs had nothing to do")
