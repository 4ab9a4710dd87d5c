"""The last reset of an application, done or under way."""

from __future__ import annotations

import enum

import msgspec

from airflow_kstreams.batch.protocol.slice.slice import partition_named
from airflow_kstreams.streams.ports import TopicPartition


class ResetStage(enum.Enum):
    """How far a reset has come: ``STOPPING -> DELETING -> DONE``, or at once ``STOPPING -> DONE`` when there
    is no topic to delete. Until it is done, no run begins.
    """

    STOPPING = "stopping"
    DELETING = "deleting"
    DONE = "done"


class ResetRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The application's last reset; one record in the ledger topic.

    :param stage: how far it has come.
    :param begun_ms: when it began, epoch milliseconds.
    :param command: what was asked for, as a command line: for messages, and to know a repetition.
    :param positions: where the next run starts in each partition that has no committed offset:
        ``topic-partition`` -> offset. Takes the place of the last run's stop offsets.
    :param topic_ids: topic ids that the last run knew, of topics that the reset did not accept as they are.
    :param transactional_ids: of tasks that may still be at work when the stage is STOPPING.
    :param deleting: internal topics to delete, with their partition counts.
    :param reset_id: its name; empty if it has none.
    """

    stage: ResetStage
    begun_ms: int
    command: str
    positions: dict[str, int] = {}
    topic_ids: dict[str, str] = {}
    transactional_ids: tuple[str, ...] = ()
    deleting: dict[str, int] = {}
    reset_id: str = ""

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """Where the next run starts: the position of every partition that it knows."""
        return {partition_named(name): offset for name, offset in self.positions.items()}
