"""Topics under state grow by the command while records flow: whole runs on the real broker, task by task,
with producers as users have them, against the same topology on topics that never grew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from airflow_kstreams.streams import partition_of_key
from tests.support.kafka.growing_scene import FIRST, KEYS, Consume, Story, Topics

pytestmark = pytest.mark.promise("keys-stay-when-topics-grow", "new-partitions-wait-for-their-ancestors")


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("linear", [(6, None), (8, 7)]),
        ("modulo", [(8, 8), (24, None)]),
    ],
)
def test_nothing_tells_that_topics_grew(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    consume_all: Consume,
    kind: str,
    steps: list[tuple[int, int | None]],
) -> None:
    topics = Topics.named(topic_name)
    story = Story(kafka, application_id, topics=topics, kind=kind, create_topic=create_topic)
    story.flow()
    story.run()
    waited = set[str]()
    for flights, delays in steps:
        story.flow()
        story.grow(topics.flights, flights)
        if delays is not None:
            story.grow(topics.delays, delays)
        story.flow()  # by a producer that does not know yet, unless it looks
        story.producers.restart()
        story.flow()
        story.run()
        waited |= {str(each.partition) for each in story.status.blocked}
    story.run_until_read()
    story.producers.close()

    assert story.differences(consume_all) == {}
    assert [run.counts and run.counts.by("late") for run in story.summaries] == [0] * len(story.summaries)
    assert len(waited) >= 4
    status = story.status
    assert status.grouped[0].grown[topics.flights].kinds == (kind,)
    assert len(status.grouped[0].by_group) == FIRST
    assert [each for each in status.blocked if each.ahead] == []


def test_mapping_of_the_oracle_is_the_first_one() -> None:
    """Four partitions hold keys of every one of them, and each growth moves some."""
    moved: Mapping[str, set[int]] = {
        key: {partition_of_key(key.encode(), FIRST, count) for count in (4, 6, 8)} for key in KEYS
    }
    assert {min(numbers) for numbers in moved.values()} == {0, 1, 2, 3}
    assert sum(len(numbers) > 1 for numbers in moved.values()) >= 6
