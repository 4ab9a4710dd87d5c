"""State gets more processors while records flow: whole runs on the real broker, task by task, and catch-ups
beside them, against the same topology that never grew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from airflow_kstreams.batch.expand.processor_expansion import give_up_expansions
from airflow_kstreams.streams import partition_of_key
from tests.support.kafka.growing_scene import FIRST, KEYS, Consume, Story, Topics, by_key
from tests.support.kafka.interception import Once

pytestmark = pytest.mark.promise("keys-follow-to-new-processors")

#: How many runs may pass until one takes over.
_RUNS = 6


MakeStory = Callable[..., Story]


@pytest.fixture
def make_story(
    kafka: str, application_id: str, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> MakeStory:
    return partial(Story, kafka, application_id, topics=Topics.named(topic_name), create_topic=create_topic)


def grow(story: Story, count: int) -> None:
    """Give both topics more partitions, and let runs find them, records flowing."""
    story.flow()
    story.grow(story.topics.flights, count)
    story.flow()
    story.grow(story.topics.delays, count)
    story.producers.restart()
    story.flow()
    story.run()


def run_until_taken_over(story: Story, count: int) -> None:
    for _ in range(_RUNS):
        story.flow()
        story.run()
        if story.processors == count:
            return
    pytest.fail(f"no run has taken over: {story.summaries[-1].warnings}")


def follow_the_runs(story: Story, count: int) -> None:
    """Copy what runs add, beside them, until one takes over."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        following = pool.submit(story.copy, count, follow=True)
        run_until_taken_over(story, count)
        assert following.result(timeout=60).after is None


def be_fenced(story: Story, count: int) -> None:
    """Copy until a run takes over that begins right before the last of it is committed."""
    fencing = Once("writer.produce", 2, story.run, about=f", {count - 1}, ")
    assert story.copy(count, interceptor=fencing).after is None
    assert fencing.left <= 0
    assert story.processors == count


def give_up_and_copy_again(story: Story, count: int) -> None:
    """Give up an expansion, then copy while a run is at work; what its other tasks add, begin copies."""
    story.copy(count - 1)
    given_up = give_up_expansions(story.app.cluster, story.app.checked)
    assert [plan.after and plan.after.count for plan in given_up] == [count - 1]
    assert give_up_expansions(story.app.cluster, story.app.checked) == []
    story.run(meanwhile=lambda: story.copy(count))
    assert story.processors < count
    run_until_taken_over(story, count)
    assert story.copy(count).after is None


def held(consume_all: Consume, changelog: str) -> dict[tuple[int, str], bytes]:
    """Return what a changelog holds: partition, key -> value."""
    found: dict[tuple[int, str], bytes | None] = {}
    for row in consume_all(changelog):
        found[row.partition, (row.key or b"").decode()] = row.value
    return {at: value for at, value in found.items() if value is not None}


@pytest.mark.prove  # dev/test has it in memory (simulation/test_expansions.py), and a copy on Spark
@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("linear", [(6, follow_the_runs), (8, be_fenced)]),
        ("modulo", [(8, give_up_and_copy_again), (24, None)]),
    ],
)
def test_nothing_tells_that_processors_were_added(
    make_story: MakeStory,
    consume_all: Consume,
    kind: str,
    steps: list[tuple[int, Callable[[Story, int], None] | None]],
) -> None:
    story = make_story(kind=kind)
    story.flow()
    story.run()
    processors = FIRST
    for count, expand in steps:
        grow(story, count)
        if expand is not None:
            expand(story, count)
            processors = count
        story.flow()
    story.run_until_read()
    story.producers.close()

    assert story.differences(consume_all) == {}
    listed = by_key((row.key, row.value) for row in consume_all(story.topics.listed))
    assert {key: json.loads(told[-1]) for key, told in listed.items()} == story.sent
    assert sum(run.records_in or 0 for run in story.summaries) == 2 * sum(map(len, story.sent.values()))
    assert [run.counts and run.counts.by("late") for run in story.summaries] == [0] * len(story.summaries)
    assert story.processors == processors
    for store in ("listed", "counted"):
        never = story.still.records(f"still-{store}-changelog")
        state = {(record.key() or b"").decode(): record.value() for record in never}
        homes = {key: partition_of_key(key.encode(), *_placed(kind, processors)) for key in KEYS}
        kept = held(consume_all, f"{story.app.application_id}-{store}-changelog")
        assert {key: kept[homes[key], key] for key in KEYS} == state
        assert {(home, key) for home, key in kept if home >= FIRST} == {
            (home, key) for key, home in homes.items() if home >= FIRST
        }


def _placed(kind: str, processors: int) -> tuple[int, int]:
    """Return the first count and the count by which a key's processor is the place of its hash."""
    return (FIRST, processors) if kind == "linear" else (processors, processors)
