"""Replays dead letters: brings the records of a dead-letter topic back to where they were consumed.

Each goes to the partition it came from (the one its key asks for, if the topic has fewer by now), with the
key, value, time and headers it had there, less the headers that say why it became a dead letter. The letters
themselves stay where they are; how far they were replayed stands in a topic of its own
(``replay_records.py``). A letter that does not hold its whole record brings nothing back: it is counted, and
the log says where its record is.

One replay, all under one transactional id::

    claim        init_transactions: fences an earlier replay, and ends what it left open
    read         the topic of replays to its end: no other replay writes it any more
    freeze       transaction: the replay's record with its starts and stops
    bring back   transactions: some records, and the replay's record with the new positions and counts
    finish       within the last of these

Exactly once: that a letter was replayed is written in the same transaction as its record. Crash argument:
before the freeze nothing has changed; after it, a call with the same id goes on from the positions to
the same stops, wherever the topic ends by then, so a record that becomes a dead letter again is left for the
next replay. A call with another id begins at the same positions and freezes a later end; what the
first one had left is then done, and it finds that out. An answer that is lost is a crash after the step.

What lies beyond the stops of a replay, and letters of a transaction that was still open, are the next one's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.ledger.records import check_run_id
from airflow_kstreams.batch.protocol.log_bounds import POSITION_LOST, log_bounds
from airflow_kstreams.batch.protocol.log_read import OPEN_TRANSACTION_TIMEOUT_MS, read_log
from airflow_kstreams.batch.protocol.message_sizes import max_message_bytes
from airflow_kstreams.batch.protocol.partition_leaders import await_leaders
from airflow_kstreams.batch.protocol.replay_records import (
    Replay,
    Replays,
    decode_replays,
    replay_owner,
)
from airflow_kstreams.batch.protocol.topics import ensure_replays_topic
from airflow_kstreams.batch.replay.output import ReplayOutput
from airflow_kstreams.batch.retry_budget import RetryBudget, resumable
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import (
    ConfigError,
    KafkaClientError,
    KStreamsError,
    RunBusyError,
    TaskFencedError,
)
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    ClusterPort,
    ReaderPort,
    Record,
    TopicPartition,
    WriterPort,
)
from airflow_kstreams.streams.protocol_topics import ProtocolTopics
from airflow_kstreams.streams.records.dead_letters import DeadLetterOrigin, origin_of
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)

#: Records of one transaction, at most.
_BATCH_RECORDS = 500
_FETCH_SECONDS = 0.5


class DeadLetterReplay:
    """Replays the dead-letter topic of an application up to the end it has when the replay begins.

    :param cluster: where the application is.
    :param settings: of the application; they name its dead-letter topic.
    :param replay_id: names the replay: called again with it, an unfinished one goes on to the same end, and a
        finished one changes nothing.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        settings: ApplicationSettings,
        *,
        replay_id: str,
        clock: Clock | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._replay_id = replay_id
        self._topic = settings.dead_letter_topic
        self._clock = clock or SystemClock()

    def plan(self) -> Replay:
        """Return what :meth:`run` would do. Changes nothing, claims nothing, disturbs no other replay.

        :raises ConfigError: there is no such dead-letter topic.
        :raises KafkaClientError: the broker does not answer.
        """
        with ExitStack() as stack:
            clients = self._open(stack)
            replay = self._current(clients, wait_ms=0)
            for batch in self._batches(clients.reader, replay):
                replay = batch.done(replay)
            return replay

    def run(self) -> Replay:
        """Replay, and return what was done.

        :raises ConfigError: there is no such dead-letter topic, or a topic that a letter came from is gone.
        :raises RunBusyError: another replay of the same topic has taken over.
        :raises RecordError: a topic does not take a record back, as one with another size limit.
        :raises KafkaClientError: the broker does not answer, or refuses; the same replay may be run again.
        """
        check_run_id(self._replay_id)
        attempts = RetryBudget()
        while True:
            attempts.begin()
            try:
                return self._attempt(attempts)
            except TaskFencedError as error:
                raise self._busy() from error
            except KStreamsError as error:
                if not _may_resume(error) or attempts.fruitless >= self._settings.task_max_attempts:
                    raise
                log.warning("dead letters of %s: going on after: %s", self._topic, error.cause)

    def _attempt(self, attempts: RetryBudget) -> Replay:
        with ExitStack() as stack:
            clients = self._open(stack)
            done = self._read(clients, wait_ms=0).by_id.get(self._replay_id)
            if done is not None and done.finished_ms:
                return done
            ensure_replays_topic(clients.admin, ProtocolTopics.replays(self._topic), self._settings)
            await_leaders(clients.admin, [self._topic, ProtocolTopics.replays(self._topic)])
            writer = self._cluster.writer(
                transactional_id=replay_owner(self._topic),
                transaction_timeout_ms=self._settings.transaction_timeout_ms,
                # A record is smaller than its letter, and how large letters are, their topic says.
                max_message_bytes=max_message_bytes(clients.admin, [self._topic]),
            )
            stack.callback(writer.close)
            writer.init_transactions()
            replay = self._current(clients)
            return replay if replay.finished_ms else self._bring_back(replay, clients, writer, attempts)

    def _bring_back(
        self, replay: Replay, clients: _Clients, writer: WriterPort, attempts: RetryBudget
    ) -> Replay:
        output = ReplayOutput(writer, clients.reader, clients.admin)
        replay = self._ended(replay)
        output.write(replay, ())
        attempts.end(commits=1, grew_old=False)
        for batch in self._batches(clients.reader, replay):
            batch.warn_of_left_out()
            replay = self._ended(batch.done(replay))
            output.write(replay, batch.letters)
            attempts.end(commits=1, grew_old=False)
        return replay

    def _ended(self, replay: Replay) -> Replay:
        return replay if replay.left else msgspec.structs.replace(replay, finished_ms=self._clock.now_ms())

    def _open(self, stack: ExitStack) -> _Clients:
        admin = self._cluster.admin()
        stack.callback(admin.close)
        reader = self._cluster.reader(group_id=replay_owner(self._topic))
        stack.callback(reader.close)
        return _Clients(admin=admin, reader=reader)

    def _read(self, clients: _Clients, *, wait_ms: int) -> Replays:
        content = read_log(
            self._cluster,
            ProtocolTopics.replays(self._topic),
            group_id=replay_owner(self._topic),
            admin=clients.admin,
            reader=clients.reader,
            wait_ms=wait_ms,
            clock=self._clock,
        )
        return decode_replays(content.records)

    def _current(self, clients: _Clients, *, wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS) -> Replay:
        """Return this replay as it stands, or a new one with the end that the topic has now."""
        replays = self._read(clients, wait_ms=wait_ms)
        mine = replays.by_id.get(self._replay_id)
        if mine is not None and mine.finished_ms:
            return mine
        described = clients.admin.describe_topics([self._topic]).get(self._topic)
        if described is None:
            raise ConfigError(
                f"the dead-letter topic {self._topic!r} does not exist",
                fix="check the application id, and errors.dead.letter.queue.topic.name if you set it; the "
                "topic is made by the first run with the error handler 'dead-letter'",
            )
        if mine is not None and mine.topic_id != described.topic_id:
            raise ConfigError(
                f"the dead-letter topic {self._topic!r} was created again while replay {self._replay_id!r} "
                "was unfinished",
                fix="begin another replay: what is in the topic now was in none",
            )
        partitions = [TopicPartition(self._topic, number) for number in range(described.partitions)]
        if mine is not None:
            starts = {tp.partition: at for tp, at in clients.admin.start_offsets(partitions).items()}
            return _caught_up(mine, replays.last, starts)
        bounds = log_bounds(clients.admin, partitions, settle_ms=self._settings.settle_ms, clock=self._clock)
        starts = {tp.partition: log_of.start for tp, log_of in bounds.items()}
        new = Replay(
            replay_id=self._replay_id,
            dead_letter_topic=self._topic,
            topic_id=described.topic_id,
            begun_ms=self._clock.now_ms(),
            stops={tp.partition: log_of.stable for tp, log_of in bounds.items()},
        )
        return _caught_up(new, replays.last, starts)

    def _batches(self, reader: ReaderPort, replay: Replay) -> Iterator[_Batch]:
        """Read what is left, some records at a time."""
        left = {TopicPartition(self._topic, number): span for number, span in replay.left.items()}
        read = BoundedRead(
            reader, left, clock=self._clock, max_records=_BATCH_RECORDS, poll_seconds=_FETCH_SECONDS
        )
        before = dict(read.positions)
        for fetched in read:
            if read.positions != before:
                before = dict(read.positions)
                records = [record for found in fetched.values() for record in found]
                yield _batch(records, {tp.partition: position for tp, position in before.items()})

    def _busy(self) -> RunBusyError:
        return RunBusyError(
            f"replay {self._replay_id!r} of {self._topic!r} stopped: another replay of the topic took over, "
            "or the broker timed its transaction out",
            fix="nothing is lost or doubled; run it again when the other one is done",
            run_id=self._replay_id,
            owner="another replay",
            owner_run_id="",
            lease_expires_ms=0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clients:
    admin: AdminPort
    reader: ReaderPort


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Some letters, and where they end.

    :param letters: what goes back, with where to.
    :param positions: by partition.
    :param without_origin: letters that belong to no consumed record.
    :param left_out: letters that do not hold their whole record.
    """

    letters: Sequence[tuple[Record, DeadLetterOrigin]]
    positions: Mapping[int, int]
    without_origin: int
    left_out: Sequence[tuple[Record, DeadLetterOrigin]]

    def done(self, replay: Replay) -> Replay:
        """Return the replay as it is behind this batch."""
        return replay.after(
            self.positions,
            Counter(origin.topic for _, origin in self.letters),
            without_origin=self.without_origin,
            left_out=len(self.left_out),
        )

    def warn_of_left_out(self) -> None:
        """Say of each record that cannot come back where it is."""
        for record, origin in self.left_out:
            log.warning(
                "the letter %s-%s@%s is not brought back: it was made without %s, which did not fit; its "
                "record is at %s, as long as that topic keeps it",
                record.topic(),
                record.partition(),
                record.offset(),
                origin.left_out,
                origin,
            )


def _batch(records: Sequence[Record], positions: Mapping[int, int]) -> _Batch:
    origins = [(record, origin_of(record.headers())) for record in records]
    known = [(record, origin) for record, origin in origins if origin is not None]
    return _Batch(
        letters=[(record, origin) for record, origin in known if not origin.left_out],
        positions=positions,
        without_origin=len(origins) - len(known),
        left_out=[(record, origin) for record, origin in known if origin.left_out],
    )


def _caught_up(replay: Replay, last: Replay | None, log_starts: Mapping[int, int]) -> Replay:
    """Move a replay to where the last one ended, and past what the log does not hold any more.

    Positions never go back, not even those of partitions that this replay does not know.

    :param last: the replay that was written last, which may be this one.
    """
    before = last.positions if last is not None and last.topic_id == replay.topic_id else {}
    positions = dict(before)
    expired = 0
    for partition, stop in replay.stops.items():
        seen = max(before.get(partition, -1), replay.positions.get(partition, -1))
        position = max(seen, min(log_starts.get(partition, 0), stop))
        # Letters that were gone before any replay looked are not missed.
        expired += position - seen if seen >= 0 else 0
        positions[partition] = position
    return msgspec.structs.replace(replay, positions=positions, expired=replay.expired + expired)


def _may_resume(error: KStreamsError) -> bool:
    lost = isinstance(error, KafkaClientError) and error.code in POSITION_LOST
    return lost or resumable(error)
