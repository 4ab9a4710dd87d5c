"""What is known of topics that have grown, in words: for the commands and for Airflow's log."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_kstreams.batch.expand.growth_plan import GrowthPlan
from airflow_kstreams.streams.partitioning.topic_growth import LINEAR, GrownTopic, History, kinds_agree


def history_text(history: History) -> str:
    """Return the partition counts of a topic.

    >>> history_text((4, 6, 8))
    '4 -> 6 -> 8'
    """
    return " -> ".join(map(str, history))


def kinds_text(grown: GrownTopic) -> str:
    """Return how producers may place keys, as far as counts and keys tell.

    >>> kinds_text(GrownTopic((4, 12), ("linear", "modulo"))), kinds_text(GrownTopic((4, 6), ("linear",)))
    ('linear or modulo, as keys will tell', 'linear')
    """
    named = " or ".join(grown.kinds)
    if len(grown.kinds) == 1:
        return named
    return f"{named}, alike here" if kinds_agree(grown.history) else f"{named}, as keys will tell"


def growth_notes(plan: GrowthPlan) -> Iterator[str]:
    """Yield what a person must know of a topic's growth."""
    topic, grown = plan.topic, plan.grown
    if plan.done:
        yield f"{topic} has {plan.count} partitions already."
    if grown is None:
        yield f"No state of application {plan.application_id} depends on the keys of {topic}."
        return
    first = grown.history[0]
    linear = f"LinearHashPartitioner({{{topic!r}: {first}}})"
    if grown.kinds == (LINEAR,):
        yield (
            f"Only linear hashing keeps keys with their state over {history_text(grown.history)}: every "
            f"producer must place them by {linear}. A run fails at the first key that lies elsewhere. With "
            f"Kafka's default partitioner a topic grows to multiples only."
        )
    elif LINEAR in grown.kinds:
        yield f"Every producer must place keys in one way: by Kafka's default partitioner, or by {linear}."
    else:
        yield "Every producer must place keys by Kafka's default partitioner, as the keys show that it does."
    yield (
        "Before a producer uses the new partitions, all that it wrote before must be acknowledged: restart "
        "it, or see docs/growing.md."
    )
    if plan.waits:
        yield (
            f"If a run began now, {len(plan.waits)} of the new partitions would wait until what their keys "
            "came from is read, and be read by a run after it."
        )
    yield f"What stays: {plan.tasks} tasks, their state, and the tasks of all partitions that there are."
    if plan.continuous:
        yield "The application runs continuously: it reads the new partitions once it is started again."
