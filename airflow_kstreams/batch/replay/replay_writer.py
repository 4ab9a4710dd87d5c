"""Writes a replay of dead letters: records where they came from, and how far the replay is, in one
transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from airflow_kstreams.batch.protocol.logs.partition_leaders import await_leaders
from airflow_kstreams.batch.protocol.replay_records import Replay, encode_replay
from airflow_kstreams.batch.protocol.slice.metadata_records import PARTITION, MetadataRecord
from airflow_kstreams.batch.replay.letters import Letter
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, TransactionAbortedError
from airflow_kstreams.streams.ports import (
    AdminPort,
    CommittedOffset,
    ReaderPort,
    TopicPartition,
    WriterPort,
)
from airflow_kstreams.streams.records.dead_letter_format import DeadLetterOrigin


class ReplayOutput:
    """Writes the transactions of one attempt.

    :param writer: under the transactional id of replays.
    :param reader: of the group of replays.
    """

    def __init__(self, writer: WriterPort, reader: ReaderPort, admin: AdminPort) -> None:
        self._writer = writer
        self._reader = reader
        self._admin = admin
        self._targets = _Targets(admin)

    def write(self, replay: Replay, letters: Sequence[Letter], marks: Sequence[MetadataRecord]) -> None:
        """Bring letters back, and say so, in one transaction.

        :param replay: as it is after this transaction.
        :param letters: whole ones.
        :param marks: what has changed of them.
        :raises ConfigError: the topic of a letter does not exist any more.
        :raises TransactionAbortedError: this writer must not be used again; the transaction may be committed.
        """
        self._targets.look_up(letters)
        self._writer.begin()
        try:
            self._produce(replay, letters, marks)
            self._writer.commit()
        except BaseException:
            # Readers of the topics must not wait until the broker times it out.
            with suppress(KStreamsError):
                await_leaders(self._admin, self._targets.known)
                self._writer.abort()
            raise
        if not replay.finished_ms and self._writer.suspect:
            raise TransactionAbortedError(
                f"a commit of replay {replay.replay_id!r} was slow or repeated, its producer is not used "
                "again",
                fix="nothing: it goes on with a new producer",
                task_id=replay.replay_id,
            )

    def _produce(self, replay: Replay, letters: Sequence[Letter], marks: Sequence[MetadataRecord]) -> None:
        produce = self._writer.produce
        for record, _, origin in letters:
            if origin is not None:
                time_ms = max(record.timestamp()[1], 0)
                partition = self._targets.partition(origin)
                headers = origin.headers or None
                produce(origin.topic, record.value(), record.key(), partition, time_ms, headers)
        for state in (*marks, encode_replay(replay)):
            produce(state.topic, state.value, state.key, PARTITION, None, state.headers)
        offsets = {
            TopicPartition(replay.dead_letter_topic, partition): CommittedOffset(offset)
            for partition, offset in replay.positions.items()
        }
        self._writer.send_offsets(offsets, self._reader)


class _Targets:
    """Partition counts of the topics that letters came from."""

    def __init__(self, admin: AdminPort) -> None:
        self._admin = admin
        self._counts: dict[str, int] = {}

    @property
    def known(self) -> Collection[str]:
        """The topics looked up so far."""
        return self._counts

    def look_up(self, letters: Sequence[Letter]) -> None:
        """Look at the topics of some letters.

        :raises ConfigError: one does not exist.
        """
        firsts = {letter.origin.topic: letter for letter in reversed(letters) if letter.origin is not None}
        asked = set(firsts) - set(self._counts)
        found = self._admin.describe_topics(asked) if asked else {}
        for topic in sorted(asked - set(found)):
            raise ConfigError(
                f"{firsts[topic].place} came from topic {topic!r}, which does not exist any more",
                fix="create the topic, then run the replay again: it goes on where it stopped",
            )
        self._counts |= {topic: description.partitions for topic, description in found.items()}

    def partition(self, origin: DeadLetterOrigin) -> int:
        """Return the partition that a letter came from; -1 if the topic has it no more."""
        return origin.partition if origin.partition < self._counts[origin.topic] else -1
