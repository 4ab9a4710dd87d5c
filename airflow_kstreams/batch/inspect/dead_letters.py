"""Reads a dead-letter topic: counts of all letters, the newest of them, and single ones.

Reads the committed letters up to the end that the topic has when the reading begins, and what replays have
written of them. Memory is bounded by the kinds of failures and by the letters that are asked for, not by the
topic.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.protocol.replay_records import (
    Marks,
    committed_by_replays,
    read_replays,
    replay_owner,
)
from airflow_kstreams.batch.replay.selection import Letter, LetterLog, Selection
from airflow_kstreams.streams.bounded_read import BoundedRead, Spans
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.hints.hidden_values import without_values
from airflow_kstreams.streams.ports import Clock, ClusterPort, ReaderPort, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

_FETCH_SECONDS = 0.5
_PACKAGE = __name__.partition(".")[0]


class Fate(StrEnum):
    """The treatment of a letter by replays."""

    WAITING = "waiting"
    REPLAYED = "replayed"
    #: The letter belongs to no consumed record, or does not hold all of it.
    STAYS = "stays"


@dataclass(frozen=True, slots=True)
class SeenLetter:
    """A letter, and the treatment of it by replays."""

    letter: Letter
    fate: Fate

    @property
    def timestamp_ms(self) -> int:
        """The time of the letter, which is its record's."""
        return self.letter.time_ms

    def facts(self, *, values: bool) -> dict[str, str]:
        """Return the facts of the failure that the letter's headers hold: name of the header -> text.

        :param values: whether the exception's texts may quote the record; otherwise every quotation that is
            not of the program is shown as ``***``. The message of an error in the engine's own words is shown
            as it is.
        """
        facts = dict(self.letter.facts)
        # A traceback's lines of the program are indented.
        program = "\n".join(line for line in facts.get("stacktrace", "").splitlines() if line[:2] == "  ")
        hidden = ("stacktrace",) if _has_own_words(facts.get("exception", "")) else ("message", "stacktrace")
        for name in () if values else hidden:
            if name in facts:
                facts[name] = without_values(facts[name], own=program)
        return facts


def _has_own_words(exception: str) -> bool:
    """Tell whether an exception is one of the engine's whose texts hold no values.

    Only modules that are loaded already are asked: a letter makes no code run.

    :param exception: full name of its class.
    """
    module, _, name = exception.rpartition(".")
    if not module.startswith(f"{_PACKAGE}."):
        return False
    return bool(getattr(getattr(sys.modules.get(module), name, None), "own_words", False))


@dataclass(slots=True, kw_only=True)
class LetterGroup:
    """Letters that failed alike.

    :param topic: topic from which the records were consumed; empty for timers and for records that are no
        letters.
    :param node: name of the node that failed.
    :param exception: class of the exception.
    :param purpose: what the node does, and the user's line, as the last letter that was read says.
    :param first_ms: time of the earliest record, epoch milliseconds; ``last_ms`` is that of the latest.
    """

    topic: str
    node: str
    exception: str
    purpose: str = ""
    letters: int = 0
    waiting: int = 0
    replayed: int = 0
    first_ms: int
    last_ms: int

    def add(self, seen: SeenLetter) -> None:
        """Count a letter."""
        self.letters += 1
        self.purpose = seen.letter.facts.get("purpose", self.purpose)
        self.waiting += seen.fate is Fate.WAITING
        self.replayed += seen.fate is Fate.REPLAYED
        self.first_ms = min(self.first_ms, seen.timestamp_ms)
        self.last_ms = max(self.last_ms, seen.timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLetters:
    """The letters of a dead-letter topic.

    :param topic: the dead-letter topic.
    :param groups: the groups, the largest first.
    :param newest: the letters with the latest times, the latest first.
    """

    topic: str
    groups: tuple[LetterGroup, ...]
    newest: tuple[SeenLetter, ...]

    @property
    def letters(self) -> int:
        """The number of letters."""
        return sum(group.letters for group in self.groups)


class DeadLetterTopic:
    """Looks at the dead-letter topic of an application. Writes nothing and claims nothing.

    :param settings: settings of the application; they name the topic.
    """

    def __init__(
        self, cluster: ClusterPort, settings: ApplicationSettings, *, clock: Clock | None = None
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._topic = settings.dead_letter_topic
        self._clock = clock or SystemClock()

    def survey(self, selection: Selection, *, newest: int) -> SeenLetters:
        """Count the letters.

        :param selection: the letters to count; its limit does not matter here.
        :param newest: the number of letters to return one by one.
        :raises ConfigError: there is no such topic.
        """
        groups: dict[tuple[str, str, str], LetterGroup] = {}

        def counted(seen: SeenLetter) -> SeenLetter:
            _count(groups, seen)
            return seen

        with self._look() as view:
            fitting = (counted(seen) for seen in view.read(view.all) if selection.fits(seen.letter))
            # With none to return, all are counted nonetheless.
            listed = heapq.nlargest(max(newest, 1), fitting, key=_place)[:newest]
        return SeenLetters(
            topic=self._topic,
            groups=tuple(sorted(groups.values(), key=lambda g: (-g.letters, g.topic, g.node, g.exception))),
            newest=tuple(listed),
        )

    def letters_at(self, partition: TopicPartition, offset: int) -> list[SeenLetter]:
        """Return the letter that lies at a place of the dead-letter topic, or the letters of the record that
        lies at a place of another topic: one for each node that failed on it.

        :raises ConfigError: no letter lies there, or there is no such dead-letter topic.
        """
        with self._look() as view:
            if partition.topic == self._topic:
                found = list(view.read({partition: (offset, offset + 1)}))
            else:
                place = (*partition, offset)
                found = [
                    seen
                    for seen in view.read(view.all)
                    if (origin := seen.letter.origin) is not None
                    and (origin.topic, origin.partition, origin.offset) == place
                ]
        if not found:
            raise ConfigError(
                f"{partition.topic}-{partition.partition}@{offset} has no dead letter: none lies there, and "
                f"none in {self._topic} is of a record that was consumed there",
                fix="take the place of a letter, or of its record, as dead-letters list prints them; the "
                "topic's retention deletes letters",
            )
        return found

    @contextmanager
    def _look(self) -> Iterator[_LetterView]:
        topic, clock, group_id = self._topic, self._clock, replay_owner(self._topic)
        with (
            closing(self._cluster.admin()) as admin,
            closing(self._cluster.reader(group_id=group_id)) as reader,
        ):
            log = LetterLog.look(admin, self._settings, clock)
            committed = committed_by_replays(self._cluster, topic, admin=admin)
            replays = read_replays(self._cluster, topic, admin=admin, reader=reader, clock=clock, wait_ms=0)
            positions, marks = replays.known(log.topic_id, committed, accept_repeats=True)
            yield _LetterView(
                topic=topic,
                log=log,
                positions=positions,
                marks=marks,
                reader=reader,
                clock=clock,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _LetterView:
    """The topic at one moment, with the replays that were done by then."""

    topic: str
    log: LetterLog
    positions: dict[int, int]
    marks: Marks
    reader: ReaderPort
    clock: Clock

    @property
    def all(self) -> Spans:
        return {
            TopicPartition(self.topic, number): (self.log.starts[number], stop)
            for number, stop in self.log.stops.items()
        }

    def read(self, spans: Spans) -> Iterator[SeenLetter]:
        """Read the letters of some offset ranges, as far as the topic has them."""
        whole = self.all
        within = {
            tp: (max(start, whole[tp][0]), min(stop, whole[tp][1]))
            for tp, (start, stop) in spans.items()
            if tp in whole
        }
        read = BoundedRead(self.reader, within, clock=self.clock, poll_seconds=_FETCH_SECONDS)
        for fetched in read:
            for records in fetched.values():
                for record in records:
                    letter = Letter.of(record)
                    yield SeenLetter(letter, self._fate(letter))

    def _fate(self, letter: Letter) -> Fate:
        if not letter.whole:
            return Fate.STAYS
        partition, offset = letter.record.partition(), letter.record.offset()
        done = offset < self.positions.get(partition, 0) or self.marks.has(partition, offset)
        return Fate.REPLAYED if done else Fate.WAITING


def _count(groups: dict[tuple[str, str, str], LetterGroup], seen: SeenLetter) -> None:
    facts = seen.letter.facts
    kind = (facts.get("topic", ""), facts.get("node", ""), facts.get("exception", ""))
    if kind not in groups:
        topic, node, exception = kind
        groups[kind] = LetterGroup(
            topic=topic,
            node=node,
            exception=exception,
            first_ms=seen.timestamp_ms,
            last_ms=seen.timestamp_ms,
        )
    groups[kind].add(seen)


def _place(seen: SeenLetter) -> tuple[int, int, int]:
    """Return the sort key of a letter; no two letters have the same partition and offset."""
    return seen.timestamp_ms, seen.letter.record.partition(), seen.letter.record.offset()
