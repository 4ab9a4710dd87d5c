"""Which partition groups the state of an application stands on."""

from __future__ import annotations

import msgspec

from airflow_kstreams.streams.partitioning.partition_groups import Groups, equal_ids
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic


class GroupedPartitions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the partitions of one subtopology are grouped, and which state depends on it.

    :param partitions: partition count per source topic.
    :param groups: by group id; empty when equal ids are together.
    :param changelogs: topic id of each changelog whose partition ``n`` holds the state of group ``n``.
    :param state_kinds: what the entries of each changelog mean, see ``SubtopologyPlan``.
    :param store_serdes: by which serdes they are written.
    :param grown: the source topics that have gained partitions since their producers began.
    :param boundaries: partitions that wait for their ancestors, ``topic-partition`` -> number of the ancestor
        -> the offset that must be committed of it first.
    :param found_empty: partitions that topics have gained and in which no run has found anything yet.
    :param processors: how keys find their group, once there are more groups than there were partitions at
        first; None before.
    :param moved_from: changelogs that hold entries still whose keys have moved to another group.
    """

    partitions: dict[str, int]
    groups: Groups = ()
    changelogs: dict[str, str] = {}
    state_kinds: dict[str, str] = {}
    store_serdes: dict[str, str] = {}
    grown: dict[str, GrownTopic] = {}
    boundaries: dict[str, dict[int, int]] = {}
    found_empty: tuple[str, ...] = ()
    processors: Processors | None = None
    moved_from: tuple[str, ...] = ()

    @property
    def by_group(self) -> Groups:
        """The groups, written out."""
        return self.groups or equal_ids(self.partitions)


class Assignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which partition group each partition is in; one record in the ledger topic, written by begin.

    :param version: grows by one with every change.
    :param run_id: the run that made the last change.
    :param subtopologies: subtopology id as text -> its groups.
    :param former: groups of changelogs that the topology does not have any more, in case they come back.
    """

    version: int
    run_id: str
    subtopologies: dict[str, GroupedPartitions]
    former: tuple[GroupedPartitions, ...] = ()
