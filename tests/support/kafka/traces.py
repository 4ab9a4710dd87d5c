"""What a visitor would leave on a broker: records, topics, groups, committed offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.conftest import Deadline

_SECONDS = 30.0
#: Tests of the clients' contract leave transactions that have a partition and no record. Nothing tells that
#: they are open, and their markers come when they time out, a minute later.
_MARKED_LATER = "contract-"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """Everything on a broker that could tell of a visitor.

    The broker's own topics are left out: it writes there when it drops a group that an earlier test has left
    empty. What a visitor would leave there is a group, or offsets of one. So are topics of the contract's
    tests, which no visitor is sent to.

    :param ends: (topic, partition) -> offset of its log's end, aborted records and markers included.
    :param committed: group -> its (topic, partition, offset, metadata).
    """

    ends: dict[tuple[str, int], int]
    committed: dict[str, set[tuple[Any, ...]]]

    def changed_since(self, before: BrokerState) -> set[Any]:
        """Return the partitions and the groups that are new or not as they were; a group may have gone."""
        ends = {*self.ends.items()} ^ {*before.ends.items()}
        groups = {
            group for group, offsets in self.committed.items() if before.committed.get(group) != offsets
        }
        return ends | groups


def broker_state(admin: AdminClient) -> BrokerState:
    """Return what is on the broker, once no transaction is open: markers come after the commit returned."""

    def closed_ends() -> dict[tuple[str, int], int] | None:
        ends = _ends(admin, IsolationLevel.READ_UNCOMMITTED)
        return ends if ends == _ends(admin, IsolationLevel.READ_COMMITTED) else None

    ends = Deadline(seconds=_SECONDS).until(closed_ends, "all transactions have ended")
    groups = admin.list_consumer_groups(request_timeout=_SECONDS).result(_SECONDS)
    return BrokerState(
        ends=ends, committed={group.group_id: _committed(admin, group.group_id) for group in groups.valid}
    )


def _ends(admin: AdminClient, isolation: IsolationLevel) -> dict[tuple[str, int], int]:
    topics = admin.list_topics(timeout=_SECONDS).topics
    partitions = [
        TopicPartition(topic, partition)
        for topic, known in topics.items()
        if not topic.startswith(("__", _MARKED_LATER))
        for partition in known.partitions
    ]
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ends = admin.list_offsets(
        dict.fromkeys(partitions, latest), isolation_level=isolation, request_timeout=_SECONDS
    )
    return {(tp.topic, tp.partition): future.result(_SECONDS).offset for tp, future in ends.items()}


def _committed(admin: AdminClient, group: str) -> set[tuple[Any, ...]]:
    asked = [ConsumerGroupTopicPartitions(group)]
    (answer,) = admin.list_consumer_group_offsets(asked, request_timeout=_SECONDS).values()
    partitions = answer.result(_SECONDS).topic_partitions
    return {(one.topic, one.partition, one.offset, one.metadata) for one in partitions}
