"""Replays dead letters: brings the records of a dead-letter topic back to the topics from which they were
consumed.

Each goes to the partition it came from, or to which its key has gone since (``destinations.py``), with the
key, value, time and headers it had there, less the headers that say why it became a dead letter. The letters
themselves stay where they are; a topic of its own says which were replayed (``replay_records.py``). A letter
that does not hold its whole record brings nothing back: it is counted, and the log says where its record is.

One replay, all under one transactional id::

    claim        init_transactions: fences an earlier replay, and ends what it left open
    read         the topic of replays to its end: no other replay writes it any more
    freeze       transaction: the replay's record with its selection, starts and stops
    bring back   transactions: some records, the marks of their letters where others were left before them,
                 and the replay's record with the new positions and counts
    finish       within the last of these

Exactly once: that a letter was replayed is written in the same transaction as its record. Crash argument:
before the freeze nothing has changed; after it, a call with the same id goes on from the positions to
the same stops, and counts on to the same limit, wherever the topic ends by then, so a record that becomes a
dead letter again is left for the next replay. A call with another id begins at the same positions, passes
what is marked, and freezes a later end; what the first one had left is then done, and it finds that out. An
answer that is lost is a crash after the step.

A letter whose topic runs of the application have read, and the last one does not, is refused: no task would
process its record. Letters of topics that it has never read are those of another application, and come back.

What lies beyond the stops of a replay, what it does not select, and letters of a transaction that was still
open, are the next one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.ledger.fold import check_run_id
from airflow_kstreams.batch.protocol.logs.fence import await_leaders
from airflow_kstreams.batch.protocol.logs.log_read import OPEN_TRANSACTION_TIMEOUT_MS, POSITION_LOST
from airflow_kstreams.batch.protocol.replay_records import (
    Marks,
    Replay,
    Replays,
    committed_by_replays,
    encode_replay,
    offsets_of,
    read_replays,
    replay_owner,
)
from airflow_kstreams.batch.protocol.slice.metadata_records import PARTITION
from airflow_kstreams.batch.protocol.topics import ensure_replays_topic, topic_limits
from airflow_kstreams.batch.replay.destinations import Destinations
from airflow_kstreams.batch.replay.selection import (
    Found,
    Letter,
    LetterLog,
    Scan,
    Selection,
    caught_up,
    described_letters,
)
from airflow_kstreams.batch.retry_budget import RetryBudget, resumable
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import (
    ConfigError,
    KafkaClientError,
    KStreamsError,
    RunBusyError,
    TaskFencedError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import (
    AdminPort,
    Clock,
    ClusterPort,
    ReaderPort,
    TopicPartition,
    WriterPort,
)
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)
#: Records of one transaction, at most.
_BATCH_RECORDS = 500
_FETCH_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class DeadLetterReplay:
    """Replays the dead-letter topic of an application up to the end it has when the replay begins.

    :param cluster: the cluster where the application runs.
    :param settings: settings of the application; they name its dead-letter topic.
    :param replay_id: id of the replay: called again with it, an unfinished replay goes on to the same end,
        and a finished one changes nothing.
    :param selection: the letters to bring back; all unless given.
    :param accept_repeats: whether letters may come back again whose marks are lost.
    """

    cluster: ClusterPort
    settings: ApplicationSettings
    _: KW_ONLY
    replay_id: str
    selection: Selection = field(default_factory=Selection)
    accept_repeats: bool = False
    clock: Clock = field(default_factory=SystemClock)

    @property
    def _topic(self) -> str:
        return self.settings.dead_letter_topic

    def plan(self) -> Replay:
        """Return the plan of the replay that :meth:`run` would make. Changes nothing, claims nothing,
        disturbs no other replay.

        :raises ConfigError: there is no such dead-letter topic, or no task reads a letter's topic any more.
        :raises KafkaClientError: the broker does not answer.
        """
        with self._clients() as clients:
            now, destinations = self._current(clients, wait_ms=0), self._destinations(clients)
            scan = self._scan(now, clients.reader)
            for found in self._batches(clients.reader, scan, destinations):
                destinations.refuse_unread(found.letters)
            return scan.replay

    def run(self) -> Replay:
        """Replay, and return the replay with its counts.

        :raises ConfigError: there is no such dead-letter topic, a topic that a letter came from is gone or no
            task reads it any more, or the replay was begun with another selection.
        :raises RunBusyError: another replay of the same topic has claimed it.
        :raises RecordError: a topic does not take a record back, because its size limit is lower.
        :raises KafkaClientError: the broker does not answer, or refuses; the same replay may be run again.
        """
        check_run_id(self.replay_id)
        attempts = RetryBudget()
        while True:
            attempts.begin()
            try:
                return self._attempt(attempts)
            except TaskFencedError as error:
                raise RunBusyError(
                    f"replay {self.replay_id!r} of {self._topic!r} stopped: another replay claimed the "
                    "topic, or the broker timed its transaction out",
                    fix="nothing is lost or doubled; run it again when the other one is done",
                    run_id=self.replay_id,
                    owner="another replay",
                ) from error
            except KStreamsError as error:
                if not _may_resume(error) or attempts.fruitless >= self.settings.task_max_attempts:
                    raise
                log.warning(
                    "the replay of dead letters of %s goes on after an error: %s", self._topic, error.cause
                )

    def _attempt(self, attempts: RetryBudget) -> Replay:
        with self._clients() as clients:
            done = self._mine(self._read(clients, wait_ms=0))
            if done is not None and done.finished_ms:
                return done
            described_letters(clients.admin, self.settings)
            ensure_replays_topic(clients.admin, ProtocolTopics.replays(self._topic), self.settings)
            await_leaders(clients.admin, [self._topic, ProtocolTopics.replays(self._topic)])
            writer = self.cluster.writer(
                transactional_id=replay_owner(self._topic),
                transaction_timeout_ms=self.settings.transaction_timeout_ms,
                # A record is smaller than its letter, and how large letters are, their topic says.
                limits=topic_limits(clients.admin, [self._topic]),
            )
            with closing(writer):
                writer.init_transactions()
                now = self._current(clients)
                if now.replay.finished_ms:
                    return now.replay
                return self._bring_back(now, clients, writer, attempts)

    def _bring_back(self, now: _Now, clients: _Clients, writer: WriterPort, attempts: RetryBudget) -> Replay:
        destinations, marks = self._destinations(clients), now.marks
        output = ReplayOutput(writer, clients.reader, clients.admin, destinations)
        replay = self._ended(now.replay)
        output.write(replay, (), marks)
        attempts.end(commits=1, grew_old=False)
        scan = self._scan(now, clients.reader)
        for found in self._batches(clients.reader, scan, destinations):
            destinations.refuse_unread(found.letters)
            _warn_of_left_out(found.left_out)
            replay = self._ended(scan.replay)
            output.write(replay, found.letters, marks)
            attempts.end(commits=1, grew_old=False)
        return replay

    def _ended(self, replay: Replay) -> Replay:
        return replay if replay.left else msgspec.structs.replace(replay, finished_ms=self.clock.now_ms())

    def _destinations(self, clients: _Clients) -> Destinations:
        facts = RunFacts.read(
            self.cluster,
            self.settings.application_id,
            admin=clients.admin,
            reader=clients.reader,
            clock=self.clock,
        )
        return Destinations(clients.admin, facts)

    @contextmanager
    def _clients(self) -> Iterator[_Clients]:
        owner = replay_owner(self._topic)
        with closing(self.cluster.admin()) as admin, closing(self.cluster.reader(group_id=owner)) as reader:
            yield _Clients(admin=admin, reader=reader)

    def _read(self, clients: _Clients, *, wait_ms: int) -> Replays:
        return read_replays(
            self.cluster,
            self._topic,
            admin=clients.admin,
            reader=clients.reader,
            clock=self.clock,
            wait_ms=wait_ms,
        )

    def _mine(self, replays: Replays) -> Replay | None:
        """Return this replay as an earlier call left it.

        :raises ConfigError: the earlier call had another selection.
        """
        mine = replays.by_id.get(self.replay_id)
        if mine is None:
            return None
        begun = Selection(where=mine.where, limit=mine.limit)
        if begun != self.selection:
            raise ConfigError(
                f"replay {self.replay_id!r} of {self._topic!r} was begun for {begun}, and is asked for "
                f"{self.selection} now",
                fix="ask for the same letters again, or begin another replay (in Airflow: clear the task)",
            )
        return mine

    def _current(self, clients: _Clients, *, wait_ms: int = OPEN_TRANSACTION_TIMEOUT_MS) -> _Now:
        """Return this replay as it is now, or a new one with the end that the topic has now."""
        committed = committed_by_replays(self.cluster, self._topic, admin=clients.admin)
        replays = self._read(clients, wait_ms=wait_ms)
        mine = self._mine(replays)
        if mine is not None and mine.finished_ms:
            return _Now(replay=mine, marks=Marks(mine.topic_id), starts={})
        found = LetterLog.look(clients.admin, self.settings, self.clock)
        if mine is not None and mine.topic_id != found.topic_id:
            raise ConfigError(
                f"the dead-letter topic {self._topic!r} was created again while replay {self.replay_id!r} "
                "was unfinished",
                fix="begin another replay: this one has read nothing of what is in the topic now",
            )
        replay = mine or Replay(
            replay_id=self.replay_id,
            dead_letter_topic=self._topic,
            topic_id=found.topic_id,
            begun_ms=self.clock.now_ms(),
            stops=dict(found.stops),
            where=dict(self.selection.where),
            limit=self.selection.limit,
        )
        positions, marks = replays.known(found.topic_id, committed, accept_repeats=self.accept_repeats)
        replay = caught_up(replay, positions, found.starts, marks)
        return _Now(replay=replay, marks=marks, starts=found.starts)

    def _scan(self, now: _Now, reader: ReaderPort) -> Scan:
        """Return a scan that knows the records that came back, by the letters before those that it
        will read.
        """
        scan = Scan(now.replay, now.marks)
        before = {
            TopicPartition(self._topic, number): (now.starts.get(number, 0), now.replay.reached(number))
            for number in (now.replay.stops if now.replay.left else ())
        }
        for fetched in BoundedRead(reader, before, clock=self.clock, poll_seconds=_FETCH_SECONDS):
            scan.recall(fetched)
        return scan

    def _batches(self, reader: ReaderPort, scan: Scan, destinations: Destinations) -> Iterator[Found]:
        """Read the letters that are left, some at a time; yield after each fetch, and at the end, the letters
        to write.
        """
        left = {TopicPartition(self._topic, number): span for number, span in scan.replay.left.items()}
        read = BoundedRead(
            reader, left, clock=self.clock, max_records=_BATCH_RECORDS, poll_seconds=_FETCH_SECONDS
        )
        for fetched in read:
            scan.look(fetched, read.positions)
            if scan.ripe:
                yield _counted(scan, destinations)
                if scan.replay.at_limit:
                    read.stop()
        if scan.replay.left:
            yield _counted(scan, destinations)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clients:
    admin: AdminPort
    reader: ReaderPort


@dataclass(frozen=True, slots=True, kw_only=True)
class _Now:
    """A replay at the beginning of an attempt.

    :param marks: marks of all replays.
    :param starts: first offset of each partition of the dead-letter topic.
    """

    replay: Replay
    marks: Marks
    starts: Mapping[int, int]


def _counted(scan: Scan, destinations: Destinations) -> Found:
    """Take what a scan has found, and count the letters that come back too late."""
    found = scan.take()
    scan.replay = destinations.count_late(scan.replay, found.letters)
    return found


def _warn_of_left_out(letters: Sequence[Letter]) -> None:
    """Log the place of each record that cannot come back."""
    for letter in letters:
        if letter.origin is not None:
            log.warning(
                "the letter %s is not brought back: it was made without %s, which did not fit; its "
                "record is at %s, as long as that topic keeps it",
                letter.place,
                letter.origin.left_out,
                letter.origin,
            )


def _may_resume(error: KStreamsError) -> bool:
    lost = isinstance(error, KafkaClientError) and error.kafka_code in POSITION_LOST
    return lost or resumable(error)


class ReplayOutput:
    """Writes the transactions of one attempt.

    :param writer: writer with the transactional id of replays.
    :param reader: reader of the group of replays.
    """

    def __init__(
        self, writer: WriterPort, reader: ReaderPort, admin: AdminPort, destinations: Destinations
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._admin = admin
        self._destinations = destinations

    def write(self, replay: Replay, letters: Sequence[Letter], marks: Marks) -> None:
        """Bring letters back, and record that they are replayed, in one transaction.

        :param replay: the replay as it is after this transaction.
        :param letters: letters that hold their whole records.
        :param marks: marks of all replays, those of these letters included.
        :raises ConfigError: the topic of a letter does not exist any more.
        :raises TransactionAbortedError: this writer must not be used again; the transaction may be committed.
        """
        self._destinations.look_up(letters)
        self._writer.begin()
        try:
            self._produce(replay, letters, marks)
            self._writer.commit()
        except BaseException:
            # Readers of the topics must not wait until the broker times it out.
            with suppress(KStreamsError):
                await_leaders(self._admin, self._destinations.known)
                self._writer.abort()
            raise
        if not replay.finished_ms and self._writer.suspect:
            raise TransactionAbortedError(
                f"a commit of replay {replay.replay_id!r} was slow or repeated, so its producer is not used "
                "again",
                fix="nothing: it goes on with a new producer",
                task_id=replay.replay_id,
            )

    def _produce(self, replay: Replay, letters: Sequence[Letter], marks: Marks) -> None:
        produce = self._writer.produce
        for letter in letters:
            record, _, origin = letter
            if origin is not None:
                partition = self._destinations.partition(letter)
                headers = self._destinations.headers(letter)
                produce(origin.topic, record.value(), record.key(), partition, letter.time_ms, headers)
        for state in (*marks.changes(replay.dead_letter_topic), encode_replay(replay)):
            produce(state.topic, state.value, state.key, PARTITION, None, state.headers)
        self._writer.send_offsets(offsets_of(replay, marks), self._reader)
