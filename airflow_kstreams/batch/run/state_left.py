"""Finds state that earlier runs left and that the topology has no store for, or has a store for again.

Rule: no store begins empty in silence while state is left behind that may be meant for it, and none goes on
with state that missed records. Two stores are the same if they have the same name: the one that the user
gave, or the one made from the operator and its inputs (``docs/internals/names.md``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.ledger.facts import Assignment
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.naming.commands import give_up_command
from airflow_kstreams.streams.naming.topic_names import RETRY_ENDING, ProtocolTopics
from airflow_kstreams.streams.plan import TopologyPlan, UnnamedStore
from airflow_kstreams.streams.ports import TopicDescription


def refuse_left_behind(
    recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]
) -> None:
    """Refuse to leave state behind while another store begins empty that may be meant to go on with it.

    A store without a name of the user's own is named by what it is (``docs/internals/names.md``). One that is
    not in the topology any more was taken out, or it is something else now, or has got a name. Where nothing
    begins empty that could be the same store, it was taken out: that is warned of (:func:`left_behind`). A
    store that the user named was dropped on purpose.

    :param found: the broker's description of each recorded changelog that exists.
    :raises TopologyError: state is left behind, and a store begins empty that may be meant to go on with it;
        the text gives the way out.
    """
    left = _left_behind(recorded, plan, found)
    empty = [store for store in _beginning_empty(recorded, plan, found) if any(map(store.may_be, left))]
    if not left or not empty:
        return
    listed = ", ".join(f"{each.topic} ({each.made_of})" for each in left)
    heirs = [each for each in left if any(store.reads_as(each) for store in empty)]
    pins = " and ".join(dict.fromkeys(each.made_of.pin for each in heirs))
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
    recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]
) -> tuple[str, ...]:
    """Return a warning for state of stores without a name of the user's that is left behind, for a plan that
    :func:`refuse_left_behind` has taken.
    """
    return tuple(
        f"{each.topic} holds state ({each.made_of}) of which the topology has no store any more; no run goes "
        f"on with it; delete it with: {give_up_command(plan.application_id, [each.topic])}"
        for each in _left_behind(recorded, plan, found)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeftBehind:
    """A changelog with state whose store the topology does not have any more.

    :param kind: meaning of the changelog's entries, and their serdes.
    """

    topic: str
    made_of: UnnamedStore
    kind: tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BeginningEmpty:
    """A store that has no state yet.

    :param made_of: operator and topics that the store is made of; None where the user named it.
    :param kind: meaning of its entries to come, and their serdes; None for a store without changelog.
    """

    name: str
    made_of: UnnamedStore | None
    kind: tuple[str | None, str | None] | None

    def may_be(self, left: _LeftBehind) -> bool:
        """Whether it may be the store of that state, changed or named: it reads something else, or does
        something else of its family with what it reads.
        """
        ours, theirs = self.made_of, left.made_of
        if ours is None or ours.kind == theirs.kind:
            return True
        return ours.family == theirs.family and not {*ours.reads}.isdisjoint(theirs.reads)

    def reads_as(self, left: _LeftBehind) -> bool:
        """Whether it could go on with that state."""
        return self.kind == left.kind


def _left_behind(
    recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]
) -> list[_LeftBehind]:
    return [
        _LeftBehind(
            topic=topic,
            made_of=entry.unnamed[topic],
            kind=(entry.state_kinds.get(topic), entry.store_serdes.get(topic)),
        )
        for entry in recorded.current
        for topic, topic_id in entry.changelogs.items()
        if topic in entry.unnamed and topic not in plan.changelogs
        if topic in found and found[topic].topic_id == topic_id
    ]


def _beginning_empty(
    recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]
) -> Iterator[_BeginningEmpty]:
    known = {item for entry in recorded.entries for item in entry.changelogs.items()}
    for sub in plan.subtopologies:
        for store in sub.stores:
            topic = sub.changelogs.get(store, "")
            if not topic:
                yield _BeginningEmpty(name=store, made_of=None, kind=None)
            elif topic not in found or (topic, found[topic].topic_id) not in known:
                yield _BeginningEmpty(
                    name=store,
                    made_of=sub.unnamed.get(topic),
                    kind=(sub.state_kinds.get(topic), sub.store_serdes.get(topic)),
                )


def returned(recorded: Assignment, plan: TopologyPlan, found: Mapping[str, TopicDescription]) -> list[str]:
    """Return the changelogs of stores that the last runs did not have, and that come back. Nothing is left in
    a retry topic that a topology has dropped.

    :param found: the broker's description of each recorded changelog that exists.
    """
    former = {t: i for entry in recorded.former for t, i in entry.changelogs.items()}
    return [
        t
        for t in sorted(former)
        if t in plan.changelogs and t in found and found[t].topic_id == former[t]
        if not t.endswith(RETRY_ENDING)
    ]


def refuse_returned(recorded: Assignment, plan: TopologyPlan, written: Collection[str]) -> None:
    """Refuse to go on with state that missed records which were processed without it.

    :param written: changelogs returned by :func:`returned` that were ever written.
    :raises TopologyError: there is such a changelog; the text gives the way out.
    """
    for topic in sorted(written):
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
    return (
        f"{given_up} (or {plan.start_over_flags(recorded.topics)} in place of --internal-topics {named}: "
        "everything is processed again, with all state empty)"
    )
