"""Looks whether the keys of a topic show that it has grown before any run read it.

Rule: state that begins empty takes today's partition count for the one that the topic's producers began with,
unless an earlier one is known. Where that is wrong, the records of a key meet two states. So begin looks at
keys where its tasks will begin to read, and asks for ``initial.partitions`` if

- one key lies in two partitions, or
- not all lie where today's count puts them, and all lie where growth from a smaller count does.

Keys of producers with another partitioner lie where some smaller count puts them by chance. They are no
evidence unless that chance is small, which takes about ten keys.

A subtopology without state has nothing to lose and is never asked for. What is given by the setting, or known
from state or earlier growth, is not looked into: the task that reads a key elsewhere fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from math import prod

from airflow_kstreams.batch.growing.grown_groups import Bound
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.run.begin.seen_keys import KeyLook, KeySeen, first_partitions, seen_keys
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.partitioning.topic_growth import fitting_kinds, places
from airflow_kstreams.streams.plan import TopologyPlan

#: If a smaller count puts all keys where they lie with less probability than this, it is no chance.
_CHANCE = 0.001


def refuse_unsaid_growth(
    look: KeyLook,
    plan: TopologyPlan,
    grouped: Mapping[int, GroupedPartitions],
    bound: Bound,
) -> None:
    """Refuse to begin state by today's count of a topic whose keys show that it had fewer partitions.

    :param grouped: subtopology id -> its partition groups.
    :param bound: groups that existing state depends on.
    :raises ConfigError: the keys show that.
    """
    if plan.partition_grouper:
        return
    counts = {
        topic: grouped[sub.id].partitions[topic]
        for sub in plan.subtopologies
        for topic in (sub.sources if sub.changelogs and sub.id not in bound else ())
        if topic in plan.inputs
        and topic not in grouped[sub.id].grown
        and topic not in look.session.settings.first_counts
    }
    asked = {topic: first_partitions(topic, count) for topic, count in counts.items() if count > 1}
    spans = look.to_read([*chain.from_iterable(asked.values())])
    for topic, partitions in asked.items():
        count, seen = counts[topic], list(seen_keys(look.session, {tp: spans[tp] for tp in partitions}))
        evidence, first = _evidence(seen, count)
        if evidence:
            raise ConfigError(
                f"application {plan.application_id!r} begins to keep state by the keys of topic {topic}, "
                f"which has {counted(count, 'partition')}, and {evidence}: its producers began with "
                "fewer, as it seems, and records of one key would meet two states",
                fix=f"set initial.partitions={topic}={first or '<count>'}, the count that its producers "
                f"began with; or initial.partitions={topic}={count} if it never had fewer, or nothing "
                "that was written then is read",
            )


def _evidence(seen: list[KeySeen], count: int) -> tuple[str, int]:
    """Return the evidence that a topic had fewer partitions, as text, and the count that fits, 0 if none
    does; an empty text without evidence.
    """
    astray = [key for key in seen if key.hashed % count != key.at.partition]
    first = _fitting(astray, seen, count)
    by_key: dict[bytes, KeySeen] = {}
    for key in seen:
        other = by_key.setdefault(key.key, key)
        if other is not key:
            return f"the key of {other} is that of {key}, too", first
    if first:
        return (
            f"that puts {len(astray)} of {counted(len(seen), 'key')} elsewhere (that of {astray[0]} is the "
            f"first), while all lie where growth from {first} does",
            first,
        )
    return "", 0


def _fitting(astray: list[KeySeen], seen: list[KeySeen], count: int) -> int:
    """Return the largest smaller count from which growth puts all keys where they lie, which would hardly be
    so by chance; 0 if there is none.
    """
    for first in range(count - 1, 0, -1) if astray else ():
        history = (first, count)
        for kind in fitting_kinds(history):
            if all(key.fits(history, kind) for key in chain(astray, seen)):
                chance = prod(len(places(key.hashed, history, kind)) / count for key in seen)
                if chance < _CHANCE:
                    return first
    return 0
