"""Topics that give records the broker's time (``LogAppendTime``), and times that are taken from values."""

from __future__ import annotations

import json

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes, timestamps
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("times-in-values-hold")

TOPICS = ("in", "between", "out")
SLICES = (((5, "a"), (12, "b"), (7, "c"), (25, "d")), ((14, "e"), (31, "late?"), (40, "f")))
TEXT, JSON = serdes.string(), serdes.json()


def windowed() -> Topology:
    """Windows of ten milliseconds, by the time in the values, at both ends of a topic of the user's."""
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=JSON)
    at = timestamps.value_field("at")
    builder.stream("in", timestamps=at).send_to("between")
    groups = builder.stream("between", timestamps=at).group_by(lambda key, value: key.upper())
    folded = groups.windowed_by(TumblingWindow(size_ms=10, grace_ms=5)).aggregate(
        list, lambda _, value, found: [*found, value["name"]], store="names"
    )
    folded.to_stream().map(lambda window, names: (f"{window.key}{window.start_ms}", names)).send_to("out")
    return builder.build()


def results(*redating: str) -> list[tuple[bytes | None, bytes | None]]:
    """Run each slice, and return what came out, when some topics give records the broker's time."""
    clock = ManualClock(now_ms=1_700_000_000_000)
    kafka = InMemoryKafka(clock=clock)
    for topic in TOPICS:
        kafka.create_topic(topic)
        if topic in redating:
            kafka.alter_topic(topic, message_timestamp_type="LogAppendTime")
    for number, records in enumerate(SLICES):
        for at, name in records:
            clock.sleep(3.0)
            kafka.append("in", json.dumps({"at": at, "name": name}).encode(), b"k", timestamp_ms=at)
        app = Application(application_id="app", topology=windowed(), on=kafka, clock=clock)
        assert app.run(f"run-{number}").warnings == ()
        clock.sleep(3_600.0)
    return [(record.key(), record.value()) for record in kafka.records("out")]


@pytest.mark.parametrize("redating", [*((topic,) for topic in TOPICS), TOPICS], ids=".".join)
def test_results_go_by_the_times_in_values_whichever_topic_has_the_brokers(redating: tuple[str, ...]) -> None:
    assert results(*redating) == results()
