"""Tells an application's own internal topics from those of another application.

Names cannot tell them apart: ``orders`` with a store ``eu-totals`` and ``orders-eu`` with a store ``totals``
have a changelog of one name. Rule: a topic is the application's if its ledger has the topic's id. The
application claims a topic whose id its ledger does not have if no record was ever written to it; and any
topic, if the ledger was lost, and the ids with it. A topic whose id is in another application's ledger
belongs to that one in any case.

Two applications that begin at the same moment may both find a topic that was never written. Each writes its
claim first, and looks at the other's ledger after that: at least the later one sees the other's claim.

Crash argument: begin makes topics before it writes their ids. A crash in between leaves topics that are
unknown and were never written. After it, the claim stands, and every driver that claims the slice looks
again whether another application has claimed the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.ledger.facts import OwnTopic, OwnTopics
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS, OpenTransactionError
from airflow_kstreams.batch.protocol.slice.slice import RunPlan
from airflow_kstreams.streams.errors import AccessDeniedError, ConfigError, KafkaClientError, TopologyError
from airflow_kstreams.streams.naming.commands import delete_topic_command, drop_slice_command, give_up_command
from airflow_kstreams.streams.naming.topic_names import (
    OWN_ENDINGS,
    PROTOCOL_ENDINGS,
    RETRY_ENDING,
    ProtocolTopics,
)
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort, TopicDescription
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

_RENAME = (
    "give the store, or the operator that names the topic, another name in one of the applications, or give "
    "one of them another id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopics:
    """Holds the topics that an application knows as its own internal ones.

    :param ids: topic -> its id, as far as the ledger and the metadata topic have it.
    :param all_known: whether every other topic is certain to hold no record of the application.
    """

    ids: Mapping[str, str]
    all_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The other applications of a cluster, as far as this user may see them.

    :param reader: reader of committed records; its earlier assignment is lost.
    """

    cluster: ClusterPort
    admin: AdminPort
    reader: ReaderPort
    clock: Clock

    def owners(self, application_id: str, ids: Mapping[str, str], *, wait_ms: int = 0) -> dict[str, str]:
        """Return the internal topics of an application whose ids another application's ledger has -> the id
        of that application.

        :param ids: topic -> its id.
        :param wait_ms: milliseconds that a read of their ledgers waits for open transactions to end.
        """
        others = {topic: _others(application_id, topic) for topic in ids}
        found: dict[str, str] = {}
        for other in self._there({name for names in others.values() for name in names}):
            theirs = recorded_ids(self.ledger_of(other, wait_ms=wait_ms))
            found |= {
                topic: other
                for topic, names in others.items()
                if other in names and theirs.get(topic) == ids[topic]
            }
        return found

    def _there(self, applications: Collection[str]) -> list[str]:
        """Return the applications that have a ledger."""
        ledgers = {ProtocolTopics(name).ledger: name for name in sorted(applications)}
        try:
            return [ledgers[topic] for topic in sorted(self.admin.describe_topics(ledgers))]
        except AccessDeniedError:
            return [ledgers[topic] for topic in ledgers if self._is_visible(topic)]

    def _is_visible(self, topic: str) -> bool:
        try:
            return topic in self.admin.describe_topics([topic])
        except AccessDeniedError:
            return False

    def ledger_of(self, application_id: str, *, wait_ms: int = 0) -> Ledger:
        """Return an application's ledger; an empty one if there is none, or it cannot be read.

        :param wait_ms: milliseconds to wait for open transactions to end.
        """
        try:
            return self._ledger(application_id, wait_ms)
        except (KafkaClientError, ConfigError) as error:
            if error.is_retriable:
                raise
            log.info("the ledger of application %s is not read: %s", application_id, error)
            return Ledger()

    def _ledger(self, application_id: str, wait_ms: int) -> Ledger:
        read = partial(read_ledger, self.cluster, admin=self.admin, reader=self.reader, clock=self.clock)
        try:
            return read(application_id, wait_ms=wait_ms)
        except OpenTransactionError:
            return read(application_id, wait_ms=0)


def known_topics(facts: RunFacts) -> KnownTopics:
    """Return the application's internal topics as the ledger and the metadata topic have them."""
    ledger, slice_ = facts.ledger, facts.metadata.slice
    ids = recorded_ids(ledger)
    if slice_ is not None:
        ids |= _ids_of(slice_.plan)
    return KnownTopics(ids=ids, all_known=ledger.own_topics is not None or (ledger.unwritten and not ids))


def recorded_ids(ledger: Ledger) -> dict[str, str]:
    """Return the ids of internal topics that a ledger has; of several ids of a topic, the one
    written last.
    """
    own = {} if ledger.own_topics is None else ledger.own_topics.ids
    # The metadata topic is among them.
    ids = {topic: id_ for topic, id_ in own.items() if topic.endswith(OWN_ENDINGS)}
    if ledger.current_continuous is not None:
        ids |= _ids_of(ledger.current_continuous.plan)
    for entry in ledger.assignment.entries:
        ids |= entry.changelogs
    return ids


def _ids_of(plan: RunPlan) -> dict[str, str]:
    ids = plan.topic_ids | plan.changelog_ids
    return {topic: ids[topic] for topic in _internal(plan.topology) if topic in ids}


def refuse_foreign(
    neighbours: Neighbours,
    plan: TopologyPlan,
    found: Mapping[str, TopicDescription],
    known: KnownTopics,
) -> None:
    """Refuse to run on internal topics that are not the application's.

    :param found: the broker's description of each topic that exists.
    :raises TopologyError: a topic holds records that others have written, or is another application's.
    """
    app = plan.application_id
    ids = {topic: found[topic].topic_id for topic in _internal(plan) if topic in found}
    unknown = {topic: id_ for topic, id_ in ids.items() if known.ids.get(topic) != id_}
    if not unknown:
        return
    owners = neighbours.owners(app, unknown)
    causes = [_of_another(app, topic, owner) for topic, owner in sorted(owners.items())]
    commands: list[str] = []
    for topic in sorted(ever_written(neighbours.admin, found, unknown.keys() - owners.keys())):
        before = known.ids.get(topic)
        if before is None and not known.all_known:
            continue
        other = (
            ", and no run created it" if before is None else f": its id is {ids[topic]}, expected {before}"
        )
        causes.append(f"topic {topic} of application {app!r} holds records of other producers{other}")
        # Runs that built their state on a changelog are forgotten with it.
        state_is_lost = before is not None and topic in plan.changelogs
        commands.append(give_up_command(app, [topic]) if state_is_lost else delete_topic_command(topic))
    if causes:
        delete = f"; or, if its records are of no use, delete it: {'; '.join(commands)}" if commands else ""
        raise TopologyError("; ".join(causes), fix=_RENAME + delete)


def refuse_output_of_another(
    neighbours: Neighbours,
    plan: TopologyPlan,
    found: Mapping[str, TopicDescription],
    dead_letter_topic: str,
) -> None:
    """Refuse to write into what another application keeps for itself: its metadata topic, its ledger
    and its internal topics.

    :param found: the broker's description of each topic that exists.
    :param dead_letter_topic: the topic that takes dead letters; empty if none does.
    :raises TopologyError: an output, or the dead-letter topic, is such a topic.
    """
    app = plan.application_id
    outputs = sorted({*plan.outputs} & found.keys())
    internal = {topic: found[topic].topic_id for topic in outputs if topic.endswith(OWN_ENDINGS)}
    owners = neighbours.owners(app, internal) if internal else {}
    for topic in (*outputs, dead_letter_topic):
        other = next((topic.removesuffix(end) for end in PROTOCOL_ENDINGS if topic.endswith(end)), app)
        if other != app and not neighbours.ledger_of(other).unwritten:
            owners[topic] = other
    if owners:
        topic, owner = min(owners.items())
        raise TopologyError(
            f"application {app!r} would write into topic {topic}, which application {owner!r} keeps for "
            "itself: its runs would be refused, or go wrong",
            fix="give send_to, through, or errors.dead.letter.queue.topic.name a topic of your own",
        )


def refuse_shared(neighbours: Neighbours, plan: RunPlan) -> None:
    """Refuse to work on internal topics that another application has claimed, too; the coordinator calls it
    after it has written its own claim.

    :raises TopologyError: there are such topics.
    """
    app = plan.topology.application_id
    owners = neighbours.owners(app, _ids_of(plan), wait_ms=OPEN_TRANSACTION_TIMEOUT_MS)
    if owners:
        causes = [_of_another(app, topic, owner) for topic, owner in sorted(owners.items())]
        raise TopologyError(
            "; ".join(causes), fix=f"{_RENAME}, and drop this one's slice: {drop_slice_command(app)}"
        )


def next_own_topics(
    ledger: Ledger, known: KnownTopics, ids: Mapping[str, str], plan: TopologyPlan
) -> OwnTopics | None:
    """Return the record of the application's topics to write, None if the ledger has it already.

    :param ids: id of every topic that the new run uses, the metadata topic included if it exists.
    :param plan: topology of the new run.
    """
    own = OwnTopics(
        topics={
            topic: OwnTopic(id=id_, fed_by=plan.fed_by.get(topic) or fed_before(ledger, topic, id_))
            for topic, id_ in sorted({**known.ids, **ids}.items())
        }
    )
    return None if own == ledger.own_topics else own


def fed_before(ledger: Ledger, topic: str, topic_id: str) -> tuple[str, ...]:
    """Return the topics that the records in a repartition topic are made of, by the last run that used it;
    empty where that is not known.

    :param topic_id: id of the topic now.
    """
    own = None if ledger.own_topics is None else ledger.own_topics.topics.get(topic)
    return own.fed_by if own is not None and own.id == topic_id else ()


def ever_written(
    admin: AdminPort, found: Mapping[str, TopicDescription], topics: Collection[str]
) -> set[str]:
    """Return the topics into which a record was ever written, whether the record still exists or not."""
    partitions = described_partitions(found, sorted(topics))
    ends = admin.end_offsets(partitions, isolation="read_uncommitted") if partitions else {}
    return {tp.topic for tp, end in ends.items() if end}


def _of_another(application_id: str, topic: str, owner: str) -> str:
    return f"topic {topic} of application {application_id!r} also belongs to application {owner!r}"


def _internal(plan: TopologyPlan) -> list[str]:
    return sorted({*plan.repartition_topics, *plan.changelogs})


def _others(application_id: str, topic: str) -> set[str]:
    """Return the ids of other applications that could have an internal topic of this name."""
    words = topic.split("-")
    begun = {"-".join(words[:count]) for count in range(1, len(words))}
    others = begun - {application_id, ""}
    if topic.endswith(RETRY_ENDING):
        return {name for name in others if len(topic) > len(f"{name}-{RETRY_ENDING}")}
    return {name for name in others if ProtocolTopics(name).is_internal(topic)}
