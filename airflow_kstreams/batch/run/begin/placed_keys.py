"""Looks whether equal keys meet: whether topics that are joined, or share state, have their keys placed in
the same way, and in that of the state that there is.

Equal partition counts are not enough. The engine places keys as Kafka's Java client does; clients on
librdkafka, so Python's, take another hash unless they are told. A record that lies elsewhere meets neither
its partner nor its state, and nothing fails.

Rule: what meets in a store is compared by the keys that lie first in each partition. Where repartition topics
put a key is known, and so it is of a topic, or a changelog, all of whose keys lie there and hardly would by
chance. Of any other only the keys that are seen on both sides say something. More than a quarter of them
elsewhere is refused: a few may have been placed by hand. Of keys in JSON, the engine's bytes decide: what
another program wrote with blanks lies by its own.

It is looked at where it matters first: when state begins, while little was read of a topic, and when state is
to go on with topics that did not feed it. What ``initial.partitions`` names is not looked into. Topics that
have grown, and a partition grouper of the user's, have checks of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import msgspec

from airflow_kstreams.batch.ledger.facts import Assignment, GroupedPartitions
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.run.begin.seen_keys import (
    PARTITIONS,
    KeySeen,
    first_partitions,
    seen_keys,
    to_read,
    whole,
)
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.state_left import give_up
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.plan import EntryKeys, SubtopologyPlan, TopologyPlan, json_decoder

#: Records of a topic up to which each run looks at it again.
_FEW = 1_000
#: If all keys lie by the default partitioner with less probability than this, it is no chance.
_CHANCE = 0.001
_decode = json_decoder(object).decode
#: One key in so many may lie elsewhere.
_ASTRAY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """What is known of the places of keys in a topic, or a changelog.

    :param count: number of its partitions.
    :param seen: the keys that were seen.
    :param ours: whether the engine places its keys, or those that it adds.
    """

    topic: str
    count: int
    seen: tuple[KeySeen, ...] = ()
    ours: bool = False

    @property
    def by_default(self) -> bool:
        """Whether the default partitioner has placed its keys."""
        return self.ours or (not self.astray and self.count ** -len(self.seen) < _CHANCE)

    @property
    def astray(self) -> list[KeySeen]:
        """The keys that the default partitioner would have placed elsewhere."""
        return [key for key in self.seen if key.hashed % self.count != key.at.partition]

    def apart(self, other: _Placed) -> tuple[KeySeen, int] | None:
        """Return a key of the other that would lie elsewhere here, and where; None if hardly any does."""
        known = {key.key: key.at.partition for key in self.seen}
        places = [
            (key, known.get(key.key, key.hashed % self.count))
            for key in other.seen
            if self.by_default or key.key in known
        ]
        apart = [(key, place) for key, place in places if key.at.partition != place]
        return apart[0] if len(apart) * _ASTRAY > len(places) else None


def refuse_keys_apart(
    session: CoordinatorSession,
    plan: TopologyPlan,
    grouped: Mapping[int, GroupedPartitions],
    ledger: Ledger,
    *,
    interval_ms: tuple[int, int] | None,
) -> None:
    """Refuse to begin if equal keys do not meet.

    :param grouped: subtopology id -> its partition groups.
    :param interval_ms: data interval that is to be read, if the run keeps to one, in epoch milliseconds.
    :raises TopologyError: the keys that were seen show that.
    """
    for sub in () if plan.partition_grouper else plan.subtopologies:
        entry = grouped[sub.id]
        if entry.grown or entry.processors is not None:
            continue
        for together in sub.keyed_together:
            topics = [topic for topic in together if topic in sub.sources]
            count = max((entry.partitions[topic] for topic in topics), default=1)
            before = [
                each for each in ledger.assignment.entries if not each.changelogs.keys().isdisjoint(together)
            ]
            fed = {topic for each in before for topic in each.partitions}
            fed_anew = bool(before) and not fed.issuperset(topics)
            if count == 1 or not (fed_anew or (len(topics) > 1 and _little_read(plan, topics, ledger))):
                continue
            most = max(1, PARTITIONS // len(topics))
            placed: list[_Placed] = []
            for topic in topics:
                known = topic in plan.repartition_topics or topic in session.settings.first_counts
                asked = () if known else first_partitions(topic, count, most)
                spans = whole(session, asked) if fed_anew else to_read(session, asked, interval_ms)
                keys = EntryKeys(suffix=sub.key_suffixes.get(topic, 0))
                placing = _rewritten if topic in sub.json_keys else partial(_placing, keys)
                seen = tuple(seen_keys(session, spans, placing))
                placed.append(_Placed(topic=topic, count=count, seen=seen, ours=topic in plan.intermediates))
            _refuse_topics(plan, placed)
            for state in _states(session, plan, sub, before, together, count) if fed_anew else ():
                _refuse_state(ledger.assignment, plan, state, placed)


def _little_read(plan: TopologyPlan, topics: Collection[str], ledger: Ledger) -> bool:
    """Return True if runs have read few records, or none, of one of the topics that others write, too."""
    asked = {*topics} - {*plan.repartition_topics}
    left = ledger.left(asked)
    return any(topic not in left or sum(left[topic].stops_of(topic).values()) < _FEW for topic in asked)


def _states(
    session: CoordinatorSession,
    plan: TopologyPlan,
    sub: SubtopologyPlan,
    before: Collection[GroupedPartitions],
    together: Collection[str],
    count: int,
) -> Iterator[_Placed]:
    """Yield what is known of the state that earlier runs left.

    :param before: partition groups of those runs.
    """
    is_ours = ProtocolTopics(plan.application_id).is_internal
    changelogs = sorted({*sub.changelogs.values()}.intersection(together))
    found = session.admin.describe_topics(changelogs)
    for each in before:
        for topic in changelogs:
            if topic not in found or (found[topic].topic_id, found[topic].partitions) != (
                each.changelogs.get(topic),
                count,
            ):
                continue  # the check of the groups refuses another number
            keys = sub.entry_keys[topic]
            asked = () if keys.unfit else first_partitions(topic, count)
            seen = seen_keys(session, whole(session, asked), partial(_placing, keys))
            yield _Placed(topic=topic, count=count, seen=tuple(seen), ours=all(map(is_ours, each.partitions)))


def _placing(keys: EntryKeys, key: bytes) -> bytes | None:
    try:
        return keys.placing(key)
    except msgspec.MsgspecError:  # the store refuses it when it is restored
        return None


def _rewritten(key: bytes) -> bytes:
    """Return a key as the engine writes it: JSON may hold blanks and escapes that decide its partition."""
    try:
        return msgspec.json.encode(_decode(key))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # an error of its record
        return key


def _refuse_topics(plan: TopologyPlan, placed: list[_Placed]) -> None:
    """:raises TopologyError: equal keys of two topics do not meet."""
    for one, other in permutations(sorted(placed, key=lambda each: not each.by_default), 2):
        apart = one.apart(other)
        if apart is not None:
            key, place = apart
            others = " and ".join(each.topic for each in placed if each is other or each.astray)
            raise TopologyError(
                f"application {plan.application_id!r} keeps state by the keys of {one.topic} and "
                f"{other.topic}, which are placed in different ways: that of {key} would be in partition "
                f"{place} of {one.topic}, and equal keys do not meet",
                fix=f"read {others} through repartition({one.count}), a table by "
                f"builder.stream(topic).repartition({one.count}).to_table(); if keys are to lie as they do, "
                f"initial.partitions={other.topic}={one.count} lets them",
            )


def _refuse_state(recorded: Assignment, plan: TopologyPlan, state: _Placed, placed: list[_Placed]) -> None:
    """:raises TopologyError: keys of a topic do not meet their state."""
    for topic in placed:
        apart = topic.apart(state) or state.apart(topic)
        if apart is not None:
            key, place = apart
            there = topic.topic if key.at.topic == state.topic else state.topic
            app = plan.application_id
            raise TopologyError(
                f"application {app!r} has state in {state.topic}, and its keys are not placed "
                f"as those of {topic.topic} are, which feeds it now: that of {key} would be in partition "
                f"{place} of {there}, and would begin with empty state",
                fix="go back to what read the store's topic as before, with or without a repartition topic, "
                f"or give the state up: {give_up(recorded, plan, state.topic)}",
            )
