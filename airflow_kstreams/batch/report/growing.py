"""Describes topics that have grown, and processors whose state is being copied: for the commands, ``status``,
the doctor and Airflow's log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from airflow_kstreams.batch.expand.growth import GrowthPlan
from airflow_kstreams.batch.expand.processor_plan import CopiedSource, ProcessorPlan, copied_of
from airflow_kstreams.batch.growing.grown_groups import BlockedPartition
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.partitioning.topic_growth import (
    LINEAR,
    GrownTopic,
    History,
    kinds_agree,
    processor_of,
)

_UNKNOWN = "-"
#: A copy whose last step is younger than this counts as running, milliseconds.
_AT_WORK_MS = 60_000


def history_text(history: History) -> str:
    """Return the partition counts of a topic.

    >>> history_text((4, 6, 8))
    '4 -> 6 -> 8'
    """
    return " -> ".join(map(str, history))


def kinds_text(grown: GrownTopic) -> str:
    """Return the arithmetic by which producers may place keys, as far as counts and keys tell.

    >>> kinds_text(GrownTopic((4, 12), ("linear", "modulo"))), kinds_text(GrownTopic((4, 6), ("linear",)))
    ('linear or modulo, as keys will tell', 'linear')
    """
    named = " or ".join(grown.kinds)
    if len(grown.kinds) == 1:
        return named
    return f"{named}, alike here" if kinds_agree(grown.history) else f"{named}, as keys will tell"


def growth_notes(plan: GrowthPlan) -> Iterator[str]:
    """Yield notes on a topic's growth that an operator must know."""
    topic, grown = plan.topic, plan.grown
    if plan.done:
        yield f"{topic} has {counted(plan.count, 'partition')} already."
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
        "it, or see docs/explanation/growing.md."
    )
    if plan.waits:
        yield (
            f"If a run began now, {len(plan.waits)} of the new partitions would wait until what their keys "
            "came from is read, and be read by a run after it."
        )
    yield (
        f"What stays: {counted(plan.tasks, 'task')} with all state, and the tasks of all partitions that "
        "there are."
    )
    if plan.continuous:
        yield "The application runs continuously: it reads the new partitions once it is started again."


def growth_rows(
    grouped: Mapping[int, GroupedPartitions], counts: Mapping[str, int]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each topic under state: subtopology, topic, its partition counts, kinds of growth, the
    first count, the count now, the tasks.

    :param grouped: subtopology id -> its partition groups, as the last begin found them.
    :param counts: topic -> its partition count now, for topics that exist.
    """
    for sub, entry in sorted(grouped.items()):
        for topic, count in sorted(entry.partitions.items()):
            grown = entry.grown.get(topic)
            # Under a grouper of the user's own the first count decides nothing.
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
    """Yield a row for each task and each of its topics that have grown: task, topic, partitions.

    :param grouped: subtopology id -> its partition groups, as for :func:`growth_rows`.
    """
    for sub, entry in sorted(grouped.items()):
        for group, topics in enumerate(entry.by_group):
            for topic, numbers in sorted(topics.items()):
                if topic in entry.grown:
                    came = ", ".join(_behind_parent(number, entry.grown[topic]) for number in numbers)
                    yield f"{sub}_{group}", topic, came


def blocked_rows(waits: Iterable[BlockedPartition]) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each partition that waits: partition, its task, the partitions it waits for, and the
    number of offsets of these that are still to be read, at most.
    """
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


def expansion_rows(
    plan: ProcessorPlan, blocked: Collection[BlockedPartition], now_ms: int
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each new processor: its task, the tasks whose state it takes, "copied of all" (offsets
    copied of offsets in all), records per second, time left, and what it waits for.

    :param blocked: partitions that wait for their ancestors.
    :param now_ms: time now, epoch milliseconds.
    """
    for number in range(plan.before, plan.before if plan.after is None else plan.after.count):
        sources = [each for each in plan.sources if number in each.added]
        lag = sum(each.lag for each in sources)
        rate = max((each.told.rate for each in sources), default=0.0)
        at_work = any(each.lag and now_ms - each.told.stepped_ms < _AT_WORK_MS for each in sources)
        position, end = copied_of(sources)
        yield (
            f"{plan.sub.id}_{number}",
            ", ".join(dict.fromkeys(f"{plan.sub.id}_{each.changelog.partition}" for each in sources)),
            f"{position} of {end}",
            f"{rate:.0f}" if rate else _UNKNOWN,
            duration_text(1000 * lag / rate) if rate and at_work else _UNKNOWN,
            waits_for(plan, number, sources, blocked),
        )


def waits_for(
    plan: ProcessorPlan,
    number: int,
    sources: Collection[CopiedSource],
    blocked: Collection[BlockedPartition],
) -> str:
    """Return the next thing that a new processor waits for, as a phrase.

    :param number: number of the processor.
    :param sources: the changelog partitions that its state is copied from, with how far the copy is.
    :param blocked: partitions that wait for their ancestors.
    """
    if any(each.position is None and each.end for each in sources):
        return "its state to be copied"
    own = {tp for tp in plan.reads if plan.after is None or plan.after.of_partition(tp.partition) == number}
    behind = [each for each in blocked if each.partition in own and each.ahead]
    if behind:
        for_ = ", ".join(str(ancestor) for each in behind for ancestor in each.waits_for)
        return f"{', '.join(str(each.partition) for each in behind)} to be read, after {for_}"
    lag = sum(each.lag for each in sources)
    return "the next run" if not lag else f"the next run, if acceptable.recovery.lag is {lag} or more"
