from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    RetryPolicy,
    SessionWindow,
    SlidingWindow,
    Topology,
    TumblingWindow,
    serdes,
    timestamps,
)
from airflow_kstreams.streams.plan import StreamTimePlan

pytestmark = pytest.mark.promise("undated-sources-are-not-advanced")

TEXT = serdes.string()


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)


def last(topology: Topology) -> StreamTimePlan:
    """Return how far the subtopology that runs last is brought."""
    return topology.plan("app").subtopologies[-1].stream_time


def joined(left: Any, right: Any) -> Any:
    one, other = SlidingWindow(size_ms=10, grace_ms=5), SlidingWindow(size_ms=40, grace_ms=5)
    return left.with_window(one).join(right.with_window(other), lambda a, b: a + b)


@pytest.mark.parametrize(
    ("window", "behind_ms"),
    [
        (TumblingWindow(size_ms=60, grace_ms=7), 67),
        (SlidingWindow(size_ms=30, grace_ms=2), 32),
        (SessionWindow(gap_ms=20, grace_ms=3), 23),
    ],
)
@pytest.mark.parametrize("suppressed", [True, False])
def test_subtopology_stays_behind_by_the_open_windows_above_it(
    window: Any, behind_ms: int, suppressed: bool
) -> None:
    built = builder()
    counts = built.stream("in").group_by_key().windowed_by(window).count(store="counts")
    given = (counts.suppress() if suppressed else counts).to_stream(lambda window, _: window.key)
    given.through("between", value_serde=serdes.int64()).send_to("out")
    assert last(built.build()) == StreamTimePlan(behind_ms=behind_ms)


def test_subtopology_stays_behind_by_the_joins_above_it_as_long_as_they_keep_elements() -> None:
    built = builder()
    joined(built.stream("one"), built.stream("other")).through("between").send_to("out")
    assert last(built.build()).behind_ms == 45


def test_what_several_subtopologies_hold_back_is_added_up_and_the_longest_way_counts() -> None:
    built = builder()
    stream = built.stream("in")
    for number, grace_ms in enumerate((5, 7)):
        window = TumblingWindow(size_ms=100, grace_ms=grace_ms)
        counts = stream.group_by_key().windowed_by(window).count(store=f"counts-{number}")
        texts = counts.suppress().to_stream(lambda window, _: window.key).map_values(str)
        stream = texts.through(f"between-{number}")
    stream.merge(built.stream("quick")).send_to("out")
    assert last(built.build()).behind_ms == 105 + 107


def test_second_window_of_a_subtopology_gives_nothing_dated_further_back_than_itself() -> None:
    built = builder()
    first = built.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=100, grace_ms=0))
    plain = first.count(store="first").suppress().to_stream(lambda window, _: window.key).map_values(str)
    again = joined(plain.through("between"), built.stream("other")).through("joined")
    again.send_to("out")
    assert last(built.build()).behind_ms == 100 + 45


def test_names_of_what_may_be_dated_before_any_moment_reach_all_that_is_below() -> None:
    built = builder()
    field = timestamps.value_field("at_ms")
    built.stream("extracted", timestamps=field).through("one").through("two").send_to("out")
    built.stream("own", timestamps=timestamps.record_time(invalid="skip")).through("three").send_to("out")
    named = {sub.sources: sub.stream_time.by_name for sub in built.build().plan("app").subtopologies}
    assert named == {
        ("extracted",): ("extracted",),
        ("one",): ("extracted",),
        ("two",): ("extracted",),
        ("own",): (),
        ("three",): (),
    }


def test_topic_behind_set_timestamp_has_to_be_named() -> None:
    built = builder()
    built.stream("in").set_timestamp(lambda key, value: 1).through("redated").send_to("out")
    first, second = built.build().plan("app").subtopologies
    assert (first.stream_time.by_name, second.stream_time.by_name) == ((), ("redated",))


def test_node_with_a_retry_topic_has_to_be_named_for_what_lies_below_its_subtopology() -> None:
    async def enriched(value: str) -> str:
        return value

    built = builder()
    retry = RetryPolicy(attempts=3)
    calling = built.stream("in").map_values_async(enriched, name="enrich", order="key", retry=retry)
    calling.through("between").send_to("out")
    first, second = built.build().plan("app").subtopologies
    assert (first.stream_time.by_name, second.stream_time.by_name) == ((), ("enrich",))
