"""Finds state that earlier runs left and that the topology has no store for, or has a store for again.

Rule: no store begins empty in silence while state is left behind that may be meant for it, none goes on with
state that missed records, and none with the state of a line that stands elsewhere. Two stores are the same if
they have the same name: the one that the user gave, or the one made from the operator and its inputs
(``docs/internals/names.md``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.ledger.facts import Assignment
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.naming.commands import give_up_command
from airflow_kstreams.streams.naming.topic_names import RETRY_ENDING, ProtocolTopics
from airflow_kstreams.streams.plan import PROCESSOR, MadeOf, TopologyPlan
from airflow_kstreams.streams.ports import TopicDescription


def in_question(recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]) -> list[str]:
    """Return the changelogs of which it matters to the checks of this module whether they were ever written.

    :param found: the broker's description of each recorded changelog that exists.
    """
    exchanged = _exchanged(recorded, plan, found)
    return [
        *(each.topic for each in _left_behind(recorded, plan, found)),
        *(topic for each in exchanged for topic in (each.topic, each.own) if topic),
        *_returned(recorded, plan, found),
    ]


def refuse_left_behind(
    recorded: Assignment,
    plan: TopologyPlan,
    found: Mapping[str, TopicDescription],
    written: Collection[str],
) -> None:
    """Refuse to leave state behind while another store begins empty that may be meant to go on with it.

    A store that is not in the topology any more was taken out, or it is something else now, or has got
    another name. Where nothing begins empty that could be the same store, it was taken out: that is warned of
    (:func:`left_behind`).

    :param found: the broker's description of each recorded changelog that exists.
    :param written: those of :func:`in_question` that were ever written.
    :raises TopologyError: state is left behind, and a store begins empty that may be meant to go on with it;
        the text gives the way out.
    """
    left = [each for each in _left_behind(recorded, plan, found) if each.topic in written]
    unwritten = {each.topic for each in _exchanged(recorded, plan, found)}.difference(written)
    beginning = _beginning_empty(recorded, plan, found, unwritten)
    empty = [store for store in beginning if any(map(store.may_be, left))]
    if not left or not empty:
        return
    listed = ", ".join(f"{each.topic} ({each.made_of})" for each in left)
    pins = " and ".join(
        dict.fromkeys(
            store.pin(each) for each in left for store in empty if store.may_be(each) and store.reads_as(each)
        )
    )
    go_on = (
        f"to go on with the state, write {pins} where it is to go on; or give it up"
        if pins
        else ("none of these could go on with that state; give it up")
    )
    raise TopologyError(
        f"application {plan.application_id!r} has state in {listed}, for which its topology has no store any "
        f"more: it would begin empty with {', '.join(repr(store.name) for store in empty)}",
        fix=f"{go_on}: {give_up(recorded, plan, *(each.topic for each in left))}",
    )


def left_behind(
    recorded: Assignment,
    plan: TopologyPlan,
    found: Mapping[str, TopicDescription],
    written: Collection[str],
) -> tuple[str, ...]:
    """Return a warning for state of stores that is left behind, for a plan that :func:`refuse_left_behind`
    has taken.
    """
    return tuple(
        f"{each.topic} holds state ({each.made_of}) of which the topology has no store any more; no run goes "
        f"on with it; delete it with: {give_up_command(plan.application_id, [each.topic])}"
        for each in _left_behind(recorded, plan, found)
        if each.topic in written
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeftBehind:
    """A changelog with state whose store the topology does not have any more.

    :param store: name of the store.
    :param kind: meaning of the changelog's entries, and their serdes.
    """

    topic: str
    store: str
    made_of: MadeOf
    kind: tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BeginningEmpty:
    """A store that has no state yet.

    :param kind: meaning of its entries to come, and their serdes; None for a store without changelog.
    """

    name: str
    made_of: MadeOf
    kind: tuple[str | None, str | None] | None

    def may_be(self, left: _LeftBehind) -> bool:
        """Whether it may be the store of that state, changed or renamed: it reads something else, or does
        something else of its family with what it reads. A processor's store may hold what an operator's held,
        and the other way round, if their entries are alike.
        """
        ours, theirs = self.made_of, left.made_of
        if self.name == left.store or ours.kind == theirs.kind:
            return True
        if PROCESSOR in (ours.kind, theirs.kind):
            return self.kind == left.kind
        return ours.family == theirs.family and not {*ours.reads}.isdisjoint(theirs.reads)

    def reads_as(self, left: _LeftBehind) -> bool:
        """Whether it could go on with that state, if it had its name and a changelog."""
        return self.kind == left.kind or self.name == left.store

    def pin(self, left: _LeftBehind) -> str:
        """Return what the user writes to let it go on with that state."""
        return "logged=True" if self.name == left.store else self.made_of.pin(left.made_of.name)


def _left_behind(
    recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]
) -> list[_LeftBehind]:
    store_of = ProtocolTopics(plan.application_id).store_of
    return [
        _LeftBehind(
            topic=topic,
            store=store_of(topic),
            made_of=entry.made_of[store_of(topic)],
            kind=(entry.state_kinds.get(topic), entry.store_serdes.get(topic)),
        )
        for entry in recorded.current
        for topic, topic_id in entry.changelogs.items()
        if store_of(topic) in entry.made_of and topic not in plan.changelogs
        if topic in found and found[topic].topic_id == topic_id
    ]


def _beginning_empty(
    recorded: Assignment,
    plan: TopologyPlan,
    found: Mapping[str, TopicDescription],
    unwritten: Collection[str],
) -> Iterator[_BeginningEmpty]:
    """Yield the stores that have no state yet, but for those without changelog that the last runs had, too:
    they begin empty in every run.

    :param unwritten: changelogs of another store's name that hold nothing.
    """
    changelog = ProtocolTopics(plan.application_id).changelog
    known = {item for entry in recorded.entries for item in entry.changelogs.items()}
    logged = {topic for entry in recorded.current for topic in entry.changelogs}
    unlogged = {
        store for entry in recorded.current for store in entry.made_of if changelog(store) not in logged
    }
    for sub in plan.subtopologies:
        for store, made_of in sub.made_of.items():
            topic = sub.changelogs.get(store, "")
            if not topic and store not in unlogged:
                yield _BeginningEmpty(name=store, made_of=made_of, kind=None)
            elif topic and (
                topic in unwritten or topic not in found or (topic, found[topic].topic_id) not in known
            ):
                yield _BeginningEmpty(
                    name=store,
                    made_of=made_of,
                    kind=(sub.state_kinds.get(topic), sub.store_serdes.get(topic)),
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchanged:
    """A store that has got the name of another one, and would go on with the state of that.

    :param topic: changelog of the name that it has got.
    :param was: the store that the state is of.
    :param now: the store of the name in the topology.
    :param homeless: the store in the topology that is made of what the state is of, and does not go on with
        any of that; None if there is none.
    :param own: changelog of what the store of the name is made of, if no store goes on with it; empty if
        there is none.
    :param own_name: name that goes on with that.
    """

    topic: str
    was: MadeOf
    now: MadeOf
    homeless: MadeOf | None
    own: str
    own_name: str

    def is_wrong(self, written: Collection[str]) -> bool:
        """Return True if one of two stores would lose its state to the other, or leave it. To give a changed
        line the name of its state is allowed: that says to go on with it.
        """
        return self.topic in written and (self.homeless is not None or self.own in written)

    def told(self, written: Collection[str]) -> str:
        """Return what would happen, in words."""
        at = f"{self.topic} ({self.was}) as {self.now}"
        if self.own in written:
            return f"{at}, whose state is in {self.own}"
        return f"{at}, and leave it to no {self.was}"

    @property
    def pins(self) -> Iterator[str]:
        """What to write so that each store goes on with its own."""
        another = self.now.pin(self.own_name) if self.own else "another name"
        yield f"{another} for the {self.now}"
        if self.homeless is not None:
            yield f"{self.homeless.pin(self.was.name)} for the {self.was}"


def _exchanged(
    recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]
) -> list[_Exchanged]:
    store_of = ProtocolTopics(plan.application_id).store_of
    before = {
        topic: entry.made_of[store_of(topic)]
        for entry in recorded.current
        for topic, topic_id in entry.changelogs.items()
        if store_of(topic) in entry.made_of
        if topic in found and found[topic].topic_id == topic_id
    }
    after = {
        topic: sub.made_of[store]
        for sub in plan.subtopologies
        for store, topic in sub.changelogs.items()
        if store in sub.made_of
    }

    def without(one: Mapping[str, MadeOf], other: Mapping[str, MadeOf], made_of: MadeOf) -> Iterator[str]:
        """Yield the changelogs of what is made of the same in one, and is not in the other."""
        return (
            topic
            for topic, each in one.items()
            if made_of.reads and each.same_as(made_of)
            if not (topic in other and other[topic].same_as(made_of))
        )

    exchanged: list[_Exchanged] = []
    for topic, now in after.items():
        was = before.get(topic, now)
        if not now.same_as(was):
            own, homeless = next(without(before, after, now), ""), next(without(after, before, was), "")
            exchanged.append(
                _Exchanged(
                    topic=topic,
                    was=was,
                    now=now,
                    homeless=after.get(homeless),
                    own=own,
                    own_name=before[own].name if own else "",
                )
            )
    return exchanged


def refuse_exchanged(
    recorded: Assignment,
    plan: TopologyPlan,
    found: Mapping[str, TopicDescription],
    written: Collection[str],
) -> None:
    """Refuse to go on with the state of another line, while that line, or the state of the line itself, is
    there under another name.

    :param found: the broker's description of each recorded changelog that exists.
    :param written: those of :func:`in_question` that were ever written.
    :raises TopologyError: there is such a store; the text gives the way out.
    """
    exchanged = [each for each in _exchanged(recorded, plan, found) if each.is_wrong(written)]
    if not exchanged:
        return
    listed = ", ".join(each.told(written) for each in exchanged)
    pins = " and ".join(dict.fromkeys(pin for each in exchanged for pin in each.pins))
    topics = {topic for each in exchanged for topic in (each.topic, each.own) if topic}
    raise TopologyError(
        f"the topology of application {plan.application_id!r} would go on with the state in {listed}",
        fix=f"to go on with the state of each, write {pins}; or give these states up: "
        f"{give_up(recorded, plan, *topics)}",
    )


def _returned(recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]) -> list[str]:
    """Return the changelogs of stores that the last runs did not have, and that come back. Nothing is left in
    a retry topic that a topology has dropped.
    """
    former = {t: i for entry in recorded.former for t, i in entry.changelogs.items()}
    return [
        t
        for t in sorted(former)
        if t in plan.changelogs and t in found and found[t].topic_id == former[t]
        if not t.endswith(RETRY_ENDING)
    ]


def refuse_returned(
    recorded: Assignment,
    plan: TopologyPlan,
    found: Mapping[str, TopicDescription],
    written: Collection[str],
) -> None:
    """Refuse to go on with state that missed records which were processed without it.

    :param found: the broker's description of each recorded changelog that exists.
    :param written: those of :func:`in_question` that were ever written.
    :raises TopologyError: there is such a changelog; the text gives the way out.
    """
    for topic in _returned(recorded, plan, found):
        if topic not in written:
            continue
        store = ProtocolTopics(plan.application_id).store_of(topic)
        raise TopologyError(
            f"store {store!r} of application {plan.application_id!r} was not in the topology of run "
            f"{recorded.run_id!r}, and comes back: {topic} holds its state of before, without what was "
            "processed since",
            fix=f"give the store another name, or give that state up: {give_up(recorded, plan, topic)}",
        )


def give_up(recorded: Assignment, plan: TopologyPlan, *changelogs: str) -> str:
    """Return the command that gives up the state in changelogs, and the one that builds all state anew.

    :param recorded: names the topics that runs have read.
    """
    given_up, named = give_up_command(plan.application_id, changelogs), ",".join(sorted(changelogs))
    # A reset of all state reads topics whole that no run has read.
    start_over = plan.start_over_flags(recorded.topics) or "nothing"
    return (
        f"{given_up} (or {start_over} in place of --internal-topics {named}: everything is processed again, "
        "with all state empty)"
    )
