"""Draws the records of a program's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.programs.drawing import GLOBALS, INPUTS, LATEST_MS, World
from tests.support.programs.functions import CLOSER, CLOSING, own_time_ms, undated
from tests.support.programs.program import TABLES, UNDECODABLE, Input, Step

#: How far apart the rounds of closers are.
_ROUND_MS = 100_000
_ROUNDS = 5


def draw_records(world: World) -> list[Input]:
    """Draw the records of all inputs that a program reads, closers at their end.

    Those of global tables come first: a run sees them as they were when it began
    (``global-tables-stand-still-in-a-run``).

    Times are even, and gap and grace of sessions have an odd sum, so that no record comes at the very moment
    a session closes (``session-last-moment``). Those of sliding windows are odd with the grace, unless they
    begin at the epoch, so where these are suppressed the first records come later (``sliding-last-moment``).

    What is drawn is the time that a record has for the program; the record's own is another one where the
    source has an extractor.
    """
    random = world.random
    read = sorted({topic for step in world.steps for topic in step.reads()})
    topics = [topic for topic in read if topic not in GLOBALS]
    now_ms = random.choice([0, 10, 1_000])
    if {"sliding_window", "suppress"} <= {step.operator for step in world.steps}:
        now_ms = 1_000
    records = [record for topic in read if topic in GLOBALS for record in _of_a_global_table(world, topic)]
    drawing = _Drawing(world)
    for number in range(random.randint(8, 30)):
        now_ms += 2 * random.choice([0, 0, 1, 1, 2, 5, 15])
        late_ms = 2 * random.choice([0, 0, 0, 1, 3, 10, LATEST_MS // 2]) if world.late else 0
        topic = random.choice(topics)
        key = random.choice(["k", "k", "l", "m", "g0", "g1", None])
        records += drawing.drawn(topic, key, _value(world, topic, number), max(0, now_ms - late_ms))
    return records + closers(topics, now_ms)


class _Drawing:
    """The records that are drawn one by one, closers aside."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._versions = _Versions(world.steps)
        self._timestamps: dict[str, dict[str, Any]] = {
            topic: step.arguments["timestamps"]
            for step in world.steps
            if "timestamps" in step.arguments
            for topic in step.reads()
        }
        #: The latest time of each topic.
        self._latest_ms: dict[str, int] = {}
        #: Keys of tables that are not deleted.
        self._held: set[tuple[str, str | None]] = set()

    def drawn(self, topic: str, key: str | None, value: str | int | None, time_ms: int) -> list[Input]:
        """Return a record, or one in its place, or none where engines may differ."""
        latest_ms = self._latest_ms.get(topic)
        undecodable = self._world.undecodable and INPUTS[topic] == "number" and self._world.chance(0.15)
        if undecodable and latest_ms is not None:
            # Its time would be stream time here alone, so it is one that was before.
            return [(topic, key, UNDECODABLE, latest_ms)]
        timestamps = self._timestamps.get(topic)
        if timestamps is not None and undated(timestamps, value):
            first = latest_ms is None and timestamps["invalid"] == "partition_time"
            return [] if first else [(topic, key, value, time_ms)]
        if self._versions.refuse(topic, key, value, time_ms) or self._vain(topic, key, value):
            return []
        self._latest_ms[topic] = max(time_ms, -1 if latest_ms is None else latest_ms)
        own_ms = time_ms if timestamps is None else own_time_ms(timestamps, value, time_ms)
        return [(topic, key, value, own_ms)]

    def _vain(self, topic: str, key: str | None, value: str | int | None) -> bool:
        """Return whether a table without cache deletes what it does not hold: see ``operators.py``."""
        if topic not in TABLES or self._world.cached or topic in self._versions.topics:
            return False
        if value is None and (topic, key) not in self._held:
            return True
        (self._held.discard if value is None else self._held.add)((topic, key))
        return False


class _Versions:
    """What no table with versions is asked (``versioned-deletion``): a deletion at the time of a version.

    :param steps: of the program; where one keeps the versions of what it makes, which may be deletions, no
        two records of a key have one time.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.topics = {step.arguments["topic"] for step in steps if step.operator == "versioned_table"}
        self._apart = any("history" in step.arguments and "kept" in step.arguments for step in steps)
        self._times: set[tuple[str, str | None, int]] = set()

    def refuse(self, topic: str, key: str | None, value: object, time_ms: int) -> bool:
        """Return whether a record is left out; if not, it is remembered."""
        if topic not in self.topics:
            return False
        known = (topic, key, time_ms) in self._times
        self._times.add((topic, key, time_ms))
        return known and (value is None or self._apart)


def _of_a_global_table(world: World, topic: str) -> list[Input]:
    """Draw what a global table is made of; closers name the entry of their own key."""
    drawn: list[Input] = []
    for number in range(world.random.randint(0, 10)):
        key = world.pick("k", "g0", "g0", "g1", "g2", "g3", None)
        drawn.append((topic, key, _value(world, topic, number), world.pick(0, 5, 1_000)))
    return [*drawn, *closers([topic], 0)[:1]]


def _value(world: World, topic: str, number: int) -> str | int | None:
    if world.chance(0.15):
        return None
    return number % 11 if INPUTS[topic] == "number" else f"v{number}"


def closers(topics: Sequence[str], after_ms: int) -> list[Input]:
    """Return the records that bring time far ahead, several times: each wait takes one round.

    :param topics: of each a record a round, tables first, so that streams find it there.
    """
    rounds = [(after_ms // _ROUND_MS + 1 + number) * _ROUND_MS for number in range(_ROUNDS)]
    ordered = sorted(topics, key=lambda topic: topic not in TABLES)
    return [
        (topic, CLOSER, CLOSING if INPUTS[topic] == "number" else CLOSER, time_ms)
        for time_ms in rounds
        for topic in ordered
    ]
