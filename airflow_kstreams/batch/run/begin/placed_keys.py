"""Looks whether equal keys meet: whether topics that are joined, or share state, have their keys placed in
the same way, and in that of the state that there is.

Equal partition counts are not enough. The engine places keys as Kafka's Java client does; clients on
librdkafka, so Python's, take another hash unless they are told. A record that lies elsewhere meets neither
its partner nor its state, and nothing fails.

Rule: what meets in a store is compared by the keys that lie first in each partition. Where repartition topics
put a key is known, and so it is of a topic, or a changelog, all of whose keys lie there and hardly would by
chance. Of any other only the keys that are seen on both sides say something. More than a quarter of them
elsewhere is refused: a few may have been placed by hand. Of keys in JSON and MessagePack, the engine's bytes
decide, which follow from the description of the keys' type in the plan: what another program wrote in other
bytes lies by those, and a topic with both has a key in two partitions.

It is looked at where it matters first: when state begins, where something is new in a topic of which little
was read, and when state is to go on with topics that did not feed it. What ``initial.partitions`` names is
not looked into. Topics that have grown, and a partition grouper of the user's, have checks of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import msgspec

from airflow_kstreams.batch.ledger.facts import Assignment, GroupedPartitions
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.run.begin.seen_keys import (
    PARTITIONS,
    KeyLook,
    KeySeen,
    Placing,
    first_partitions,
    seen_keys,
)
from airflow_kstreams.batch.run.state_left import give_up
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.plan import EntryKeys, KeyForm, SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.serde.key_forms import Rewrite, as_written, in_one_form

#: Offsets of a topic up to which a run that finds something new there looks at it again.
_FEW = 200
#: If all keys lie by the default partitioner with less probability than this, it is no chance.
_CHANCE = 0.001
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

    @property
    def twice(self) -> list[tuple[KeySeen, KeySeen]]:
        """The keys that lie in two partitions, unless hardly any does."""
        first: dict[bytes, KeySeen] = {}
        found: dict[bytes, KeySeen] = {}
        for key in self.seen:
            if first.setdefault(key.key, key).at != key.at:
                found[key.key] = key
        pairs = [(first[key], other) for key, other in found.items()]
        return pairs if len(pairs) * _ASTRAY > len(first) else []

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meeting:
    """Topics, and changelogs, whose equal keys are to lie in partitions of equal numbers.

    :param names: their names.
    :param topics: names of the topics that are read.
    :param count: number of partitions.
    :param before: recorded groups of the changelogs.
    """

    sub: SubtopologyPlan
    names: tuple[str, ...]
    topics: tuple[str, ...]
    count: int
    before: tuple[GroupedPartitions, ...]

    @property
    def fed_anew(self) -> bool:
        """Whether state is to go on with topics that did not feed it."""
        fed = {topic for each in self.before for topic in each.partitions}
        return bool(self.before) and not fed.issuperset(self.topics)

    @property
    def begins(self) -> bool:
        """Whether there is state that no run has kept yet."""
        kept = {changelog for each in self.before for changelog in each.changelogs}
        return not kept.issuperset({*self.sub.changelogs.values()}.intersection(self.names))

    @property
    def may_part(self) -> bool:
        """Whether the topics alone may show keys that do not meet."""
        return len(self.topics) > 1 or not self.forms.keys().isdisjoint(self.topics)

    @property
    def forms(self) -> dict[str, KeyForm]:
        """The forms of keys whose bytes may be others than the engine's, by topic."""
        return {topic: form for form in self.sub.key_forms for topic in form.topics}

    @property
    def certain_form(self) -> KeyForm | None:
        """The form of the keys if it is known of all topics what the engine would write for their keys."""
        forms = [self.forms[topic] for topic in self.topics if topic in self.forms]
        certain = len(forms) == len(self.topics) and all(form.type is not None for form in forms)
        return forms[0] if certain else None

    def asked(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that are looked at."""
        return first_partitions(topic, self.count, max(1, PARTITIONS // len(self.topics)))


def refuse_keys_apart(
    look: KeyLook, plan: TopologyPlan, grouped: Mapping[int, GroupedPartitions], ledger: Ledger
) -> None:
    """Refuse to begin if equal keys do not meet.

    :param grouped: subtopology id -> its partition groups.
    :raises TopologyError: the keys that were seen show that.
    """
    meetings = list(_meetings(plan, grouped, ledger))
    known = {*plan.repartition_topics, *look.session.settings.first_counts}
    # What most runs find is that nothing is new in what was read little, or that there is no such topic.
    little = {
        tp
        for each in meetings
        for topic in (each.topics if each.may_part and not each.fed_anew else ())
        if topic not in known and (each.begins or _little_read(topic, ledger))
        for tp in each.asked(topic)
    }
    new = look.find_new(sorted(little))
    looked = [each for each in meetings if each.fed_anew or not new.isdisjoint(each.topics)]
    seen = _seen(look, looked, known)
    for each in looked:
        placed = [
            _Placed(topic=topic, count=each.count, seen=seen.get(topic, ()), ours=topic in plan.intermediates)
            for topic in each.topics
        ]
        for topic in placed:
            if topic.topic in each.forms:
                _refuse_two_forms(plan, topic, each.forms[topic.topic])
        _refuse_topics(plan, placed)
        for state in _states(look, plan, each) if each.fed_anew else ():
            _refuse_state(ledger.assignment, plan, state, placed)


def _seen(look: KeyLook, looked: Sequence[_Meeting], known: Container[str]) -> dict[str, tuple[KeySeen, ...]]:
    """Return by topic the keys that are seen in it, in one look at all.

    :param known: topics that are not looked into.
    """
    placings: dict[str, Placing] = {}
    one_form: dict[str, Rewrite] = {}
    some, all_of = dict[TopicPartition, None](), dict[TopicPartition, None]()
    for each in looked:
        for topic in each.topics:
            if topic not in known:
                (all_of if each.fed_anew else some).update(dict.fromkeys(each.asked(topic)))
                placings[topic] = partial(_placing, EntryKeys(suffix=each.sub.key_suffixes.get(topic, 0)))
                if topic in each.forms:
                    placings[topic] = as_written(each.forms[topic])
                    one_form[topic] = in_one_form(each.forms[topic])
    spans = {**look.reaching_back([*some]), **look.whole([*all_of])}
    found: dict[str, list[KeySeen]] = {}
    for key in seen_keys(look.session, spans, placings):
        rewrite = one_form.get(key.at.topic, bytes)
        found.setdefault(key.at.topic, []).append(dataclasses.replace(key, key=rewrite(key.key)))
    return {topic: tuple(keys) for topic, keys in found.items()}


def _meetings(
    plan: TopologyPlan, grouped: Mapping[int, GroupedPartitions], ledger: Ledger
) -> Iterator[_Meeting]:
    for sub in () if plan.partition_grouper else plan.subtopologies:
        entry = grouped[sub.id]
        if entry.grown or entry.processors is not None:
            continue
        for names in sub.keyed_together:
            topics = tuple(topic for topic in names if topic in sub.sources)
            count = max((entry.partitions[topic] for topic in topics), default=1)
            before = tuple(
                each for each in ledger.assignment.entries if not each.changelogs.keys().isdisjoint(names)
            )
            if count > 1:
                yield _Meeting(sub=sub, names=names, topics=topics, count=count, before=before)


def _little_read(topic: str, ledger: Ledger) -> bool:
    """Return True if runs have read few records of a topic, or none."""
    left = ledger.left([topic])
    return topic not in left or sum(left[topic].stops_of(topic).values()) < _FEW


def _states(look: KeyLook, plan: TopologyPlan, meeting: _Meeting) -> Iterator[_Placed]:
    """Yield what is known of the state that earlier runs left."""
    is_ours = ProtocolTopics(plan.application_id).is_internal
    changelogs = sorted({*meeting.sub.changelogs.values()}.intersection(meeting.names))
    found = look.session.admin.describe_topics(changelogs)
    for each in meeting.before:
        for topic in changelogs:
            if topic not in found or (found[topic].topic_id, found[topic].partitions) != (
                each.changelogs.get(topic),
                meeting.count,
            ):
                continue  # the check of the groups refuses another number
            # Entries in other bytes than the records had are compared if both have one known form.
            keys, form = meeting.sub.entry_keys[topic], meeting.certain_form
            unknown = keys.unfit and not (keys.rewritten and form is not None)
            asked = () if unknown else first_partitions(topic, meeting.count)
            seen = seen_keys(look.session, look.whole(asked), {topic: partial(_placing, keys)})
            rewrite = bytes if form is None else in_one_form(form)
            yield _Placed(
                topic=topic,
                count=meeting.count,
                seen=tuple(dataclasses.replace(key, key=rewrite(key.key)) for key in seen),
                ours=all(map(is_ours, each.partitions)),
            )


def _placing(keys: EntryKeys, key: bytes) -> bytes | None:
    try:
        return keys.placing(key)
    except msgspec.MsgspecError:  # the store refuses it when it is restored
        return None


def _refuse_two_forms(plan: TopologyPlan, topic: _Placed, form: KeyForm) -> None:
    """:raises TopologyError: equal keys of one topic do not meet, because their bytes differ."""
    for one, other in topic.twice[:1]:
        # The engine's own bytes of the two differ, too, where no class says the order of the fields.
        orders = form.type is not None and one.hashed != other.hashed
        a_class = " with keys of a class, as in serdes.of(Key), which has its fields in one order"
        raise TopologyError(
            f"application {plan.application_id!r} keeps state by the keys of {topic.topic}, and that of "
            f"{one} is that of {other}, too: producers that write equal keys in different bytes, as JSON "
            "with blanks and without, or with fields in different orders, part them",
            fix=f"read {topic.topic}{a_class if orders else ''} through repartition({topic.count}), a table "
            f"by builder.stream(topic).repartition({topic.count}).to_table(); if keys are to lie as they "
            f"do, initial.partitions={topic.topic}={topic.count} lets them",
        )


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
