"""Says in words which topics have grown, and how: for the commands and for Airflow's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from airflow_kstreams.batch.expand.growth_plan import GrowthPlan
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.run.waiting import WaitingPartition
from airflow_kstreams.streams.partitioning.topic_growth import (
    LINEAR,
    GrownTopic,
    History,
    kinds_agree,
    processor_of,
)

_UNKNOWN = "-"


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


def growth_rows(
    grouped: Mapping[int, GroupedPartitions], counts: Mapping[str, int]
) -> Iterator[tuple[str, ...]]:
    """Yield what each topic under state is: subtopology, topic, its counts, kinds of growth, N0, Q, P.

    :param grouped: by subtopology id, as the last begin found them.
    :param counts: partition count now of topics that exist.
    """
    for sub, entry in sorted(grouped.items()):
        for topic, count in sorted(entry.partitions.items()):
            grown = entry.grown.get(topic)
            # Under a grouper of the user's own no first count counts.
            first = count if entry.grown or not entry.groups else None
            now = counts.get(topic, count)
            yield (
                str(sub),
                topic,
                str(count) if grown is None else history_text(grown.history),
                _UNKNOWN if grown is None else kinds_text(grown),
                str((first or _UNKNOWN) if grown is None else grown.history[0]),
                str(count) if now == count else f"{count}, the next run finds {now}",
                str(len(entry.by_group)),
            )


def reading_rows(grouped: Mapping[int, GroupedPartitions]) -> Iterator[tuple[str, str, str]]:
    """Yield which partitions of topics that have grown each task reads: task, topic, partitions.

    :param grouped: as for :func:`growth_rows`.
    """
    for sub, entry in sorted(grouped.items()):
        for group, topics in enumerate(entry.by_group):
            for topic, numbers in sorted(topics.items()):
                if topic in entry.grown:
                    came = ", ".join(_behind_parent(number, entry.grown[topic]) for number in numbers)
                    yield f"{sub}_{group}", topic, came


def waiting_rows(waits: Iterable[WaitingPartition]) -> Iterator[tuple[str, str, str, str]]:
    """Yield what waits: partition, its task, what for, and how many offsets that is at most."""
    for each in waits:
        behind = ", ".join(map(str, each.waits_for)) or "nothing any more: the next run reads it"
        yield str(each.partition), f"{each.subtopology}_{each.group}", behind, str(each.ahead)


def _behind_parent(number: int, grown: GrownTopic) -> str:
    """Return a partition and the ones that its keys lay in right before it, by kind where kinds differ.

    >>> grown = GrownTopic((4, 24), ("linear", "modulo"))
    >>> _behind_parent(2, grown), _behind_parent(14, grown)
    ('2', '14 (from 2 or 6)')
    """
    if number < grown.history[0]:
        return str(number)
    parents = {processor_of(number, grown.history, kind, number) for kind in grown.kinds}
    return f"{number} (from {' or '.join(map(str, sorted(parents)))})"
