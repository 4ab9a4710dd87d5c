"""Streams of topics by a pattern, in the test driver; in runs: batch/run/test_topic_patterns.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from airflow_kstreams.streams import ConfigError, KStreamBuilder, TopologyBuilder, TopologyError, serdes
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.remedies import walked

pytestmark = pytest.mark.promise("patterns-are-matched-by-begin")

MATCHES = {"flights-1": 2, "flights-2": 2}


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def test_stream_has_the_records_of_all_topics_that_match_over_restarts_and_slices() -> None:
    made = builder()
    counts = made.stream(pattern=r"flights-\d").group_by_key().count(store="counts")
    counts.to_stream().send_to("out", value_serde=serdes.int64())
    with TopologyTestDriver(made.build(), application_id="app", partitions=MATCHES) as driver:
        driver.pipe_input("flights-1", key="a", value="x", timestamp_ms=1, partition=1)
        driver.restart()
        with driver.run():
            driver.pipe_input("flights-2", key="a", value="y", timestamp_ms=2, partition=1)
            driver.pipe_input("flights-1", key="a", value="z", timestamp_ms=3, partition=1)
        driver.restart()
        driver.pipe_input("flights-2", key="a", value="x", timestamp_ms=4, partition=1)
        assert [record.value for record in driver.read_output("out")] == [1, 3, 4]


def test_topic_that_was_not_named_is_refused_by_the_driver() -> None:
    made = builder()
    made.stream(pattern=r"flights-\d").send_to("out")
    with pytest.raises(TopologyError, match="no topic matches the pattern"):
        TopologyTestDriver(made.build(), application_id="app")
    with (
        TopologyTestDriver(made.build(), application_id="app", partitions={"flights-1": 1}) as driver,
        pytest.raises(TopologyError, match="does not read"),
    ):
        driver.pipe_input("flights-2", key="a", value="x", timestamp_ms=1)
    with pytest.raises(ConfigError, match="which is no topic of the topology"):
        TopologyTestDriver(made.build(), application_id="app", partitions={**MATCHES, "trains": 1})


def test_counts_of_matches_must_be_equal_when_state_is_kept() -> None:
    made = builder()
    made.stream(pattern=r"flights-\d").group_by_key().count(store="counts")
    with pytest.raises(TopologyError, match="flights-1"):
        TopologyTestDriver(made.build(), application_id="app", partitions={"flights-1": 1, "flights-2": 2})


def test_asking_twice_gives_two_streams_of_one_source() -> None:
    made = builder()
    made.stream(pattern="a.*").send_to("one")
    made.stream(pattern="a.*").send_to("two")
    assert len(made.build().nodes) == 3
    with pytest.raises(TopologyError, match="is read by two sources"):
        made.stream(pattern="a.*", value_serde=serdes.bytes())


def test_low_level_builder_takes_a_pattern() -> None:
    topology = TopologyBuilder().add_source("in", pattern="words-.*").add_sink("out", "copies", "in").build()
    assert topology.matched(["words-a", "others"]).plan("app").inputs == ("words-a",)
    with pytest.raises(TopologyError, match="is given topics, 'a', and a pattern"):
        TopologyBuilder().add_source("in", "a", pattern="b")


def test_logical_name_of_an_internal_topic_is_no_match() -> None:
    made = builder()
    made.stream(pattern="by-.*").group_by(lambda key, value: value, name="by").count(store="counts")
    assert made.build().matched(["by-day"]).plan("app").inputs == ("by-day",)


def copied(*patterns: str, out: str = "out", topics: Mapping[str, int] = MATCHES) -> list[object]:
    """Return what streams of patterns give of a record of each topic."""
    made = builder()
    for pattern in patterns:
        made.stream(pattern=pattern).send_to(out)
    with TopologyTestDriver(made.build(), application_id="app", partitions=topics) as driver:
        for topic in topics:
            driver.pipe_input(topic, key="k", value=topic, timestamp_ms=1)
        return [record.value for record in driver.read_output(out)]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        walked(
            "topic_patterns.match_all: create a topic",
            lambda: copied(r"flights-\d", topics={}),
            lambda: copied(r"flights-\d"),
        ),
        walked(
            "topic_patterns.match_all: create a topic",
            lambda: copied("flight-.*", topics={}),
            lambda: copied("flights-.*"),
        ),
        walked(
            "topic_patterns.match_all: narrow the patterns",
            lambda: copied("flights-.*", "flights-2"),
            lambda: copied("flights-1", "flights-2"),
        ),
        walked(
            "topic_patterns.refuse_overlaps",
            lambda: copied("flights-.*", out="flights-out"),
            lambda: copied(r"flights-\d", out="flights-out"),
        ),
        walked(
            "topic_patterns.refuse_overlaps",
            lambda: copied(".*"),
            lambda: copied("flights-.*"),
        ),
    ],
)
def test_topics_are_read_when_the_pattern_is_as_the_error_says(
    fault: Callable[[], object], told: Callable[[], object]
) -> None:
    with pytest.raises(TopologyError):
        fault()
    assert told() == ["flights-1", "flights-2"]
