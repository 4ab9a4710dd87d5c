"""A program: a topology and its input as data, which each engine builds in its own words.

A program is JSON. Its steps stand in the order in which both engines build them; a step names an operator,
the results of earlier steps that it takes, and its arguments. What an operator's arguments mean is written
once for each engine: in ``operators.py``, and in ``KafkaStreamsPeer.java``. The functions that steps use
stand in ``functions.py``, and there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

#: A step, and which of its results; only a branch has several.
Ref = tuple[int, int]

#: (topic, key, value, timestamp_ms): a value is a text, a whole number, or None.
Input = tuple[str, str | None, str | int | None, int]


#: What reads a topic, as a table or not.
TABLE_SOURCES = ("table", "versioned_table", "global_table")
STREAM_SOURCES = ("stream", "stream_pattern")
SOURCES = (*STREAM_SOURCES, *TABLE_SOURCES)

#: The topics that become tables.
TABLES = ("t", "u", "w")

#: What writes topics for readers.
SINKS = ("send_to", "send_to_by", "send_to_failing", "send_to_refused")

#: The value, of records of numbers, that is none.
UNDECODABLE = "none"


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operator of a program.

    :param operator: its name, as in ``operators.OPERATORS``.
    :param of: what it takes.
    :param arguments: what else decides what it does.
    """

    operator: str
    of: tuple[Ref, ...] = ()
    arguments: dict[str, Any] = {}

    def reads(self) -> tuple[str, ...]:
        """Return the topics that a source reads; of any other step, none."""
        if self.operator not in SOURCES:
            return ()
        return tuple(self.arguments.get("topics", ())) or (self.arguments["topic"],)


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A topology and its input.

    :param cached: whether stores are cached, so that tables change once per key and commit.
    :param steps: in the order in which they are built.
    :param records: in the order in which they are piped.
    :param handler: of what fails: ``skip`` or ``dead-letter``; none where nothing does.
    """

    cached: bool
    steps: tuple[Step, ...]
    records: tuple[Input, ...]
    handler: str = ""

    def to_json(self) -> str:
        """Return it as text, a step or record a line."""
        steps = ",\n  ".join(_text(step) for step in self.steps)
        records = ",\n  ".join(_text(record) for record in self.records)
        begins = f'"cached": {_text(self.cached)}, "handler": {_text(self.handler)}'
        return f'{{{begins},\n "steps": [\n  {steps}],\n "records": [\n  {records}]}}\n'

    @staticmethod
    def from_json(text: str) -> Program:
        """Read what :meth:`to_json` wrote."""
        return msgspec.json.decode(text, type=Program)

    def depths(self) -> list[int]:
        """Return how many operators lie on the longest way to each step, itself included; sources count none.

        A topic that becomes a table is as deep as what first takes it.
        """
        depths: list[int] = []
        for step in self.steps:
            taken = [depths[number] for number, _ in step.of]
            depths.append(1 + max(taken) if taken else 0)
        for number, step in enumerate(self.steps):
            for parent, _ in step.of:
                if self.steps[parent].operator in TABLE_SOURCES:
                    depths[parent] = max(depths[parent], depths[number])
        return depths

    def heights(self) -> list[int]:
        """Return how many operators lie on the longest way from each step, itself left out."""
        heights = [0] * len(self.steps)
        for number in reversed(range(len(self.steps))):
            for parent, _ in self.steps[number].of:
                heights[parent] = max(heights[parent], heights[number] + 1)
        return heights

    def reads(self) -> list[str]:
        """Return the topics that it reads, but not those that it writes."""
        return sorted({topic for step in self.steps for topic in step.reads()})

    def matched(self) -> list[str]:
        """Return the topics that it reads by patterns."""
        return sorted({topic for step in self.steps if "pattern" in step.arguments for topic in step.reads()})

    def sinks(self) -> list[str]:
        """Return the topics that it writes for readers."""
        return [step.arguments["topic"] for step in self.steps if step.operator in SINKS]


def kept(folder: Path) -> dict[str, Program]:
    """Return the programs that lie in a folder, by name."""
    return {path.stem: Program.from_json(path.read_text()) for path in sorted(folder.glob("*.json"))}


def _text(part: Any) -> str:
    return msgspec.json.encode(part).decode()
