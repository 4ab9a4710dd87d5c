"""What checkers must know of a scenario, and how they say that something must not have happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.service import Service
from tests.simulation.stages import Application
from tests.simulation.steps import CallingNode


class ViolationError(Exception):
    """Something that must never happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInterval:
    """What cuts the log for a run.

    :param end_ms: end of its data interval.
    :param readable: what a reader of committed records could read to, when a scheduler first started it.
    """

    end_ms: int
    readable: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What the checkers must know of a scenario.

    :param run_ids: runs that a scheduler brought to their end.
    :param partitions: of every topic that is not the engine's own.
    :param outsiders: (topic, value) of records that outsiders wrote.
    :param commit_every: records between two commit points, 0 for the end of the slice only.
    :param intervals: of the runs that a scheduler started, if data intervals cut the log.
    :param readable: what could be read when a scheduler first started each run.
    :param buffered: records that a task looks ahead to in each partition.
    :param calling: the asynchronous nodes.
    :param service: what they call; None if there are none.
    :param waiting: how many records may be under way in a task; 0 for many.
    :param advances: whether the end of a run brings stream time to that of its data interval.
    """

    application: Application
    run_ids: frozenset[str]
    partitions: dict[str, int]
    exactly_once: bool
    outsiders: frozenset[tuple[str, str]]
    commit_every: int
    intervals: Mapping[str, RunInterval] = field(default_factory=dict)
    readable: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    buffered: int = 1_000
    calling: Sequence[CallingNode] = ()
    service: Service | None = None
    waiting: int = 0
    advances: bool = False

    def moments(self, run_ids: Sequence[str]) -> list[int | None]:
        """Return to which moment each run advances stream time at its end; None if to none."""
        found = [self.intervals.get(run_id) if self.advances else None for run_id in run_ids]
        return [None if interval is None else interval.end_ms for interval in found]

    @property
    def parks(self) -> bool:
        """Whether a node has a retry topic: its records may come later, behind those of other keys."""
        return any(node.parks for node in self.calling)

    def given_up(self, step: str, place: str) -> bool:
        """Whether the record at a place becomes a dead letter in a step."""
        return any(node.gives_up(place) for node in self.calling if node.name == step)
