"""Finds the topics and partitions to which the records of dead letters go back: topics that the application's
last run has read, and partitions of the tasks that have the state of their keys.

Rule: a record goes to the partition that it came from. Where a topic of keyed state has grown, its key may
have left: then the record goes where the topic's producers put the key now, into the last of those partitions
that runs have found in use. The ledger says which those are, and the topology of the last run which bytes of
a key decide. While runs have not seen yet by which arithmetic the topic grows, all of them have one task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.evidence.topic_owners import recorded_ids
from airflow_kstreams.batch.growing.grown_groups import in_use, last_found
from airflow_kstreams.batch.ledger.facts import GroupedPartitions
from airflow_kstreams.batch.protocol.replay_records import Replay
from airflow_kstreams.batch.protocol.topics import limits_of, redates
from airflow_kstreams.batch.replay.closed_windows import ClosedWindows
from airflow_kstreams.batch.replay.selection import Letter
from airflow_kstreams.batch.run.begin.left_unread import last_sources, written_to
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.topic_names import REPARTITION_ENDING
from airflow_kstreams.streams.partitioning.linear_hashing import key_hash
from airflow_kstreams.streams.partitioning.topic_growth import kinds_agree, places
from airflow_kstreams.streams.ports import AdminPort, Headers, TopicLimits
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.dead_letter_format import DeadLetterOrigin
from airflow_kstreams.streams.records.topic_limits import record_bytes

log = package_log(__name__)

#: The largest time that a record may have, epoch milliseconds.
_LATEST_MS = 2**63 - 1


class Destinations:
    """The topics that letters came from, as they are now.

    :param facts: facts of the application's runs.
    """

    def __init__(self, admin: AdminPort, facts: RunFacts) -> None:
        self._admin = admin
        self._application_id = facts.application_id
        self._former = _not_read_any_more(facts)
        self._closed = ClosedWindows(facts)
        entries = facts.ledger.assignment.current
        self._grown = {topic: entry for entry in entries for topic in entry.grown}
        last = facts.last_work
        subs = () if last is None else last.plan.topology.subtopologies
        self._fed_by = {} if last is None else last.plan.topology.fed_by
        self._key_suffixes = {topic: size for sub in subs for topic, size in sub.key_suffixes.items()}
        self._counts: dict[str, int] = {}
        self._limits: dict[str, TopicLimits] = {}
        self._redating: set[str] = set()

    @property
    def known(self) -> Collection[str]:
        """The topics looked up so far."""
        return self._counts

    def look_up(self, letters: Sequence[Letter]) -> None:
        """Read the partition counts, and the largest records, of the topics that letters came from.

        :raises ConfigError: a topic does not exist.
        """
        firsts = {letter.origin.topic: letter for letter in reversed(letters) if letter.origin is not None}
        asked = set(firsts) - set(self._counts)
        found = self._admin.describe_topics(asked) if asked else {}
        for topic in sorted(asked - set(found)):
            raise ConfigError(
                f"{firsts[topic].place} came from topic {topic!r}, which does not exist any more",
                fix=f"{_made_by(topic)}, then run the replay again: it goes on where it stopped",
            )
        self._counts |= {topic: description.partitions for topic, description in found.items()}
        self._ask_for_settings(asked)

    def _ask_for_settings(self, topics: Collection[str]) -> None:
        asked = set(topics) - set(self._limits)
        if asked:
            configs = self._admin.topic_configs(asked)
            self._limits |= limits_of(configs)
            self._redating |= {topic for topic in asked if redates(configs.found.get(topic, {}))}

    def refuse_unread(self, letters: Sequence[Letter]) -> None:
        """Refuse to bring records back that no task would process.

        :raises ConfigError: a letter came from a topic that is not read any more, or in which another branch
            has its records now.
        """
        for letter in letters:
            cause = "" if letter.origin is None else self._unread(letter.origin)
            if cause:
                raise ConfigError(
                    f"{letter.place} came from {cause}",
                    fix="bring the letters of other topics back by --where topic=... (in Airflow: "
                    'where={"topic": ...}) in a replay of its own; the others stay, until a run has read '
                    "their topic again",
                )

    def _unread(self, origin: DeadLetterOrigin) -> str:
        """Return the reason why no task would process the record of a letter as what it is; empty if one
        does.
        """
        topic, now = origin.topic, self._fed_by.get(origin.topic, ())
        if topic in self._former:
            return (
                f"topic {topic!r}, which no task of application {self._application_id!r} reads any more: its "
                "record would not be processed"
            )
        if origin.fed_by and now and origin.fed_by != now:
            return (
                f"topic {topic!r} when that held what is made of {', '.join(origin.fed_by)}, and application "
                f"{self._application_id!r} puts what is made of {', '.join(now)} there now: another branch "
                "would process its record"
            )
        return ""

    def partition(self, letter: Letter) -> int:
        """Return the partition to which a letter's record goes back; -1 for the one that its key asks for, if
        the topic does not have its own any more.

        :param letter: a letter that was given to :meth:`look_up`.
        """
        origin = letter.origin
        if origin is None:
            return -1
        moved = self._moved_to(letter)
        if moved is not None:
            return moved
        return origin.partition if origin.partition < self._counts[origin.topic] else -1

    def _moved_to(self, letter: Letter) -> int | None:
        """Return the partition to which a key has gone in a topic that has grown; None where it stays."""
        origin, key = letter.origin, letter.record.key()
        if origin is None or key is None or origin.topic not in self._grown:
            return None
        placing = key[: len(key) - self._key_suffixes.get(origin.topic, 0)]
        return _partition_now(self._grown[origin.topic], origin.topic, placing)

    def count_late(self, replay: Replay, letters: Sequence[Letter]) -> Replay:
        """Return a replay that has counted the letters that come back too late for windows.

        :param replay: the replay with these letters, which are not counted in it yet.
        """
        late, unknown = Counter(replay.late), replay.late_unknown
        self._ask_for_settings([letter.origin.topic for letter in letters if letter.origin is not None])
        for letter in letters:
            if letter.origin is None:
                continue
            moved = self._moved_to(letter)
            partition = letter.origin.partition if moved is None else moved
            # The broker dates it when it comes back.
            time_ms = _LATEST_MS if letter.origin.topic in self._redating else letter.time_ms
            judged = self._closed.judge(letter.origin.topic, partition, time_ms)
            late.update(name for name, known in judged.items() if known)
            unknown += not all(judged.values())
        return msgspec.structs.replace(replay, late=dict(sorted(late.items())), late_unknown=unknown)

    def headers(self, letter: Letter) -> Headers | None:
        """Return the headers with which a letter's record comes back: the place at which it came first is
        one of them, unless the topic does not take a record so much larger.

        :param letter: a letter that was given to :meth:`look_up`.
        """
        origin, key, value = letter.origin, letter.record.key(), letter.record.value()
        if origin is None:
            return None
        headers = origin.headers_of(key, value)
        if record_bytes(key, value, headers) <= self._limits[origin.topic].max_bytes:
            return headers
        log.warning(
            "the record of letter %s comes back without its first place, for which %s has no room: its calls "
            "have new idempotency keys, so effects that were made before it failed are made again",
            letter.place,
            origin.topic,
        )
        return origin.headers or None


def _made_by(topic: str) -> str:
    ours = topic.endswith(REPARTITION_ENDING)
    return "let a run of the application make the topic" if ours else "create the topic"


def _partition_now(entry: GroupedPartitions, topic: str, placing: bytes) -> int | None:
    """Return the partition of a key in a topic that has grown; None if its growth is not known well enough.

    :param placing: the bytes of the key that decide its partition.
    """
    growth = entry.grown[topic]
    if entry.processors is not None:
        kind = entry.processors.kind
    elif len(growth.kinds) == 1 or kinds_agree(growth.history):
        kind = growth.kinds[0]
    else:
        return None
    last = last_found(entry, topic)
    return max(
        number
        for number in places(key_hash(placing), growth.history, kind)
        if number < growth.history[0] or in_use(growth, number, last)
    )


def _not_read_any_more(facts: RunFacts) -> set[str]:
    """Return the topics that runs of the application have read, or written to read, and the last one does not
    read; none where no run is known.
    """
    ledger, read = facts.ledger, last_sources(facts)
    if read is None:
        return set()
    own = {topic for topic in recorded_ids(ledger) if topic.endswith(REPARTITION_ENDING)}
    return {*ledger.past.left, *own, *(tp.topic for tp in written_to(facts))} - {*read}
